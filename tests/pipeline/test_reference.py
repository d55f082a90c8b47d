"""What the documents say of the tables is what the code says."""

from pathlib import Path

from weft.pipeline.made.faults import Fault
from weft.pipeline.quarantine import Reason
from weft.pipeline.reference import page
from weft.pipeline.source.options import ABOUT
from weft.pipeline.tables import all_tables

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_tables_is_that_of_the_code() -> None:
    told = (DOCS / "tables.md").read_text()
    assert told == page(), "make it anew: .venv/bin/python -m weft.pipeline.reference > docs/tables.md"


def test_every_column_and_setting_says_what_it_means() -> None:
    told = {
        **{(table.name, each.name): each.about for table in all_tables() for each in table.columns},
        **{("settings", each.name): each.about for table in all_tables() for each in table.settings},
    }
    assert [name for name, about in told.items() if not about.endswith(".") or len(about) < 10] == []


def test_a_table_comes_after_those_that_it_needs() -> None:
    names = [table.name for table in all_tables()]
    assert len(set(names)) == len(names)
    for place, table in enumerate(all_tables()):
        assert set(table.needs) <= set(names[:place])


def test_every_option_and_finding_is_on_the_page() -> None:
    told = (DOCS / "pipeline.md").read_text()
    assert [name for name, about in ABOUT.items() if f"| `{name}` | {about} |" not in told] == []
    assert [each.value for each in Fault if f"`{each.value}`" not in told] == []
    assert [each.value for each in Reason if f"`{each.value}`" not in told] == []
    assert [table.name for table in all_tables() if f"`{table.name}`" not in told] == []
