"""Rows of tape files as a polars frame, with texts as dictionary codes.

Parquet stores most texts as dictionaries. Reading the codes, and decoding each value once instead of once per row,
takes a third of the time. All frames of a process share one set of categories, so codes of different files compare.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

import polars as pl

from broadloom.pipeline.analysis.frames import empty
from broadloom.pipeline.row_checks import CHECKED, row_problem
from broadloom.record.arrow_import import pa, pq
from broadloom.record.schema import SCHEMA, with_all_columns

TEXT = pl.Categorical(pl.Categories("broadloom"))
TIME = pl.Datetime("us", "UTC")
ARROW_SUFFIX = ".arrow"
"""Of files that a task has written for another: frames with dictionary codes, and valid rows only."""

TEXT_COLUMNS = frozenset(each.name for each in SCHEMA if pa.types.is_string(each.type))


@dataclass(frozen=True, slots=True)
class FlawedFiles:
    """Files of which some rows are left out."""

    paths: frozenset[str]
    latest: datetime
    """Rows after this time are in the future."""


def load(files: Iterable[str], columns: Sequence[str], flawed: FlawedFiles | None = None) -> pl.DataFrame:
    """These columns of all valid rows."""
    frames = []
    for path in files:
        if path.endswith(ARROW_SUFFIX):
            frames.append(pl.read_ipc(path, columns=list(columns)))
            continue
        is_flawed = flawed is not None and path in flawed.paths
        wanted = list(dict.fromkeys([*columns, *CHECKED])) if is_flawed else list(columns)
        metadata = pq.read_metadata(path)
        texts = [name for name in metadata.schema.names if name in TEXT_COLUMNS and name in wanted]
        with pq.ParquetFile(path, metadata=metadata, read_dictionary=texts) as file:
            rows = encode(with_all_columns(file.read(columns=wanted, use_threads=False), wanted), wanted)
        if flawed is not None and is_flawed:
            day = date.fromisoformat(Path(path).parent.name.partition("=")[2])
            problem = row_problem(wanted, flawed.latest)
            rows = rows.with_columns(event_date=pl.lit(day)).filter(problem.is_null()).select(columns)
        frames.append(rows)
    return pl.concat(frames) if frames else encode(empty(SCHEMA), columns)


def encode(table: pa.Table, columns: Sequence[str]) -> pl.DataFrame:
    """Arrow rows of a tape as a frame with dictionary codes."""
    return pl.DataFrame([_column(name, table[name]) for name in columns])


def _column(name: str, values: pa.ChunkedArray) -> pl.Series:
    if name not in TEXT_COLUMNS:
        return pl.Series(name, pl.from_arrow(values))
    if not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode()
    parts = [_codes(name, chunk) for chunk in values.chunks if len(chunk)]
    # One chunk, as in other columns: polars would copy a frame of different chunks in every operation.
    return pl.concat(parts, rechunk=True) if parts else pl.Series(name, [], TEXT)


def _codes(name: str, chunk: pa.DictionaryArray) -> pl.Series:
    words = pl.Series(pl.from_arrow(chunk.dictionary)).cast(pl.String).cast(TEXT)
    if not len(words):
        return pl.Series(name, [None], TEXT).new_from_index(0, len(chunk))
    codes = pl.Series(pl.from_arrow(chunk.indices)).cast(pl.UInt32)
    return words.gather(codes).rename(name)


def plain(frame: pl.DataFrame) -> pl.DataFrame:
    """Codes as texts again; for results that are small."""
    coded = [name for name, kind in frame.schema.items() if isinstance(kind, pl.Categorical)]
    return frame.with_columns(pl.col(coded).cast(pl.String)) if coded else frame


def dictionary_array(values: pl.Series) -> pa.DictionaryArray:
    """Codes as an Arrow dictionary that has only the values that occur: Parquet writes it without decoding."""
    codes = values.to_physical()
    used = codes.unique().drop_nulls().sort()
    if not len(used):
        return pa.nulls(len(values), pa.string()).dictionary_encode()
    places = pl.Series([0], dtype=pl.Int32).new_from_index(0, int(used[-1]) + 1)
    places = places.scatter(used, pl.Series(range(len(used)), dtype=pl.Int32))
    oldest = pl.CompatLevel.oldest()
    words = used.cat.to(TEXT).cast(pl.String).to_arrow(compat_level=oldest).cast(pa.string())
    return pa.DictionaryArray.from_arrays(places.gather(codes).to_arrow(compat_level=oldest), words)
