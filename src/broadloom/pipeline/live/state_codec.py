"""Tables as bytes, many at once: how the state of a channel and its results travel between batches and processes."""

import io

import polars as pl

from broadloom.record.arrow_import import pa


def pack(frames: dict[str, pl.DataFrame]) -> bytes:
    """Each as Arrow's file format, one after the other, with their names and lengths in front."""
    bodies = []
    for frame in frames.values():
        sink = io.BytesIO()
        frame.write_ipc(sink, compression="zstd")
        bodies.append(sink.getvalue())
    index = pa.table({"name": list(frames), "bytes": pa.array([len(body) for body in bodies], pa.int64())})
    head = index.to_batches()[0].serialize().to_pybytes() if frames else b""
    return len(head).to_bytes(4, "big") + head + b"".join(bodies)


def unpack(data: bytes) -> dict[str, pl.DataFrame]:
    head_bytes = int.from_bytes(data[:4], "big")
    place = 4 + head_bytes
    if not head_bytes:
        return {}
    schema = pa.schema([("name", pa.string()), ("bytes", pa.int64())])
    index = pa.ipc.read_record_batch(pa.py_buffer(data[4:place]), schema)
    frames = {}
    for name, size in zip(index["name"].to_pylist(), index["bytes"].to_pylist(), strict=True):
        frames[name] = pl.read_ipc(io.BytesIO(data[place : place + size]))
        place += size
    return frames
