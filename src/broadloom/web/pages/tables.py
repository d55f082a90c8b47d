"""The audit page: the audit summary first, then every table, to browse, filter and download."""

import asyncio
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote, urlencode

from nicegui import ui

from broadloom.testing.checks.settling import Verdict
from broadloom.web.pages.layout import button, empty_state, every, guarded, heading, paragraph, section
from broadloom.web.sources import Sources
from broadloom.web.table_catalog import (
    CONDITIONS,
    AuditSummary,
    CatalogEntry,
    Filter,
    TableCatalog,
    audit_summaries,
    format_cell,
)

ROWS_SHOWN = 100
REFRESH_S = 5.0
OUTCOMES = {
    Verdict.HELD: "✓ held",
    Verdict.BROKEN: "✗ broken",
    Verdict.UNSETTLED: "… unsettled",
    Verdict.UNJUDGED: "– unjudged",
}
CAN_PLOT = find_spec("matplotlib") is not None


def build(sources: Sources) -> None:
    catalog = sources.catalog
    if catalog is None:
        heading("Audit and tables")
        empty_state(
            "No results selected.",
            "Build tables with `broadloom pipeline run --tapes tapes --out results`, "
            "then run `broadloom web --results results`.",
        )
        return
    heading("Audit and tables", f"Results of the pipeline in {catalog.folder}.")
    every(REFRESH_S, Tables(sources, catalog).refresh)


class Tables:
    """Audit summaries, the list of tables, and one open table."""

    def __init__(self, sources: Sources, catalog: TableCatalog) -> None:
        self._sources = sources
        self._catalog = catalog
        self._entries: list[CatalogEntry] = []
        self._summaries: list[AuditSummary] = []
        self._written_at = ""
        self._progress = paragraph("", "bl-progress")
        self._progress.props("role=status")
        self._summary_box = ui.element("div").classes("bl-audits")
        with ui.element("div").classes("bl-tables"):
            with ui.element("nav").props('aria-label="Tables"').classes("bl-catalog"):
                self._list = ui.element("div")
            with ui.element("div") as self._container:
                self._view: TableView | None = None
                self._empty_label = paragraph("", "bl-quiet")

    async def refresh(self) -> None:
        """Show what has been built so far."""
        waiting = self._sources.progress()
        self._progress.set_text(waiting)
        self._progress.set_visibility(bool(waiting))
        entries = await asyncio.to_thread(self._catalog.entries)
        if [each.key for each in entries] != [each.key for each in self._entries]:
            self._entries = entries
            self._list_entries()
        self._empty_label.set_visibility(not entries)
        if not entries:
            self._empty_label.set_text("No tables yet." + ("" if waiting else " Run broadloom pipeline run."))
            self._summary_box.clear()
            self._written_at = ""
            if self._view is not None:
                self._view.container.delete()
                self._view = None
            return
        self._entries = entries
        written_at = await asyncio.to_thread(lambda: self._catalog.written_at)
        is_new = written_at != self._written_at
        if is_new:
            self._written_at = written_at
            self._show_summaries(await asyncio.to_thread(audit_summaries, self._catalog))
        if self._view is None:
            first = next((each for each in entries if each.name == "audit_summary"), entries[0])
            await self._open(first)
        elif is_new or self._view.entry.is_live:
            await self._view.show()

    def _show_summaries(self, summaries: list[AuditSummary]) -> None:
        self._summary_box.clear()
        with self._summary_box:
            for each in summaries:
                with ui.element("div").classes("bl-audit").props(f"data-verdict={each.verdict.value}"):
                    ui.label(OUTCOMES[each.verdict]).classes("bl-outcome")
                    ui.label(each.sentence)
                    if each.remarks:
                        ui.label(each.remarks).classes("bl-quiet bl-small")
                if CAN_PLOT:
                    self._show_plot(each.channel)

    def _show_plot(self, channel: str) -> None:
        """Drawn when it is opened. The address changes with each build, so that the browser asks again."""
        with ui.element("details").classes("bl-plot"):
            with ui.element("summary"):
                ui.label("Charts: fabric, latency, audience, revenue")
            address = f"/data-plots/{quote(channel)}.svg?{urlencode({'built': self._written_at})}"
            ui.element("img").props(f'src="{address}" loading=lazy alt="History of channel {channel} as charts"')

    def _list_entries(self) -> None:
        self._list.clear()
        with self._list:
            for title, is_live in (("Live", True), ("Batch", False)):
                mine = [each for each in self._entries if each.is_live is is_live]
                if mine:
                    with ui.element("h2"):
                        ui.label(title)
                    with ui.element("ul"):
                        for entry in mine:
                            self._render_entry(entry)

    def _render_entry(self, entry: CatalogEntry) -> None:
        with ui.element("li"):
            button = ui.element("button").props(f"type=button data-table={entry.key}").classes("bl-group")
            if self._view is not None and self._view.entry.key == entry.key:
                button.props("aria-current=true")
            with button:
                ui.label(entry.name).classes("bl-guarantee")
                ui.label(entry.question).classes("bl-quiet bl-small")
            button.on("click", guarded(lambda: self._open(entry)))

    async def _open(self, entry: CatalogEntry) -> None:
        if self._view is not None:
            self._view.container.delete()
        with self._container:
            self._view = TableView(self._catalog, entry)
        self._list_entries()
        await self._view.show()


class TableView:
    """One table: question, filter, a page of rows, downloads."""

    def __init__(self, catalog: TableCatalog, entry: CatalogEntry) -> None:
        self._catalog = catalog
        self.entry = entry
        self._first = 0
        with section(entry.name) as self.container:
            paragraph(entry.question or "Install the extra “pipeline” to see descriptions.", "bl-question")
            with ui.element("div").classes("bl-do"):
                columns = {"": "All rows", **{name: name for name in catalog.schema(entry).names}}
                self._column = ui.select(columns, value="", label="Filter by").props("outlined dense options-dense")
                self._condition = ui.select(CONDITIONS, value="is", label="Condition").props(
                    "outlined dense options-dense"
                )
                self._value = ui.input("Value").props("outlined dense").on("keydown.enter", guarded(self._restart))
                button("Filter", self._restart, "filter")
                self._csv = self._link("CSV")
                self._parquet = self._link("Parquet")
            self._count = paragraph("", "bl-quiet bl-small")
            self._rows = ui.element("div").classes("bl-rows")
            with ui.element("div").classes("bl-do"):
                self._previous = button("Previous", lambda: self._move_page(-ROWS_SHOWN), "previous")
                self._next = button("Next", lambda: self._move_page(ROWS_SHOWN), "next")
            self._render_columns()

    def _link(self, kind: str) -> ui.element:
        link = ui.element("a").classes("bl-download").props(f'download aria-label="Download as {kind}"')
        with link:
            ui.label(f"Download {kind}")
        return link

    def _render_columns(self) -> None:
        if self.entry.about:
            with ui.element("details").classes("bl-meanings"):
                with ui.element("summary"):
                    ui.label("Columns")
                with ui.element("dl"):
                    for name, about in self.entry.about.items():
                        with ui.element("dt").classes("bl-code"):
                            ui.label(name)
                        with ui.element("dd"):
                            ui.label(about)

    @property
    def _chosen(self) -> Filter:
        return Filter(str(self._column.value or ""), str(self._condition.value), str(self._value.value or ""))

    async def _restart(self) -> None:
        self._first = 0
        await self.show()

    async def _move_page(self, by: int) -> None:
        self._first = max(0, self._first + by)
        await self.show()

    async def show(self) -> None:
        chosen = self._chosen
        params = (
            {"column": chosen.column, "condition": chosen.condition, "value": chosen.value} if chosen.column else {}
        )
        for link, kind in ((self._csv, "csv"), (self._parquet, "parquet")):
            link.props["href"] = f"/data-tables/{self.entry.key}.{kind}?{urlencode(params)}"
            link.update()
        count = await asyncio.to_thread(self._catalog.count, self.entry, chosen)
        self._first = min(self._first, max(0, (count - 1) // ROWS_SHOWN * ROWS_SHOWN))
        table = await asyncio.to_thread(self._catalog.page, self.entry, chosen, self._first, ROWS_SHOWN)
        last = self._first + table.num_rows
        self._count.set_text(f"Rows {self._first + 1:,} to {last:,} of {count:,}." if count else "No rows.")
        self._previous.set_visibility(self._first > 0)
        self._next.set_visibility(last < count)
        self._rows.clear()
        with self._rows:
            _grid(table.column_names, table.to_pylist(), self.entry)


def _grid(names: list[str], rows: list[dict[str, Any]], entry: CatalogEntry) -> None:
    columns = [
        {
            "name": name,
            "label": name,
            "field": name,
            "align": "left",
            "sortable": True,
            "title": entry.about.get(name, ""),
        }
        for name in names
    ]
    cells = [{"_row": number} | {name: format_cell(row[name]) for name in names} for number, row in enumerate(rows)]
    table = ui.table(columns=columns, rows=cells, row_key="_row", pagination=0)
    table.props(f'dense flat hide-bottom aria-label="Rows of {entry.name}" :rows-per-page-options=[0]')
