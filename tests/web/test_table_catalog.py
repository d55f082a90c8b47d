"""Tables, read, filtered and taken along without Spark."""

import csv
import io
from pathlib import Path

import pytest

from broadloom.pipeline.tables import all_tables
from broadloom.record.arrow_import import pa, pq
from broadloom.testing.checks.settling import Verdict
from broadloom.web.api import as_csv, as_parquet
from broadloom.web.table_catalog import FINDINGS, Filter, FilterError, TableCatalog, TableNotFoundError, audit_summaries
from tests.web.sample_data import make_live_tables, make_tables

MISSING = 30


@pytest.fixture
def catalog(tmp_path: Path) -> TableCatalog:
    make_tables(tmp_path, missing=MISSING)
    make_live_tables(tmp_path, 42)
    return TableCatalog(tmp_path)


def test_catalog_lists_tables_with_their_questions(catalog: TableCatalog) -> None:
    books = catalog.entries()
    assert [each.key for each in books][:2] == ["audit_summary", "audit_findings"]
    assert books[0].question == "Did every guarantee hold?"
    assert books[0].about["due_count"]
    assert next(each.name for each in books if each.is_live) == "traffic"
    assert catalog.page(catalog.entry("live-traffic"), Filter(), 0, 5).to_pylist()[0]["sent_count"] == 42
    with pytest.raises(TableNotFoundError, match="broadloom pipeline run"):
        catalog.entry("never")


def test_empty_directory_has_no_tables(tmp_path: Path) -> None:
    assert TableCatalog(tmp_path / "nowhere").entries() == []
    assert audit_summaries(TableCatalog(tmp_path / "nowhere")) == []


@pytest.mark.parametrize(
    ("chosen", "count"),
    [
        (Filter(), MISSING),
        (Filter("sequence", "is", "50"), 1),
        (Filter("sequence", "not", "50"), MISSING - 1),
        (Filter("sequence", "least", "100"), MISSING - 9),
        (Filter("sequence", "most", "100"), 10),
        (Filter("is_violation", "is", "true"), MISSING),
        (Filter("event_time", "most", "2027-01-15T12:00:00+00:00"), MISSING),
        (Filter("event_time", "least", "2027-01-16T00:00:00+00:00"), 0),
        (Filter("detail", "has", "QUOTED"), MISSING),
        (Filter("author", "has", "1f"), 0),
    ],
)
def test_filters_select_rows(catalog: TableCatalog, chosen: Filter, count: int) -> None:
    assert catalog.count(catalog.entry("audit_findings"), chosen) == count
    assert catalog.page(catalog.entry("audit_findings"), chosen, 0, 1000).num_rows == count


def test_invalid_filter_names_the_allowed_values(catalog: TableCatalog) -> None:
    book = catalog.entry("audit_findings")
    with pytest.raises(FilterError, match="there is no column 'nothing'"):
        catalog.count(book, Filter("nothing", "is", "1"))
    with pytest.raises(FilterError, match="a value of type int64"):
        catalog.count(book, Filter("sequence", "is", "soon"))
    with pytest.raises(FilterError, match="true or false"):
        catalog.count(book, Filter("is_violation", "is", "perhaps"))


def test_pages_of_rows_are_consecutive(catalog: TableCatalog) -> None:
    book = catalog.entry("audit_findings")
    pages = [catalog.page(book, Filter(), first, 12) for first in (0, 12, 24)]
    assert [each.num_rows for each in pages] == [12, 12, 6]
    assert sorted(pa.concat_tables(pages)["sequence"].to_pylist()) == [10 * n for n in range(1, MISSING + 1)]


def test_download_contains_every_row(catalog: TableCatalog, tmp_path: Path) -> None:
    book, chosen = catalog.entry("audit_findings"), Filter("sequence", "most", "50")
    rows = list(csv.DictReader(io.StringIO(b"".join(as_csv(catalog, book, chosen)).decode())))
    assert [row["sequence"] for row in rows] == ["10", "20", "30", "40", "50"]
    assert rows[0]["detail"] == '=a "quoted" detail, <b>of</b> others'
    (tmp_path / "taken.parquet").write_bytes(b"".join(as_parquet(catalog, book, chosen)))
    assert pq.read_table(tmp_path / "taken.parquet")["sequence"].to_pylist() == [10, 20, 30, 40, 50]


def test_audit_summary_is_one_sentence(catalog: TableCatalog, tmp_path: Path) -> None:
    [summary] = audit_summaries(catalog)
    assert summary.verdict is Verdict.BROKEN
    assert "46,597 deliveries of 259 messages were due to 200 peers: 30 missing." in summary.sentence
    [clean] = audit_summaries(TableCatalog(make_tables(tmp_path / "clean")))
    assert clean.verdict is Verdict.HELD
    assert "all of them were made" in clean.sentence


def test_unsettled_audit_says_what_it_waits_for_and_since_when(tmp_path: Path) -> None:
    waits_for = "1,631 deliveries wait for the merge of 2 components, repairing for 4 min 29 s"
    [summary] = audit_summaries(TableCatalog(make_tables(tmp_path, waits_for=waits_for)))
    assert summary.verdict is Verdict.UNSETTLED
    assert summary.sentence.endswith(f"At 12:00:00, {waits_for}.")


def test_unjudged_audit_says_that_nothing_was_verified(tmp_path: Path) -> None:
    [summary] = audit_summaries(TableCatalog(make_tables(tmp_path, due=0)))
    assert summary.verdict is Verdict.UNJUDGED
    assert summary.sentence == "No delivery of 259 messages was due, so nothing was verified."


def test_every_audit_finding_is_mentioned() -> None:
    columns = next(each for each in all_tables() if each.name == "audit_summary").columns
    from broadloom.pipeline.tables.audit_findings import FINDINGS as KNOWN

    assert set(FINDINGS) == set(KNOWN)
    assert {f"{name}_count" for name in FINDINGS} <= {each.name for each in columns}
