"""The rows of row groups, as Arrow batches of exactly the columns that are wanted.

The rule: a row group is read whole and checked before a row of it is given out, so that damage costs all of it and is
told of with the number of rows, not a part that nobody knows.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from weft.pipeline.quarantine import Reason
from weft.pipeline.source.files import Aside, tell, told_by_folders
from weft.pipeline.source.offsets import Gone
from weft.pipeline.source.options import WrongOption
from weft.record.arrow import pa, pc, pq
from weft.record.read import TABLE_SCHEMA

BATCH_ROWS = 65_536
"""Of an Arrow batch: large enough that handing it over costs little."""

_FOLDERS = ("channel", "day")


class Piece(NamedTuple):
    """Row groups of one file."""

    path: str
    first: int
    after: int
    """The one after the last."""


class Pieces(InputPartition):
    """What one task reads."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces = pieces


def wanted(schema: StructType) -> pa.Schema:
    """The columns that Spark asks for, as Arrow has them."""
    unknown = [name for name in schema.fieldNames() if name not in TABLE_SCHEMA.names]
    if unknown:
        raise WrongOption(f"a tape has no column {unknown[0]!r}; it has: {', '.join(TABLE_SCHEMA.names)}")
    return pa.schema([pa.field(name, TABLE_SCHEMA.field(name).type) for name in schema.fieldNames()])


def read(
    folder: str, pieces: list[Piece], schema: pa.Schema, passing: "pc.Expression | None", quarantine: str | None
) -> Iterator[pa.RecordBatch]:
    """All rows of the pieces that pass. What is damaged is set aside and told of."""
    for piece in pieces:
        for table in _groups(folder, piece, schema, passing, quarantine):
            if passing is not None:
                table = table.filter(passing)
            yield from table.select(schema.names).cast(schema).combine_chunks().to_batches(BATCH_ROWS)


def _groups(
    folder: str, piece: Piece, schema: pa.Schema, passing: "pc.Expression | None", quarantine: str | None
) -> Iterator[pa.Table]:
    channel, day = told_by_folders(piece.path)
    # A filter may ask for columns that nobody wants to see.
    names = schema.names if passing is None else TABLE_SCHEMA.names
    columns = [name for name in names if name not in _FOLDERS]
    try:
        file = pq.ParquetFile(os.path.join(folder, piece.path), page_checksum_verification=True)
    except FileNotFoundError:
        raise Gone(
            f"{os.path.join(folder, piece.path)} was on the tape when this batch was planned, and is gone: "
            "put it back, or start again with a new checkpoint"
        ) from None
    except (pa.ArrowException, OSError) as problem:
        tell(quarantine, Aside(piece.path, Reason.UNREADABLE.value, str(problem).splitlines()[0]))
        return
    with file:
        there = [name for name in columns if name in file.schema_arrow.names]
        for group in range(piece.first, piece.after):
            try:
                table = file.read_row_group(group, columns=there, use_threads=False)
            except (pa.ArrowException, OSError) as problem:
                lost = file.metadata.row_group(group).num_rows
                said = f"row group {group} ({lost} rows): {str(problem).splitlines()[0]}"
                tell(quarantine, Aside(piece.path, Reason.UNREADABLE.value, said))
                continue
            rows = file.metadata.row_group(group).num_rows
            if not there:
                table = pa.table({"": pa.nulls(rows)})
            for name in columns:
                if name not in there:  # an older version did not have it
                    table = table.append_column(name, pa.nulls(rows, TABLE_SCHEMA.field(name).type))
            for name, value in (("channel", channel), ("day", day)):
                table = table.append_column(name, pa.repeat(pa.scalar(value, TABLE_SCHEMA.field(name).type), rows))
            yield table
