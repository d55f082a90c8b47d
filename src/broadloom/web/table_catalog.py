"""The pipeline's tables, read without Spark.

Batch tables are those named in the manifest of the results; live tables are in the directory `live` beside them. A
table is read through a scanner, so only the rows that are shown are in memory.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from broadloom.errors import BroadloomError
from broadloom.pipeline.live.store import LiveStore, LiveTablesNotFoundError
from broadloom.pipeline.live.tables import TABLES as LIVE_TABLES
from broadloom.pipeline.results import Results
from broadloom.pipeline.table import Table
from broadloom.record.arrow_import import pa, pc
from broadloom.testing.checks.settling import Verdict

T = TypeVar("T")

BATCH_ROWS = 50_000
READ_ATTEMPTS = 3
"""A finishing run replaces the files while they are read."""

FIRST_TABLES = ("audit_summary", "audit_findings")
"""Shown first."""

CONDITIONS = {"is": "is", "not": "is not", "has": "contains", "least": "is at least", "most": "is at most"}


class TableNotFoundError(BroadloomError):
    """No table has this name."""


class FilterError(BroadloomError):
    """The filter does not fit the column."""


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One readable table."""

    name: str
    is_live: bool
    question: str
    """Empty if the extra `pipeline` is not installed."""
    about: dict[str, str]
    """Description of each column."""
    rows: int

    @property
    def key(self) -> str:
        return f"live-{self.name}" if self.is_live else self.name


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows in which one column meets a condition; without a column, all."""

    column: str = ""
    condition: str = "is"
    value: str = ""

    def expression(self, schema: pa.Schema) -> Any:
        if not self.column:
            return None
        if self.column not in schema.names:
            raise FilterError(f"there is no column {self.column!r}")
        kind, field = schema.field(self.column).type, pc.field(self.column)
        if self.condition == "has":
            return pc.match_substring(field.cast(pa.string()), self.value, ignore_case=True)
        value = _parse_value(self.value, kind, self.column)
        match self.condition:
            case "is":
                return field == value
            case "not":
                return (field != value) | field.is_null()
            case "least":
                return field >= value
            case "most":
                return field <= value
        raise FilterError(f"there is no condition {self.condition!r}")


@dataclass(frozen=True, slots=True)
class OneOf:
    """Rows in which one column has one of these texts."""

    column: str
    values: frozenset[str]

    def expression(self, _schema: pa.Schema) -> Any:
        return pc.field(self.column).isin(pa.array(sorted(self.values), pa.string()))


class TableCatalog:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._results = Results(folder)
        self._store = LiveStore(folder / "live")

    # -- catalog

    def entries(self) -> list[CatalogEntry]:
        """All available tables, batch tables first."""
        built = self._results.manifest().tables
        known = self._texts
        order = dict.fromkeys([*FIRST_TABLES, *known, *built])
        names = [name for name in order if name in built]
        found = [CatalogEntry(name, False, *_text(known.get(name)), built[name].rows) for name in names]
        live = self._store.manifest()
        if live is not None:
            for table in LIVE_TABLES.values():
                found.append(CatalogEntry(table.name, True, *_text(table), -1))
        return found

    @property
    def written_at(self) -> str:
        """When the batch tables were built; empty if there are none."""
        return self._results.manifest().written

    @cached_property
    def _texts(self) -> dict[str, Table]:
        """Questions and columns from the pipeline; empty if it is not installed."""
        try:
            from broadloom.pipeline.tables import all_tables
        except ImportError:
            return {}
        try:
            return {each.name: each for each in all_tables()}
        except ImportError:
            return {}

    # -- rows

    def schema(self, entry: CatalogEntry) -> pa.Schema:
        return self._source(entry).schema

    def count(self, entry: CatalogEntry, chosen: Filter) -> int:
        dataset = self._source(entry)
        return int(dataset.count_rows(filter=chosen.expression(dataset.schema)))

    def page(self, entry: CatalogEntry, chosen: Filter, first: int, count: int) -> pa.Table:
        """Some rows, in file order."""

        def read() -> pa.Table:
            dataset = self._source(entry)
            return dataset.head(first + count, filter=chosen.expression(dataset.schema)).slice(first)

        return reading_again(read)

    def batches(self, entry: CatalogEntry, chosen: Filter | OneOf) -> Iterator[pa.RecordBatch]:
        """All rows, batch by batch."""
        dataset = self._source(entry)
        yield from dataset.to_batches(filter=chosen.expression(dataset.schema), batch_size=BATCH_ROWS)

    def _source(self, entry: CatalogEntry) -> Any:
        from pyarrow import dataset  # type: ignore[import-untyped]

        if entry.is_live:
            try:
                return dataset.dataset(self._store.read(entry.name))
            except LiveTablesNotFoundError as problem:
                raise TableNotFoundError(str(problem)) from problem
        files = [str(path) for path in self._results.files(entry.name)]
        if not files:
            raise TableNotFoundError(f"the table {entry.name} is empty")
        return dataset.dataset(files, format="parquet", partitioning=None)

    def entry(self, key: str) -> CatalogEntry:
        for each in self.entries():
            if each.key == key:
                return each
        raise TableNotFoundError(f"there is no table {key!r} here; run: broadloom pipeline run --out {self.folder}")


def reading_again(read: Callable[[], T]) -> T:
    """Read, and if a file was replaced meanwhile, once more."""
    for _ in range(READ_ATTEMPTS - 1):
        with suppress(FileNotFoundError):
            return read()
    return read()


def _text(table: Table | None) -> tuple[str, dict[str, str]]:
    """The question, and what each column means."""
    return ("", {}) if table is None else (table.question, {each.name: each.about for each in table.columns})


def _parse_value(text: str, kind: pa.DataType, column: str) -> pa.Scalar:
    text = text.strip()
    try:
        if pa.types.is_boolean(kind):
            return pa.scalar({"true": True, "yes": True, "false": False, "no": False}[text.lower()], kind)
        if pa.types.is_timestamp(kind):
            moment = datetime.fromisoformat(text)
            return pa.scalar(moment if moment.tzinfo is not None else moment.astimezone(), kind)
        return pa.scalar(text, pa.string()).cast(kind)
    except (KeyError, ValueError, pa.ArrowException):
        kinds = {True: "true or false"}.get(pa.types.is_boolean(kind), f"a value of type {kind}")
        raise FilterError(f"{column} has to be {kinds}, not {text!r}") from None


def format_cell(value: Any) -> Any:
    """A value as a cell shows it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "")
    if isinstance(value, bytes):
        return value[:32].hex() + ("…" if len(value) > 32 else "")
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, default=str)
    return str(value)


# The audit in sentences, one per channel.


CHANNELS_MAX = 50
FINDINGS = (
    *("missing", "duplicate", "out_of_order", "reply_before_parent", "receiver_not_member", "delivered_to_author"),
    *("forged", "not_recorded", "reported_missed", "request_handled_twice", "request_ended_twice"),
    "request_without_end",
)


@dataclass(frozen=True, slots=True)
class AuditSummary:
    channel: str
    verdict: Verdict
    sentence: str
    remarks: str


def audit_summaries(catalog: TableCatalog) -> list[AuditSummary]:
    """Empty if the table does not exist yet."""
    entry = next((each for each in catalog.entries() if each.key == "audit_summary"), None)
    if entry is None or not entry.rows:
        return []
    summaries = []
    for row in catalog.page(entry, Filter(), 0, CHANNELS_MAX).to_pylist():
        found = {name: row.get(f"{name}_count") or 0 for name in FINDINGS}
        violations = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in found.items() if count)
        verdict = Verdict(row["verdict"])
        sentence = (
            f"{row['due_count']:,} deliveries of {row['message_count']:,} messages were due to "
            f"{row['peer_count']:,} peers: "
            f"{violations or 'all of them were made, once and in order'}."
        )
        if verdict is Verdict.UNJUDGED and not row["due_count"]:
            sentence = f"No delivery of {row['message_count']:,} messages was due, so nothing was verified."
        if verdict is Verdict.UNSETTLED:
            sentence += f" At {row['verdict_time']:%H:%M:%S}, {row['waits_for']}."
        summaries.append(AuditSummary(row["channel"], verdict, sentence, row.get("notes") or ""))
    return summaries
