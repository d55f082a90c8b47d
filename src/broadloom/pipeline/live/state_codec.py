"""Serializes several tables into bytes: the state and results of a channel, between batches and processes."""

import io

import polars as pl

from broadloom.record.arrow_import import pa


def pack(frames: dict[str, pl.DataFrame]) -> bytes:
    """Arrow files, one after the other, preceded by their names and lengths."""
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
    position = 4 + head_bytes
    if not head_bytes:
        return {}
    schema = pa.schema([("name", pa.string()), ("bytes", pa.int64())])
    index = pa.ipc.read_record_batch(pa.py_buffer(data[4:position]), schema)
    frames = {}
    for name, size in zip(index["name"].to_pylist(), index["bytes"].to_pylist(), strict=True):
        frames[name] = pl.read_ipc(io.BytesIO(data[position : position + size]))
        position += size
    return frames
