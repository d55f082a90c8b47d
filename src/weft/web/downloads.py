"""Tables as files: CSV and Parquet, made piece by piece, with the filter that the page has.

/data-tables/KEY.csv?column=finding&condition=is&value=missing
"""

import asyncio
import csv
import io
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from weft.record.arrow import pa, pq
from weft.web.shelf import Book, Filter, NoTable, Shelf, shown
from weft.web.sources import Sources
from weft.web.wrong import told

PIECE_BYTES = 1 << 18
MEDIA = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}


def download_routes(sources: Sources) -> list[Route]:
    async def download(request: Request) -> Response:
        key, kind = request.path_params["key"], request.path_params["kind"]
        words = request.query_params
        chosen = Filter(words.get("column", ""), words.get("condition", "is"), words.get("value", ""))
        try:
            if sources.shelf is None:
                raise NoTable("there are no tables here: give their folder with --tables")
            book = await asyncio.to_thread(sources.shelf.book, key)
            if kind not in MAKERS:
                raise NoTable(f"tables are to be had as {' and '.join(MAKERS)}, not as {kind}")
            pieces = MAKERS[kind](sources.shelf, book, chosen)
            first = await asyncio.to_thread(next, pieces, b"")
        except Exception as problem:
            return Response(told(problem), 404, media_type="text/plain")
        headers = {"content-disposition": f'attachment; filename="{book.key}.{kind}"', "cache-control": "no-store"}
        return StreamingResponse(_streamed(first, pieces), headers=headers, media_type=MEDIA[kind])

    return [Route("/data-tables/{key}.{kind:str}", download)]


async def _streamed(first: bytes, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The pieces are made in a thread: the pages go on meanwhile."""
    yield first
    while piece := await asyncio.to_thread(next, pieces, b""):
        yield piece


def as_csv(shelf: Shelf, book: Book, chosen: Filter) -> Iterator[bytes]:
    """With a line of names; times in UTC, what is nested as JSON."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(shelf.schema(book).names)
    for batch in shelf.batches(book, chosen):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            writer.writerow("" if value is None else shown(value) for value in row)
            if text.tell() > PIECE_BYTES:
                yield text.getvalue().encode()
                text.seek(0)
                text.truncate()
    if text.tell():
        yield text.getvalue().encode()


def as_parquet(shelf: Shelf, book: Book, chosen: Filter) -> Iterator[bytes]:
    with tempfile.TemporaryDirectory(prefix="weft-download-") as folder:
        path = Path(folder) / "table.parquet"
        with pq.ParquetWriter(path, shelf.schema(book), compression="zstd") as writer:
            for batch in shelf.batches(book, chosen):
                writer.write_table(pa.Table.from_batches([batch]))
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece


MAKERS = {"csv": as_csv, "parquet": as_parquet}
