"""Record what a peer sees, and read it back. Requires the extra `record`: pip install '.[record]'

A tape is a directory of Parquet files: Spark, pandas, DuckDB and Polars read it too (docs/tape.md).
"""

import asyncio
import tempfile
from uuid import uuid4

import broadloom
from broadloom.record import Tape, TapeSettings, read, summarize


async def record(name: str, tape: Tape) -> None:
    async with broadloom.connect(name, tape=tape) as listener, broadloom.connect(name) as author:
        for number in range(1, 4):
            await author.broadcast_text(f"message {number}")
        for _ in range(3):
            await listener.receive(timeout_s=10)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        with Tape(directory, settings=TapeSettings(include_payload=True)) as tape:
            asyncio.run(record(f"chat/{uuid4()}", tape))
        for row in read(
            directory, kinds=["delivered"], columns=["event_time", "author", "sequence", "payload"]
        ).to_pylist():
            print(f"{row['event_time']:%H:%M:%S.%f} {row['author']} {row['sequence']} {row['payload'].decode()}")
        for summary in summarize(directory):
            print(f"{summary.channel}: {summary.rows} rows in {summary.files} file(s), {summary.dropped_rows} dropped")


if __name__ == "__main__":
    main()
