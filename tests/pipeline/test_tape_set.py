"""What is bad is set excluded with its reason; the rest goes on; and nothing is lost between the two."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from broadloom.pipeline.quarantine import QUARANTINE_COLUMNS, QuarantineReason
from broadloom.pipeline.spark_source.parquet_files import ExcludedFile, read_footer
from broadloom.pipeline.tape_set import TapeSet, TapesNotFoundError, _examine_with_spark, events, examine_tapes
from broadloom.record import SCHEMA, SCHEMA_VERSION, read, spark_ddl
from broadloom.record.arrow_import import pa, pq
from broadloom.record.reader import TapeReadError
from broadloom.record.schema import VERSION_KEY
from tools.synthetic.generate import BEGIN, SyntheticConfig, generate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAN = SyntheticConfig(rows=3_000, peers=12, arrivals=0, leaves=1, crashes=1, machines=3, seconds=60)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    generate(folder, PLAN)
    return folder


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    shutil.copytree(good, tmp_path / "tapes")
    return tmp_path / "tapes"


def first_of(folder: Path) -> Path:
    return sorted(folder.rglob("*.parquet"))[0]


def rewritten(path: Path, table: pa.Table, **metadata: str) -> None:
    kept = {
        **(pq.read_schema(path).metadata or {}),
        **{key.replace("_", ".").encode(): value for key, value in metadata.items()},
    }
    pq.write_table(table.replace_schema_metadata(kept), path)


def reasons(tapes: TapeSet) -> list[str]:
    return [each["reason"] for each in tapes.quarantine.to_dicts()]


def test_valid_tapes_are_used_completely(good: Path) -> None:
    tapes = examine_tapes(good)
    assert tapes.quarantine.height == 0
    assert tapes.rows == read(good).num_rows
    assert len(tapes.used) == 3


def test_truncated_file_is_quarantined(folder: Path) -> None:
    path = first_of(folder)
    path.write_bytes(path.read_bytes()[:-100])
    tapes = examine_tapes(folder)
    (excluded,) = tapes.quarantine.to_dicts()
    assert excluded["reason"] == "unreadable"
    assert excluded["file_path"] == path.relative_to(folder).as_posix()
    assert excluded["row_count"] is None
    assert excluded["run_id"] == path.name.rpartition("-")[0]
    assert excluded["leaves_gap"]
    assert len(tapes.used) == 2


def test_corrupted_page_is_quarantined(folder: Path) -> None:
    path = first_of(folder)
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(bytes(data))
    assert reasons(examine_tapes(folder)) == ["unreadable"]


def test_foreign_files_are_quarantined(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    pq.write_table(pa.table({"x": [1]}), first_of(folder).with_name("other.parquet"))
    tapes = examine_tapes(folder)
    assert reasons(tapes) == ["not_a_tape", "not_a_tape"]
    assert not any(tapes.quarantine["leaves_gap"].to_list())
    assert len(tapes.used) == 3


def test_missing_column_and_wrong_type_are_quarantined(folder: Path) -> None:
    one, other, _ = sorted(folder.rglob("*.parquet"))
    rows = pq.read_table(one, partitioning=None)
    rewritten(one, rows.drop_columns(["hops", "topic"]))
    rows = pq.read_table(other, partitioning=None)
    place = rows.column_names.index("sequence")
    rewritten(other, rows.set_column(place, "sequence", rows["sequence"].cast(pa.string())))
    found = {each["reason"]: each for each in examine_tapes(folder).quarantine.to_dicts()}
    assert found["missing_column"]["detail"] == "missing hops, topic"
    assert found["missing_column"]["row_count"] == pq.read_metadata(one).num_rows
    assert found["wrong_type"]["detail"] == "sequence is string, not int64"


def test_newer_schema_version_is_quarantined(folder: Path) -> None:
    path = first_of(folder)
    later = str(SCHEMA_VERSION + 1)
    rewritten(path, pq.read_table(path, partitioning=None), broadloom_schema=later)
    assert pq.read_schema(path).metadata[VERSION_KEY] == later.encode()
    (excluded,) = examine_tapes(folder).quarantine.to_dicts()
    assert (excluded["reason"], excluded["detail"]) == (
        "newer_version",
        f"schema version {later}; this version of Broadloom supports {SCHEMA_VERSION}",
    )


def test_tape_of_schema_version_2_is_quarantined(folder: Path) -> None:
    path = first_of(folder)
    rows = pq.read_table(path, partitioning=None)
    rewritten(path, rows.rename_columns({"run_id": "run", "event_time": "time"}), broadloom_schema="2")
    (excluded,) = examine_tapes(folder).quarantine.to_dicts()
    assert (excluded["reason"], excluded["detail"]) == ("missing_column", "missing run_id, event_time")
    footer = read_footer(str(folder), path.relative_to(folder).as_posix())
    assert isinstance(footer, ExcludedFile)
    assert footer.reason == "missing_column"
    with pytest.raises(TapeReadError, match="schema version 2"):
        read(folder)


def test_copied_file_is_quarantined_as_duplicate(folder: Path) -> None:
    path = first_of(folder)
    before = examine_tapes(folder).rows
    shutil.copy(path, path.with_name("copy of it.parquet"))
    tapes = examine_tapes(folder)
    assert reasons(tapes) == ["duplicate"]
    assert tapes.rows == before
    assert not tapes.quarantine["leaves_gap"][0]


def test_overlapping_file_is_quarantined(folder: Path) -> None:
    """As if files had been merged and the old ones kept."""
    path = first_of(folder)
    rows = pq.read_table(path, partitioning=None)
    part = path.with_name(path.name.replace("-000001", "-000002"))
    shutil.copy(path, part)
    rewritten(part, rows.slice(10, 20))
    tapes = examine_tapes(folder)
    (excluded,) = tapes.quarantine.to_dicts()
    assert (excluded["reason"], excluded["row_count"], excluded["file_path"].rpartition("/")[2]) == (
        "duplicate",
        20,
        part.name,
    )
    rewritten(path, rows.slice(0, 25))
    rewritten(part, rows.slice(20))
    (excluded,) = examine_tapes(folder).quarantine.to_dicts()
    assert (excluded["reason"], excluded["row_count"], excluded["leaves_gap"]) == ("overlap", 25, True)


def test_file_in_wrong_directory_is_quarantined(folder: Path) -> None:
    path = first_of(folder)
    other_day = folder / path.parent.parent.name / "event_date=2026-01-06"
    other_day.mkdir()
    shutil.move(path, other_day / path.name)
    second = first_of(folder / path.parent.parent.name / "event_date=2026-01-05")
    elsewhere = folder / "channel=0000000000000000" / "event_date=2026-01-05"
    elsewhere.mkdir(parents=True)
    shutil.move(second, elsewhere / second.name)
    shutil.copy(first_of(folder / path.parent.parent.name / "event_date=2026-01-05"), folder / "loose.parquet")
    tapes = examine_tapes(folder)
    assert reasons(tapes) == ["wrong_directory"] * 3
    details = " ".join(tapes.quarantine["detail"].to_list())
    assert "rows from 2026-01-05" in details
    assert "it belongs to channel" in details
    assert len(tapes.used) == 1


def test_future_rows_are_excluded(folder: Path, spark: "SparkSession") -> None:
    rows = read(folder, columns=["event_time"])["event_time"].to_pylist()
    now = BEGIN + timedelta(seconds=30)
    later = sum(each > now + timedelta(seconds=5) for each in rows)
    assert later > 100
    tapes = examine_tapes(folder, now=now, future_tolerance_s=5)
    assert set(reasons(tapes)) == {"future_time"}
    assert sum(tapes.quarantine["row_count"].to_list()) == later
    assert tapes.rows == len(rows) - later == events(spark, tapes).count()


def test_hidden_files_are_ignored(folder: Path) -> None:
    path = first_of(folder)
    path.rename(path.with_name("." + path.name))
    (path.parent / "_SUCCESS").write_text("")
    tapes = examine_tapes(folder)
    assert len(tapes.files) == 2
    assert tapes.quarantine.height == 0


def test_missing_tapes_raise_error(tmp_path: Path) -> None:
    with pytest.raises(TapesNotFoundError, match="no directory"):
        examine_tapes(tmp_path / "nowhere")
    with pytest.raises(TapesNotFoundError, match="no tapes"):
        examine_tapes(tmp_path)


def test_every_quarantine_reason_is_documented() -> None:
    about = next(each.about for each in QUARANTINE_COLUMNS if each.name == "reason")
    assert all(each.value in about for each in QuarantineReason)


def test_spark_reads_exactly_the_valid_files(folder: Path, spark: "SparkSession") -> None:
    path = first_of(folder)
    path.write_bytes(b"PAR1")
    tapes = examine_tapes(folder)
    frame = events(spark, tapes)
    assert frame.columns == [*SCHEMA.names, "channel", "event_date"]
    path.unlink()
    wanted = read(folder).sort_by([("run_id", "ascending"), ("ordinal", "ascending")])
    got = frame.orderBy("run_id", "ordinal").toArrow()
    for name in wanted.column_names:
        assert got[name].to_pylist() == wanted[name].to_pylist(), name


def test_folder_names_may_have_special_characters(good: Path, tmp_path: Path, spark: "SparkSession") -> None:
    place = tmp_path / "a {b,c} [d]* % 100"
    shutil.copytree(good, place)
    assert events(spark, examine_tapes(place)).count() == read(good).num_rows


def test_only_invalid_files_give_empty_dataframe(tmp_path: Path, spark: "SparkSession") -> None:
    (tmp_path / "x.txt").write_text("")
    frame = events(spark, examine_tapes(tmp_path))
    assert frame.count() == 0
    assert frame.schema == spark.createDataFrame([], spark_ddl()).schema


def test_spark_examination_matches_local_examination(folder: Path, spark: "SparkSession") -> None:
    path = first_of(folder)
    path.write_bytes(path.read_bytes()[:-100])
    now = datetime.now(UTC)
    tapes = examine_tapes(folder, now=now)
    paths = [each.path for each in tapes.files]
    assert _examine_with_spark(spark.sparkContext, str(folder), paths, tapes.latest) == list(tapes.files)
