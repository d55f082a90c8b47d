"""Record what a peer saw, and read it back. Needs the extra `record`: pip install '.[record]'

The tape is a folder of Parquet files: Spark, pandas, DuckDB and polars read it too (docs/tape.md).
"""

import asyncio
import tempfile
from uuid import uuid4

import broadloom
from broadloom.record import Tape, TapeSettings, read, summarize


async def talk(name: str, tape: Tape) -> None:
    async with broadloom.connect(name, tape=tape) as listener, broadloom.connect(name) as speaker:
        for number in range(1, 4):
            await speaker.broadcast_text(f"message {number}")
        for _ in range(3):
            await listener.receive(timeout_s=10)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        with Tape(folder, settings=TapeSettings(include_payload=True)) as tape:
            asyncio.run(talk(f"chat/{uuid4()}", tape))
        for row in read(folder, kinds=["delivered"], columns=["event_time", "author", "sequence", "payload"]).to_pylist():
            print(f"{row['event_time']:%H:%M:%S.%f} {row['author']} {row['sequence']} {row['payload'].decode()}")
        for told in summarize(folder):
            print(f"channel {told.channel}: {told.rows} rows in {told.files} file(s), {told.dropped_rows} lost")


if __name__ == "__main__":
    main()
