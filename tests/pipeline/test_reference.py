"""What the documents say of the tables is what the code says."""

from pathlib import Path

from broadloom.pipeline import contracts
from broadloom.pipeline.quarantine import QuarantineReason
from broadloom.pipeline.spark_source.options import OPTION_HELP
from broadloom.pipeline.tables import all_tables
from broadloom.record.arrow_import import pq
from tests.pipeline.building import build_in_memory
from tests.pipeline.growing import Clock, RecordedPeers, on_tape
from tools.synthetic.fault_injection import FaultKind
from tools.table_reference import page

DOCS = Path(__file__).parents[2] / "docs"


def test_tables_page_matches_code() -> None:
    told = (DOCS / "tables.md").read_text()
    assert told == page(), "make it anew: .venv/bin/python -m tools.table_reference > docs/tables.md"


def test_published_contracts_match_code() -> None:
    told = (DOCS / "contracts.json").read_text()
    assert told == contracts.contracts_json(), "run: broadloom pipeline contracts > docs/contracts.json"


def test_contracts_match_files_on_disk(tmp_path: Path) -> None:
    """The schema of a tape and of every table on disk, column by column."""
    with RecordedPeers(tmp_path, Clock(), peers=(1, 2)) as peers:
        peers.join()
    published = contracts.contracts()
    tape = [(each["name"], each["type"]) for each in published["tape"]["columns"]]
    (path,) = tmp_path.rglob("*.parquet")
    written = pq.read_schema(path)
    assert [(each.name, str(each.type)) for each in written] == tape[: len(written)]
    nullable = {each["name"]: not each["is_required"] for each in published["tape"]["columns"]}
    assert all(each.nullable == nullable[each.name] for each in written)
    built = build_in_memory(on_tape(tmp_path), *published["tables"])
    for name, frame in built.items():
        assert frame.columns == [each["name"] for each in published["tables"][name]["columns"]]


def test_every_column_and_setting_is_documented() -> None:
    told = {
        **{(table.name, each.name): each.about for table in all_tables() for each in table.columns},
        **{("settings", each.name): each.about for table in all_tables() for each in table.settings},
    }
    assert [name for name, about in told.items() if not about.endswith(".") or len(about) < 10] == []


def test_tables_come_after_their_dependencies() -> None:
    names = [table.name for table in all_tables()]
    assert len(set(names)) == len(names)
    for place, table in enumerate(all_tables()):
        assert set(table.depends_on) <= set(names[:place])


def test_pipeline_page_lists_options_findings_and_tables() -> None:
    told = (DOCS / "pipeline.md").read_text()
    assert [name for name, about in OPTION_HELP.items() if f"| `{name}` | {about} |" not in told] == []
    assert [each.finding for each in FaultKind if f"`{each.finding}`" not in told] == []
    assert [each.value for each in QuarantineReason if f"`{each.value}`" not in told] == []
    assert [table.name for table in all_tables() if f"`{table.name}`" not in told] == []
