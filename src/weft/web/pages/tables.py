"""What the pipeline found: the verdict first, then every table, to browse, to filter and to take along."""

import asyncio
from typing import Any
from urllib.parse import urlencode

from nicegui import ui

from weft.web.pages.frame import button, every, guarded, heading, nothing_here, say, section
from weft.web.shelf import CONDITIONS, Book, Filter, Shelf, shown
from weft.web.sources import Sources
from weft.web.verdicts import Verdict, verdicts

ROWS_SHOWN = 100
LOOK_S = 5.0


def build(sources: Sources) -> None:
    shelf = sources.shelf
    if shelf is None:
        heading("Audit and tables")
        nothing_here(
            "No tables were given.",
            "Make some with `weft pipeline run --tapes tapes --out results`, then: `weft web --tables results`.",
        )
        return
    heading("Audit and tables", f"What the pipeline found in the tapes. The tables lie in {shelf.folder}.")
    every(LOOK_S, Tables(sources, shelf).look)


class Tables:
    """One page: verdict, list of tables, one table."""

    def __init__(self, sources: Sources, shelf: Shelf) -> None:
        self._sources = sources
        self._shelf = shelf
        self._books: list[Book] = []
        self._told: list[Verdict] = []
        self._written = ""
        self._progress = say("", "w-progress")
        self._progress.props("role=status")
        self._verdict = ui.element("div").classes("w-verdicts")
        with ui.element("div").classes("w-tables"):
            with ui.element("nav").props('aria-label="Tables"').classes("w-books"):
                self._list = ui.element("div")
            with ui.element("div") as self._place:
                self._view: TableView | None = None
                self._nothing = say("", "w-quiet")

    async def look(self) -> None:
        """Whatever is there by now."""
        waiting = self._sources.progress()
        self._progress.set_text(waiting)
        self._progress.set_visibility(bool(waiting))
        books = await asyncio.to_thread(self._shelf.books)
        if [each.key for each in books] != [each.key for each in self._books]:
            self._books = books
            self._list_books()
        if not books:
            self._nothing.set_text("There are no tables yet." + ("" if waiting else " Run: weft pipeline run"))
            return
        self._nothing.set_visibility(False)
        self._books = books
        written = await asyncio.to_thread(lambda: self._shelf.written)
        is_new = written != self._written
        if is_new:
            self._written = written
            self._tell(await asyncio.to_thread(verdicts, self._shelf))
        if self._view is None:
            first = next((each for each in books if each.name == "verdict"), books[0])
            await self._open(first)
        elif is_new or self._view.book.is_live:
            await self._view.show()

    def _tell(self, told: list[Verdict]) -> None:
        self._verdict.clear()
        with self._verdict:
            for each in told:
                with ui.element("div").classes("w-verdict").props(f"data-clean={str(each.is_clean).lower()}"):
                    ui.label("✓ Every promise held" if each.is_clean else "✗ A promise was broken").classes("w-judged")
                    ui.label(each.sentence)
                    if each.remarks:
                        ui.label(each.remarks).classes("w-quiet w-small")

    def _list_books(self) -> None:
        self._list.clear()
        with self._list:
            for title, is_live in (("Live, while it goes on", True), ("Of the whole tape", False)):
                mine = [each for each in self._books if each.is_live is is_live]
                if mine:
                    with ui.element("h2"):
                        ui.label(title)
                    with ui.element("ul"):
                        for book in mine:
                            self._entry(book)

    def _entry(self, book: Book) -> None:
        with ui.element("li"):
            entry = ui.element("button").props(f"type=button data-table={book.key}").classes("w-group")
            if self._view is not None and self._view.book.key == book.key:
                entry.props("aria-current=true")
            with entry:
                ui.label(book.name).classes("w-promise")
                ui.label(book.question).classes("w-quiet w-small")
            entry.on("click", guarded(lambda: self._open(book)))

    async def _open(self, book: Book) -> None:
        if self._view is not None:
            self._view.place.delete()
        with self._place:
            self._view = TableView(self._shelf, book)
        self._list_books()
        await self._view.show()


class TableView:
    """One table: its question, a filter, some rows, and where to get all."""

    def __init__(self, shelf: Shelf, book: Book) -> None:
        self._shelf = shelf
        self.book = book
        self._first = 0
        with section(book.name) as self.place:
            say(book.question or "The texts that explain it come with: pip install 'weft[pipeline]'", "w-question")
            with ui.element("div").classes("w-do"):
                columns = {"": "All rows", **{name: name for name in shelf.schema(book).names}}
                self._column = ui.select(columns, value="", label="Rows where").props("outlined dense options-dense")
                self._condition = ui.select(CONDITIONS, value="is", label="Condition").props(
                    "outlined dense options-dense"
                )
                self._value = ui.input("Value").props("outlined dense").on("keydown.enter", guarded(self._anew))
                button("Filter", self._anew, "filter")
                self._csv = self._link("CSV")
                self._parquet = self._link("Parquet")
            self._count = say("", "w-quiet w-small")
            self._rows = ui.element("div").classes("w-rows")
            with ui.element("div").classes("w-do"):
                button("Back", lambda: self._turn(-ROWS_SHOWN), "back")
                button("Further", lambda: self._turn(ROWS_SHOWN), "further")
            self._meanings()

    def _link(self, kind: str) -> ui.element:
        link = ui.element("a").classes("w-download").props(f'download aria-label="Download as {kind}"')
        with link:
            ui.label(f"Download {kind}")
        return link

    def _meanings(self) -> None:
        if self.book.about:
            with ui.element("details").classes("w-meanings"):
                with ui.element("summary"):
                    ui.label("What the columns mean")
                with ui.element("dl"):
                    for name, about in self.book.about.items():
                        with ui.element("dt").classes("w-code"):
                            ui.label(name)
                        with ui.element("dd"):
                            ui.label(about)

    @property
    def _chosen(self) -> Filter:
        return Filter(str(self._column.value or ""), str(self._condition.value), str(self._value.value or ""))

    async def _anew(self) -> None:
        self._first = 0
        await self.show()

    async def _turn(self, by: int) -> None:
        self._first = max(0, self._first + by)
        await self.show()

    async def show(self) -> None:
        chosen = self._chosen
        words = {"column": chosen.column, "condition": chosen.condition, "value": chosen.value} if chosen.column else {}
        for link, kind in ((self._csv, "csv"), (self._parquet, "parquet")):
            link.props["href"] = f"/data-tables/{self.book.key}.{kind}?{urlencode(words)}"
            link.update()
        count = await asyncio.to_thread(self._shelf.count, self.book, chosen)
        self._first = min(self._first, max(0, (count - 1) // ROWS_SHOWN * ROWS_SHOWN))
        table = await asyncio.to_thread(self._shelf.page, self.book, chosen, self._first, ROWS_SHOWN)
        last = self._first + table.num_rows
        self._count.set_text(f"Rows {self._first + 1:,} to {last:,} of {count:,}." if count else "No rows.")
        self._rows.clear()
        with self._rows:
            _grid(table.column_names, table.to_pylist(), self.book)


def _grid(names: list[str], rows: list[dict[str, Any]], book: Book) -> None:
    columns = [
        {
            "name": name,
            "label": name,
            "field": name,
            "align": "left",
            "sortable": True,
            "title": book.about.get(name, ""),
        }
        for name in names
    ]
    cells = [{"_row": number} | {name: shown(row[name]) for name in names} for number, row in enumerate(rows)]
    table = ui.table(columns=columns, rows=cells, row_key="_row", pagination=0)
    table.props(f'dense flat hide-bottom aria-label="Rows of {book.name}" :rows-per-page-options=[0]')
