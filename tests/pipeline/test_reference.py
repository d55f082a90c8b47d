"""What the documents say of the tables is what the code says."""

from pathlib import Path

from broadloom.pipeline.quarantine import QuarantineReason
from broadloom.pipeline.reference import page
from broadloom.pipeline.spark_source.options import OPTION_HELP
from broadloom.pipeline.synthetic.fault_injection import FaultKind
from broadloom.pipeline.tables import all_tables

DOCS = Path(__file__).parents[2] / "docs"


def test_tables_page_matches_code() -> None:
    told = (DOCS / "tables.md").read_text()
    assert told == page(), "make it anew: .venv/bin/python -m broadloom.pipeline.reference > docs/tables.md"


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
