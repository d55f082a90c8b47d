"""The data behind the drawings: JSON that the browser asks for, in bounded pieces.

    /data/SOURCE/whole?at=S          the picture of a moment
    /data/SOURCE/changes?since=N&until=S    the entries from a number on, up to a moment
    /data/SOURCE/figures?at=S        what stands beside the drawing
    /data/SOURCE/outline             the whole history in a few bins

The browser asks when it has dealt with the last answer, so a slow one never has more than one piece under way.
"""

import json
import math
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weft.web.following import Following
from weft.web.history import History
from weft.web.sources import Sources
from weft.web.wrong import told

Answer = dict[str, Any]


def data_routes(sources: Sources) -> list[Route]:
    def route(name: str, act: Callable[[History, Request], Answer]) -> Route:
        async def answer(request: Request) -> Response:
            source = request.path_params["source"]
            try:
                history = await sources.history(source)
                found = act(history, request)
            except Exception as problem:
                return _json({"problem": told(problem)}, status=404)
            found["end"], found["start"] = history.end, history.start
            return _json(found)

        return Route(f"/data/{{source}}/{name}", answer)

    def figures(history: History, request: Request) -> Answer:
        told = history.figures(_number(request, "at", history.end))
        live = sources.live if sources.live is not None and history is sources.live.history else None
        sees_all = live is None or live.sees_all
        return {"figures": told | {"sees_all": sees_all}, "views": _views(live, request)}

    return [route("whole", _whole), route("changes", _changes), route("figures", figures), route("outline", _outline)]


def _whole(history: History, request: Request) -> Answer:
    at = _number(request, "at", history.end)
    number, picture = history.at(at)
    return {
        "at": min(max(at, history.start), history.end),
        "next": number,
        "began_s": history.began_s,
        "peers": [[each, *named] for each, named in picture.peers.items()],
        "links": picture.drawn_links(),
        "felt": picture.felt,
        "told": history.told(at),
    }


def _changes(history: History, request: Request) -> Answer:
    part = history.since(int(_number(request, "since", 0)), _number(request, "until", history.end))
    return {"next": part.next, "entries": part.entries, "lost": part.is_lost, "newest": history.next}


def _outline(history: History, request: Request) -> Answer:
    return dict(history.outline())


def _views(live: Following | None, request: Request) -> Answer | None:
    """What is known of one peer at this moment, beside its links; of a tape there is no more."""
    view = live.views.get(int(_number(request, "peer", -1))) if live is not None else None
    if view is None:
        return None
    return {"state": view.state, "holes": view.holes, "diameter": view.diameter, "small": view.is_small}


def _number(request: Request, name: str, default: float) -> float:
    try:
        number = float(request.query_params.get(name, default))
    except ValueError:
        number = default
    return number if math.isfinite(number) else default


def _json(answer: Answer, status: int = 200) -> Response:
    text = json.dumps(answer, separators=(",", ":"))
    return Response(text, status, {"cache-control": "no-store"}, "application/json")
