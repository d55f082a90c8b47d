"""JSON and downloads for the browser, in bounded pieces.

    /data/SOURCE/snapshot?at=S              the fabric at one moment
    /data/SOURCE/changes?since=N&until=S    the entries from a number up to a moment
    /data/SOURCE/stats?at=S                 the figures beside the drawing
    /data/SOURCE/overview                   the whole history in a few bins
    /data-tables/KEY.csv?column=finding&condition=is&value=missing    a filtered table as CSV or Parquet
    /data-plots/CHANNEL.svg                 the history of a channel as a picture

The browser requests the next piece after it has processed the last one, so at most one is in flight.
"""

import asyncio
import csv
import io
import json
import math
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from broadloom.record.arrow_import import pa, pq
from broadloom.web.error_messages import describe_error
from broadloom.web.history import FabricHistory
from broadloom.web.sources import Sources
from broadloom.web.table_catalog import CatalogEntry, Filter, TableCatalog, TableNotFoundError, format_cell
from broadloom.web.timeline_follower import TimelineFollower

CHUNK_BYTES = 1 << 18
MEDIA_TYPES = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}


def download_routes(sources: Sources) -> list[Route]:
    async def download(request: Request) -> Response:
        key, kind = request.path_params["key"], request.path_params["kind"]
        params = request.query_params
        chosen = Filter(params.get("column", ""), params.get("condition", "is"), params.get("value", ""))
        try:
            if sources.catalog is None:
                raise TableNotFoundError("there are no tables here: start the server with --results DIR")
            entry = await asyncio.to_thread(sources.catalog.entry, key)
            if kind not in WRITERS:
                raise TableNotFoundError(f"tables are available as {' and '.join(WRITERS)}, not as {kind}")
            pieces = WRITERS[kind](sources.catalog, entry, chosen)
            first = await asyncio.to_thread(next, pieces, b"")
        except Exception as problem:
            return Response(describe_error(problem), 404, media_type="text/plain")
        headers = {"content-disposition": f'attachment; filename="{entry.key}.{kind}"', "cache-control": "no-store"}
        return StreamingResponse(_stream(first, pieces), headers=headers, media_type=MEDIA_TYPES[kind])

    async def plot(request: Request) -> Response:
        try:
            if sources.catalog is None:
                raise TableNotFoundError("there are no tables here: start the server with --results DIR")
            from broadloom.pipeline.plot import channel_svg

            drawn = await asyncio.to_thread(channel_svg, sources.catalog.folder, request.path_params["channel"])
        except Exception as problem:
            return Response(describe_error(problem), 404, media_type="text/plain")
        return Response(drawn, headers={"cache-control": "no-store"}, media_type="image/svg+xml")

    return [Route("/data-tables/{key}.{kind:str}", download), Route("/data-plots/{channel}.svg", plot)]


async def _stream(first: bytes, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Built in a thread, so that the pages stay responsive."""
    yield first
    while piece := await asyncio.to_thread(next, pieces, b""):
        yield piece


def as_csv(catalog: TableCatalog, entry: CatalogEntry, chosen: Filter) -> Iterator[bytes]:
    """CSV with a header; times in UTC, nested values as JSON."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(catalog.schema(entry).names)
    for batch in catalog.batches(entry, chosen):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            writer.writerow("" if value is None else format_cell(value) for value in row)
            if text.tell() > CHUNK_BYTES:
                yield text.getvalue().encode()
                text.seek(0)
                text.truncate()
    if text.tell():
        yield text.getvalue().encode()


def as_parquet(catalog: TableCatalog, entry: CatalogEntry, chosen: Filter) -> Iterator[bytes]:
    with tempfile.TemporaryDirectory(prefix="broadloom-download-") as folder:
        path = Path(folder) / "table.parquet"
        with pq.ParquetWriter(path, catalog.schema(entry), compression="zstd") as writer:
            for batch in catalog.batches(entry, chosen):
                writer.write_table(pa.Table.from_batches([batch]))
        with path.open("rb") as file:
            while piece := file.read(CHUNK_BYTES):
                yield piece


WRITERS = {"csv": as_csv, "parquet": as_parquet}


JsonObject = dict[str, Any]


def data_routes(sources: Sources) -> list[Route]:
    def route(name: str, act: Callable[[FabricHistory, Request], JsonObject]) -> Route:
        async def respond(request: Request) -> Response:
            source = request.path_params["source"]
            try:
                history = await sources.history(source)
                found = act(history, request)
            except Exception as problem:
                return _json({"problem": describe_error(problem)}, status=404)
            found["end"], found["start"] = history.end, history.start
            return _json(found)

        return Route(f"/data/{{source}}/{name}", respond)

    def stats(history: FabricHistory, request: Request) -> JsonObject:
        live = sources.live if sources.live is not None and history is sources.live.history else None
        sees_all = live is None or live.sees_all
        at = _number(request, "at", history.end)
        return {"stats": history.stats(at) | {"sees_all": sees_all}, "peer": _peer_details(live, request)}

    return [
        route("snapshot", _snapshot),
        route("changes", _changes),
        route("stats", stats),
        route("overview", _overview),
    ]


def _snapshot(history: FabricHistory, request: Request) -> JsonObject:
    at = _number(request, "at", history.end)
    number, snapshot = history.at(at)
    return {
        "at": min(max(at, history.start), history.end),
        "next": number,
        "began_s": history.began_s,
        "peers": [[each, *name_and_id] for each, name_and_id in snapshot.peers.items()],
        "links": list(snapshot.links),  # also those of peers that have not been added yet
        "peer_stats": snapshot.peer_stats,
        "log": history.annotations(at),
    }


def _changes(history: FabricHistory, request: Request) -> JsonObject:
    part = history.since(int(_number(request, "since", 0)), _number(request, "until", history.end))
    return {"next": part.next, "entries": part.entries, "is_expired": part.is_expired, "newest": history.next}


def _overview(history: FabricHistory, request: Request) -> JsonObject:
    return dict(history.overview())


def _peer_details(live: TimelineFollower | None, request: Request) -> JsonObject | None:
    """What is known of one peer at this moment besides its links; tapes record no more."""
    view = live.views.get(int(_number(request, "peer", -1))) if live is not None else None
    if view is None:
        return None
    return {
        "state": view.state,
        "free_slots": view.free_slots,
        "diameter": view.diameter_estimate,
        "is_full_mesh": view.is_full_mesh,
    }


def _number(request: Request, name: str, default: float) -> float:
    try:
        number = float(request.query_params.get(name, default))
    except ValueError:
        number = default
    return number if math.isfinite(number) else default


def _json(body: JsonObject, status: int = 200) -> Response:
    text = json.dumps(body, separators=(",", ":"))
    return Response(text, status, {"cache-control": "no-store"}, "application/json")
