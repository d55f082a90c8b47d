"""Builds with real Spark: the audit, incremental builds, and crashes."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from broadloom.pipeline import build
from broadloom.pipeline.engine import distributed, parts
from broadloom.pipeline.results import Results, ResultsLockedError, ResultsNotFoundError
from broadloom.pipeline.table import TableSettingError, resolve_settings
from broadloom.pipeline.tables import TableNotFoundError, all_tables, table, with_dependencies
from broadloom.pipeline.tape_set import TapesNotFoundError
from broadloom.record import read
from broadloom.record.arrow_import import pq
from tests.pipeline.comparing import differing_tables
from tests.pipeline.without_spark import frame
from tools.synthetic.fault_injection import FaultKind, InjectedFault, inject
from tools.synthetic.generate import SyntheticConfig, generate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = SyntheticConfig(rows=20_000, peers=30, arrivals=4, leaves=3, crashes=3, machines=3, seconds=120, channels=2)


class BuiltTables(NamedTuple):
    tapes: Path
    out: Path
    injected: list[InjectedFault]
    result: build.BuildResult


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, spark: "SparkSession") -> BuiltTables:
    """Two channels with all faults distributed over them, and a file that is not a tape."""
    folder = tmp_path_factory.mktemp("job")
    generate(folder / "synthetic", CONFIG)
    injected = inject(folder / "synthetic", folder / "tapes", [*FaultKind, *FaultKind], seed=3)
    (folder / "tapes" / "notes.txt").write_text("mine")
    outcome = build.build_tables(folder / "tapes", folder / "out", only=["audit_summary"], spark=spark)
    return BuiltTables(folder / "tapes", folder / "out", injected, outcome)


def test_spark_audit_finds_exactly_the_injected_faults(ran: BuiltTables) -> None:
    found = frame(Results(ran.out).read(table("audit_findings")))
    wanted = {(each.finding, each.channel, each.author, each.sequence, each.receiver) for each in ran.injected}
    assert set(found.select("finding", "channel", "author", "sequence", "receiver").iter_rows()) == wanted
    reports = {
        finding for finding, is_violation in found.select("finding", "is_violation").iter_rows() if not is_violation
    }
    assert reports == {"reported_missed"}


def test_audit_summary_counts_findings(ran: BuiltTables) -> None:
    results = Results(ran.out)
    summaries = frame(results.read(table("audit_summary")))
    assert summaries.height == CONFIG.channels
    for row in summaries.iter_rows(named=True):
        mine = [each for each in ran.injected if each.channel == row["channel"]]
        for fault in FaultKind:
            assert row[f"{fault.finding}_count"] == sum(each.finding == fault.finding for each in mine), fault
        is_held = all(each.finding == FaultKind.REPORTED_MISSED.value for each in mine)
        assert row["verdict"] == ("held" if is_held else "broken")
        assert row["due_count"] > 1000
        assert row["peer_count"] == CONFIG.peers + CONFIG.arrivals
    assert summaries["message_count"].sum() == results.manifest().tables["messages"].rows


@pytest.fixture(scope="module")
def whole(ran: BuiltTables, spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All tables, built by one task."""
    out = tmp_path_factory.mktemp("whole")
    build.build_tables(ran.tapes, out, spark=spark)
    return out


@pytest.mark.parametrize("rows", [1_000, pytest.param(7_000, marks=pytest.mark.long), 50_000])
def test_distributed_stages_give_the_same_rows_as_one_task(
    rows: int, ran: BuiltTables, whole: Path, tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts cut by receiver, alone, and combined."""
    monkeypatch.setattr(build, "WHOLE_ROWS", 0)
    monkeypatch.setattr(parts, "PART_ROWS", rows)
    monkeypatch.setattr(parts, "PART_ROWS_MAX", 2 * rows)
    monkeypatch.setattr(distributed, "PART_ROWS", rows)
    build.build_tables(ran.tapes, tmp_path, spark=spark)
    assert differing_tables(whole, tmp_path) == []
    file_count = len(Results(tmp_path).files("deliveries"))
    assert (file_count > 2 * CONFIG.machines * CONFIG.channels) == (rows == 1_000)


def test_tables_have_exactly_their_columns(ran: BuiltTables) -> None:
    results = Results(ran.out)
    for name in results.manifest().tables:
        described = table(name)
        for path in results.files(name):
            assert pq.read_schema(path).names == described.schema.names, name


def test_manifest_describes_the_build(ran: BuiltTables) -> None:
    manifest = Results(ran.out).manifest()
    assert manifest.tapes["rows"] == read(ran.tapes).num_rows
    assert manifest.tapes["quarantined"] == 1
    assert manifest.tables["quarantine"].rows == 1
    assert set(manifest.tables) == {each.name for each in with_dependencies(["audit_summary"])} == set(ran.result.built)
    assert manifest.seconds["total"] >= manifest.seconds["tables"] > 0


def test_unchanged_tables_are_reused_without_spark(ran: BuiltTables) -> None:
    """No Spark session is started."""
    before = {path: path.stat().st_mtime_ns for path in ran.out.rglob("*.parquet")}
    again = build.build_tables(ran.tapes, ran.out, only=["audit_summary"])
    assert again.built == []
    assert set(again.reused) == set(ran.result.built)
    assert {path: path.stat().st_mtime_ns for path in ran.out.rglob("*.parquet")} == before


def test_fingerprint_depends_on_tapes_settings_and_code(ran: BuiltTables, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = with_dependencies(["audit_summary"])
    files = [("one", 1, 1)]
    settings = {"settle_s": 10.0, "clock_tolerance_s": 0.5, "degree": 0}
    before = build.fingerprints(tables, files, settings)
    assert build.fingerprints(tables, files, settings) == before
    assert not set(build.fingerprints(tables, [("one", 1, 2)], settings).values()) & set(before.values())
    other = build.fingerprints(tables, files, {**settings, "clock_tolerance_s": 1.0})
    assert {name for name in before if before[name] != other[name]} == {
        "delivery_balances",
        "audit_findings",
        "audit_summary",
    }
    monkeypatch.setattr(build, "code_version", lambda: "another")
    assert not set(build.fingerprints(tables, files, settings).values()) & set(before.values())


def test_file_setting_is_fingerprinted_by_content(tmp_path: Path) -> None:
    path = tmp_path / "plans.toml"
    path.write_text("one")
    before = build._setting_identity(str(path))
    path.write_text("two")
    assert build._setting_identity(str(path)) != before


def test_crashed_build_keeps_previous_results(ran: BuiltTables, tmp_path: Path, spark: "SparkSession") -> None:
    out = tmp_path / "out"
    shutil.copytree(ran.out, out)
    before = Results(out).manifest()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "code_version", lambda: "another")
        patch.setattr(build, "_whole_task", _broken_task)
        with pytest.raises(build.BuildError, match=r"the tables could not be built: .*the disk is gone"):
            build.build_tables(ran.tapes, out, only=["messages"], spark=spark)
    assert Results(out).manifest() == before
    assert Results(out).read(table("messages")).num_rows == before.tables["messages"].rows
    assert not list(out.glob(".building-*"))


def _broken_task(_job: object, _files: object) -> None:
    raise OSError("the disk is gone")


def test_files_of_failed_attempts_are_not_read(ran: BuiltTables, tmp_path: Path) -> None:
    """The manifest lists the files that tasks returned."""
    out = tmp_path / "out"
    shutil.copytree(ran.out, out)
    path = Results(out).files("audit_summary")[0]
    shutil.copy(path, path.with_name("part-00000-99.parquet"))
    assert Results(out).read(table("audit_summary")).num_rows == CONFIG.channels


def test_second_transaction_raises_locked_error(tmp_path: Path) -> None:
    with (
        Results(tmp_path).transaction(),
        pytest.raises(ResultsLockedError, match="another process is writing"),
        Results(tmp_path).transaction(),
    ):
        pass


def test_invalid_arguments_raise_before_spark_starts(ran: BuiltTables, tmp_path: Path) -> None:
    with pytest.raises(TapesNotFoundError):
        build.build_tables(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(TableNotFoundError, match="unknown table 'nonsense'; tables: quarantine, messages"):
        build.build_tables(ran.tapes, tmp_path / "out", only=["nonsense"])
    with pytest.raises(TableSettingError, match="unknown setting 'nonsense'"):
        build.build_tables(ran.tapes, tmp_path / "out", settings={"nonsense": "1"})
    for value in ("-1", "0", "0.5", "nan", "inf"):
        with pytest.raises(TableSettingError, match=f"settle_s must be a number, at least 1, not '{value}'"):
            resolve_settings(all_tables(), {"settle_s": value})
    with pytest.raises(TableSettingError, match="settle_s must be a number, not 'soon'"):
        build.build_tables(ran.tapes, tmp_path / "out", settings={"settle_s": "soon"})
    with pytest.raises(ResultsNotFoundError, match="no table 'messages'"):
        Results(tmp_path / "out").files("messages")
    assert not (tmp_path / "out").exists()


def test_registry_is_in_dependency_order() -> None:
    known: set[str] = set()
    for each in all_tables():
        assert set(each.depends_on) <= known, each.name
        known.add(each.name)
        assert each.question.endswith("?")
        assert all(column.about.endswith(".") for column in each.columns), each.name
