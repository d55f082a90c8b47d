"""Rows that cannot be used are set aside with the reason, in builds and in live tables; all others are used."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from broadloom.pipeline import quarantine
from broadloom.pipeline.live.micro_batch import process_micro_batch
from broadloom.pipeline.live.watermark import WatermarkRules
from broadloom.pipeline.results import Results
from broadloom.pipeline.spark_source.parquet_files import ExcludedFile, read_footer
from broadloom.pipeline.spark_source.read_plan import ReadPlanner
from broadloom.pipeline.spark_source.row_groups import RowGroupRange
from broadloom.pipeline.spark_source.row_groups import read as read_row_groups
from broadloom.pipeline.tables import table as table_named
from broadloom.pipeline.tables.deliveries import MISSED_MAX
from broadloom.pipeline.tables.sessions import SessionRule
from broadloom.pipeline.tape_set import events, examine_tapes
from broadloom.record.arrow_import import pa, pq
from broadloom.record.reader import TapeReadError, read
from broadloom.record.schema import INT64_MAX, SCHEMA, VERSION_KEY, columns_in_version
from tests.pipeline.without_spark import frame
from tools.synthetic.generate import SyntheticConfig, generate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = SyntheticConfig(rows=3_000, peers=12, arrivals=0, leaves=1, crashes=1, machines=3, seconds=60)
DELIVERED, LINK, ANY = pl.col("kind") == "delivered", pl.col("kind") == "link_up", pl.lit(True)
TIME = pl.Datetime("us", "UTC")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

FLAWS: dict[str, tuple[pl.Expr, str, object, str]] = {
    "no time": (ANY, "event_time", None, "missing_value"),
    "no kind": (ANY, "kind", None, "missing_value"),
    "no ordinal": (ANY, "ordinal", None, "missing_value"),
    "no author": (DELIVERED, "author", None, "missing_value"),
    "no sequence": (DELIVERED, "sequence", None, "missing_value"),
    "no peer": (DELIVERED, "peer", None, "missing_value"),
    "no neighbor": (LINK, "neighbor", None, "missing_value"),
    "malformed peer": (DELIVERED, "peer", "not an id", "malformed_id"),
    "author in capitals": (DELIVERED, "author", "0123456789ABCDEF", "malformed_id"),
    "author with a line break": (DELIVERED, "author", "0123456789abcdef\n", "malformed_id"),
    "empty neighbor": (pl.col("kind") == "received", "neighbor", "", "malformed_id"),
    "unknown kind": (ANY, "kind", "teleported", "unknown_kind"),
    "negative sequence": (DELIVERED, "sequence", -7, "out_of_range"),
    "sequence zero": (DELIVERED, "sequence", 0, "out_of_range"),
    "lowest sequence": (DELIVERED, "sequence", -INT64_MAX - 1, "out_of_range"),
    "negative size": (DELIVERED, "size_bytes", -1, "out_of_range"),
    "size near the maximum": (DELIVERED, "size_bytes", INT64_MAX, "out_of_range"),
    "negative hops": (DELIVERED, "hops", -1, "out_of_range"),
    "negative ordinal": (ANY, "ordinal", -1, "out_of_range"),
    "year 1970": (ANY, "event_time", EPOCH, "wrong_date"),
    "another day": (ANY, "event_time", datetime(2026, 1, 4, 12, tzinfo=UTC), "wrong_date"),
}
"""Which rows may be changed, the column, its new value, and the reason."""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    generate(folder, CONFIG)
    return folder


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    shutil.copytree(good, tmp_path / "tapes")
    return tmp_path / "tapes"


def spoil(path: Path, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    """Rewrite a file. Required columns may be null then."""
    rows = pq.read_table(path, partitioning=None)
    fields = pa.schema([pa.field(each.name, each.type) for each in SCHEMA])
    changed = change(frame(rows)).select(SCHEMA.names).to_arrow().cast(fields)
    pq.write_table(changed.replace_schema_metadata(pq.read_schema(path).metadata), path)


def set_value(rows: pl.DataFrame, flaw: str, place: int = 100) -> pl.DataFrame:
    """Spoil the first suitable row from this place on."""
    where, column, value, _ = FLAWS[flaw]
    numbered = rows.with_row_index("place")
    (chosen,) = numbered.filter(where & (pl.col("place") >= place)).head(1)["place"]
    spoiled = pl.when(pl.col("place") == chosen).then(pl.lit(value, rows.schema[column])).otherwise(pl.col(column))
    return numbered.with_columns(spoiled.alias(column)).drop("place")


def rows_of(folder: Path) -> pa.Table:
    """All rows, as the source of live tables reads them: `read` refuses null values."""
    parts = []
    for path in sorted(folder.rglob("*.parquet")):
        part = frame(pq.read_table(path, partitioning=None)).with_columns(
            channel=pl.lit("c"), event_date=pl.lit(path.parent.name.partition("=")[2]).str.to_date()
        )
        parts.append(part)
    return pl.concat(parts).to_arrow(compat_level=pl.CompatLevel.oldest())


def first_of(folder: Path) -> Path:
    return sorted(folder.rglob("*.parquet"))[0]


def test_rows_of_a_good_file_are_not_looked_at_one_by_one(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "_examine_rows", lambda *_: pytest.fail("slow"))
    assert len(examine_tapes(good).used) == 3


@pytest.mark.parametrize("flaw", FLAWS)
def test_row_is_set_aside_and_the_rest_is_used(folder: Path, flaw: str) -> None:
    spoil(first_of(folder), lambda rows: set_value(rows, flaw))
    tapes = examine_tapes(folder)
    (excluded,) = tapes.quarantine.to_dicts()
    assert (excluded["reason"], excluded["row_count"], excluded["leaves_gap"]) == (FLAWS[flaw][3], 1, True)
    assert excluded["start_time"] < excluded["end_time"]
    assert len(tapes.used) == 3
    assert tapes.rows == rows_of(folder).num_rows - 1


def test_row_of_a_file_of_an_older_version_is_set_aside(folder: Path) -> None:
    path = first_of(folder)
    spoil(path, lambda rows: set_value(rows, "no author"))
    rows = pq.read_table(path, partitioning=None).select([each.name for each in columns_in_version(3)])
    pq.write_table(rows.replace_schema_metadata({**pq.read_schema(path).metadata, VERSION_KEY: b"3"}), path)
    (excluded,) = examine_tapes(folder).quarantine.to_dicts()
    assert (excluded["reason"], excluded["row_count"], excluded["is_whole_file"]) == ("missing_value", 1, False)


@pytest.mark.parametrize("flaw", FLAWS)
def test_live_tables_set_aside_the_same_rows(folder: Path, flaw: str) -> None:
    spoil(first_of(folder), lambda rows: set_value(rows, flaw))
    rules, sessions = WatermarkRules(future_s=None), SessionRule(20, 0, 5, 20, 2)
    result = process_micro_batch("c", None, rows_of(folder), batch=0, now_us=0, rules=rules, sessions=sessions)
    excluded = result.tables["excluded_events"].to_dicts()
    assert [(each["reason"], each["event_count"]) for each in excluded] == [(FLAWS[flaw][3], 1)]
    assert result.excluded_rows == 1
    assert result.tables["traffic"]["event_count"].sum() == result.rows - 1 == examine_tapes(folder).rows


def test_spark_source_leaves_out_the_same_rows(folder: Path, tmp_path: Path) -> None:
    """Also if only one column is wanted, and for each flaw."""
    path, original = first_of(folder), first_of(folder).read_bytes()
    files = ReadPlanner(str(folder), None).footers()
    ranges = [RowGroupRange(name, 0, len(footer.row_groups)) for name, footer in files.items()]
    total, schema = sum(footer.rows for footer in files.values()), pa.schema([SCHEMA.field("topic")])
    for flaw, (_, column, _, reason) in FLAWS.items():
        spoil(path, partial(set_value, flaw=flaw))
        reports = tmp_path / flaw.replace(" ", "-")
        read = [*read_row_groups(str(folder), ranges, schema, None, str(reports))]
        assert sum(batch.num_rows for batch in read) == total - 1, (flaw, column)
        (report,) = reports.glob("*.json")
        assert json.loads(report.read_text())["reason"] == reason
        path.write_bytes(original)
    every = read_row_groups(str(folder), ranges, schema, None, None)
    assert sum(batch.num_rows for batch in every) == total


def test_live_counts_do_not_overflow_with_numbers_near_the_maximum(folder: Path) -> None:
    """Reports of missed messages count up to a limit, as in the table `deliveries`."""
    first = pl.col("place") < 3
    forged = {"kind": "missed", "sequence": 1, "last_sequence": INT64_MAX}

    def change(rows: pl.DataFrame) -> pl.DataFrame:
        rows = rows.filter(DELIVERED).with_row_index("place")
        changed = [
            pl.when(first).then(pl.lit(each)).otherwise(pl.col(name)).alias(name) for name, each in forged.items()
        ]
        last = pl.when(pl.col("place") == 3).then(pl.lit(INT64_MAX)).otherwise(pl.col("sequence")).alias("sequence")
        return rows.with_columns(changed).with_columns(last)

    spoil(first_of(folder), change)
    rules, sessions = WatermarkRules(future_s=None), SessionRule(20, 0, 5, 20, 2)
    result = process_micro_batch("c", None, rows_of(folder), batch=0, now_us=0, rules=rules, sessions=sessions)
    assert result.tables["traffic"]["missed_count"].sum() == 3 * MISSED_MAX
    for name, table in result.tables.items():
        for column in table.select(pl.col(pl.Int64)):
            assert (column.drop_nulls() >= 0).all(), (name, column.name)


def test_several_reasons_of_a_file_are_listed_one_by_one(folder: Path) -> None:
    flaws = ["no time", "unknown kind", "negative size", "year 1970", "no time"]

    def change(rows: pl.DataFrame) -> pl.DataFrame:
        for number, flaw in enumerate(flaws):
            rows = set_value(rows, flaw, 100 + 50 * number)
        return rows

    spoil(first_of(folder), change)
    found = {each["reason"]: each["row_count"] for each in examine_tapes(folder).quarantine.to_dicts()}
    assert found == Counter(FLAWS[flaw][3] for flaw in flaws)


def test_file_without_any_valid_row_is_set_aside(folder: Path) -> None:
    spoil(first_of(folder), lambda rows: rows.with_columns(pl.lit(None, rows.schema["event_time"]).alias("event_time")))
    tapes = examine_tapes(folder)
    (excluded,) = tapes.quarantine.to_dicts()
    assert (excluded["reason"], excluded["row_count"]) == ("missing_value", pq.read_metadata(first_of(folder)).num_rows)
    assert "no event_time" in excluded["detail"]
    assert len(tapes.used) == 2


def test_file_with_a_duplicate_column_is_set_aside(folder: Path) -> None:
    path = first_of(folder)
    rows = pq.read_table(path, partitioning=None)
    double = rows.append_column("kind", rows["kind"])
    pq.write_table(double.replace_schema_metadata(pq.read_schema(path).metadata), path)
    tapes = examine_tapes(folder)
    (excluded,) = tapes.quarantine.to_dicts()
    assert (excluded["reason"], excluded["detail"]) == ("duplicate_column", "twice: kind")
    assert len(tapes.used) == 2
    footer = read_footer(str(folder), path.relative_to(folder).as_posix())
    assert isinstance(footer, ExcludedFile)
    assert footer.reason == "duplicate_column"


def test_build_uses_exactly_the_valid_rows(folder: Path, tmp_path: Path, spark: "SparkSession") -> None:
    from broadloom.pipeline.build import build_tables

    def change(rows: pl.DataFrame) -> pl.DataFrame:
        for number, flaw in enumerate(FLAWS):
            rows = set_value(rows, flaw, 10 + 30 * number)
        return rows

    spoil(first_of(folder), change)
    tapes = examine_tapes(folder)
    assert sum(each["row_count"] for each in tapes.quarantine.to_dicts()) == len(FLAWS)
    assert events(spark, tapes).count() == tapes.rows == rows_of(folder).num_rows - len(FLAWS)
    build_tables(folder, tmp_path / "out", spark=spark)
    results = Results(tmp_path / "out")
    assert results.read(table_named("channels"))["event_count"].to_pylist() == [tapes.rows]
    assert results.read(table_named("quarantine")).num_rows == tapes.quarantine.height
    summary = results.read(table_named("audit_summary")).to_pylist()[0]
    assert summary["verdict"] == "held", summary


def test_stream_counts_the_same_rows(folder: Path, tmp_path: Path, spark: "SparkSession") -> None:
    from broadloom.pipeline.live import follow

    def change(rows: pl.DataFrame) -> pl.DataFrame:
        for number, flaw in enumerate(FLAWS):
            rows = set_value(rows, flaw, 10 + 30 * number)
        return rows

    spoil(first_of(folder), change)
    spoil(sorted(folder.rglob("*.parquet"))[1], lambda rows: rows.with_columns(pl.lit(None, TIME).alias("event_time")))
    tapes = examine_tapes(folder)
    follow.follow(folder, tmp_path / "out", once=True, spark=spark, rules=WatermarkRules(future_s=None))
    excluded = follow.read(tmp_path / "out", "excluded_events").to_pylist()
    counts = Counter[str]()
    for each in excluded:
        counts[each["reason"]] += each["event_count"]
    expected = Counter[str]()
    for each in tapes.quarantine.to_dicts():
        expected[each["reason"]] += each["row_count"]
    assert counts == expected
    assert sum(follow.read(tmp_path / "out", "traffic")["event_count"].to_pylist()) == tapes.rows


def test_reader_names_the_file_with_null_values(folder: Path) -> None:
    spoil(first_of(folder), lambda rows: set_value(rows, "no time"))
    with pytest.raises(TapeReadError, match=r"parquet cannot be read: event_time is null in 1 row"):
        read(folder)


def test_set_aside_rows_excuse_only_what_they_may_contain(folder: Path) -> None:
    """Not everything of their run, as a file does whose rows are unknown."""
    path = first_of(folder)
    spoil(path, lambda rows: set_value(rows, "no sequence", 500))
    (excluded,) = examine_tapes(folder).quarantine.to_dicts()
    rows = frame(pq.read_table(path, partitioning=None))
    (place,) = rows.with_row_index().filter(pl.col("sequence").is_null() & DELIVERED)["index"]
    assert excluded["start_time"] == rows["event_time"][place - 1]
    assert excluded["end_time"] == rows["event_time"][place + 1]
