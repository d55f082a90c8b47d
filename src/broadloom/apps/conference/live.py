"""What moves while participants look: the viewpoint of the leader, and pointers. `Views` has those of all others.

These are broadcasts of a layer of their own and no entries of the order, so they cost one broadcast and are not kept. A
viewpoint counts while its author has the floor, in the same term. The one at which the leader comes to rest is ordered
as well (`SetView`): late joiners get it.
"""

import json
from typing import NamedTuple

from broadloom.apps.conference.actions import Point, Viewpoint, point
from broadloom.apps.conference.floor import Floor

LAYER = "Cf"
POINTER_S = 0.5
"""Lifetime of a pointer, on its way and on the screen."""
LIVE_BYTES_MAX = 1024
AUTHORS_MAX = 4096
"""Authors whose last viewpoint and pointer are kept; on a channel without signatures a member can invent some."""


class LiveView(NamedTuple):
    term: int
    """Of the floor, as its author knows it."""
    viewpoint: Viewpoint


class Pointer(NamedTuple):
    at: Point


def encode(live: LiveView | Pointer) -> bytes:
    values = ["view", live.term, *live.viewpoint] if isinstance(live, LiveView) else ["point", live.at]
    return json.dumps(values).encode()


def decode(data: bytes) -> LiveView | Pointer | None:
    """None if this is neither."""
    if len(data) > LIVE_BYTES_MAX:
        return None
    try:
        match json.loads(data):
            case ["view", int(term), eye, target]:
                return LiveView(term, Viewpoint(point(eye), point(target)))
            case ["point", at]:
                return Pointer(point(at))
    except (ValueError, TypeError, RecursionError):
        pass
    return None


class Views:
    """What others show and point at. Without a clock of its own."""

    def __init__(self) -> None:
        self._views: dict[int, LiveView] = {}
        """The last one of each author."""
        self._pointers: dict[int, tuple[Point, float]] = {}
        """With the time at which they expire."""

    def receive(self, author: int, data: bytes, now: float) -> LiveView | Pointer | None:
        message = decode(data)
        if isinstance(message, LiveView):
            self._views[author] = message
        elif message is not None:
            self._pointers[author] = message.at, now + POINTER_S
        for kept in (self._views, self._pointers):
            if len(kept) > AUTHORS_MAX:
                del kept[next(iter(kept))]
        return message

    def of_leader(self, floor: Floor) -> Viewpoint | None:
        """None if the leader has not moved since it has the floor."""
        view = self._views.get(floor.holder) if floor.holder is not None else None
        return view.viewpoint if view is not None and view.term == floor.term else None

    def pointers(self, now: float) -> dict[int, Point]:
        self._pointers = {author: value for author, value in self._pointers.items() if value[1] > now}
        return {author: at for author, (at, _) in self._pointers.items()}

    def forget(self, author: int) -> None:
        """The author is gone."""
        self._views.pop(author, None)
        self._pointers.pop(author, None)
