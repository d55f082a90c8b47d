"""Leaving: alone, or everybody at once.

A leaver tells its neighbours who its neighbours are; they pair up among each other, first with second, third with
fourth, or in another combination if those are neighbours already. It goes when all have said their last word.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from weft.fabric.events import Why
from weft.fabric.state import State
from weft.wire.links import Cut, CutDone, Leave, Shutdown

if TYPE_CHECKING:
    from weft.fabric.link import Link
    from weft.fabric.peer import Peer


def pairings(count: int) -> Iterator[list[tuple[int, int]]]:
    """Every way of the circle method to pair up 0..count-1: in each round everyone has another partner."""
    places = list(range(count + count % 2))
    for _ in range(len(places) - 1):
        half = len(places) // 2
        pairs = zip(places[::2], places[1::2], strict=True) if half else iter(())
        yield [(min(pair), max(pair)) for pair in pairs if max(pair) < count]
        places = _next_round(places)


def _next_round(places: list[int]) -> list[int]:
    """Turn all but the first by one around the table (places are stored pair by pair)."""
    upper, lower = places[::2], places[1::2]
    upper, lower = [upper[0], lower[0], *upper[1:-1]] if len(upper) > 1 else upper, [*lower[1:], upper[-1]]
    return [each for pair in zip(upper, lower, strict=True) for each in pair]


class Leaving:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer

    # -- we leave

    def start(self) -> None:
        """Tell all neighbours. Until they hang up, what they say is passed on among them as ever: another one may
        leave at the same moment, and we be the last to have heard it."""
        peer = self._peer
        if not peer.is_present:
            return
        peer.stream.pack()
        peer.enter(State.LEAVING)
        farewell = Leave(peer.links.contacts)
        for link in peer.links:
            link.send(farewell)
        peer.world.after(peer.settings.drain_s, self._close_all)
        self.look_whether_done()

    def look_whether_done(self) -> None:
        """The last neighbour has hung up."""
        if self._peer.state is State.LEAVING and not len(self._peer.links):
            self._peer.enter(State.LEFT)

    # -- a neighbour leaves

    def on_leave(self, link: "Link", leave: Leave) -> None:
        peer = self._peer
        peer.contacts.drop(link.neighbour)
        if peer.links.get(link.neighbour) is not link:
            link.acknowledge_cut()  # cut already
        elif not peer.is_present:
            link.acknowledge_cut()  # so do we
        else:
            link.linger()
            self._pair_up(leave)

    def _pair_up(self, leave: Leave) -> None:
        """The lower place of a pair calls, the higher one keeps a place for it."""
        peer = self._peer
        names = [contact.peer for contact in leave.neighbours]
        if peer.me.peer not in names:
            return
        mine = names.index(peer.me.peer)
        for pairs in pairings(len(names)):
            for low, high in pairs:
                if mine == low and names[high] not in peer.links:
                    peer.joining.court(leave.neighbours[high])
                    return
                if mine == high and names[low] not in peer.links:
                    peer.links.claim(names[low])
                    return

    # -- a link is cut, for a newcomer or for the other part

    def on_cut(self, link: "Link", cut: Cut) -> None:
        """Drain, and fill the place as told."""
        peer = self._peer
        was_neighbour = peer.links.get(link.neighbour) is link
        if was_neighbour:
            peer.links.remove(link, Why.CUT)
        link.acknowledge_cut()
        if not was_neighbour or not peer.is_present:
            return
        if cut.call is not None:
            peer.joining.court(cut.call)
        elif cut.expect is not None:
            peer.links.claim(cut.expect.peer)
        peer.repair.kick()

    def on_cut_done(self, link: "Link", _done: CutDone) -> None:
        link.finish()

    # -- everybody leaves

    def shut_down(self) -> None:
        """Close the channel for all."""
        self._peer.stream.pack()
        self._peer.floods.start(Shutdown)
        self._close_all()

    def on_shutdown(self, _link: "Link", _shutdown: Shutdown) -> None:
        if self._peer.obeys_shutdown:
            self._close_all()

    def _close_all(self) -> None:
        if self._peer.state is not State.LEFT:
            self._peer.enter(State.LEAVING)
            for link in list(self._peer.links):
                link.hang_up(Why.LEAVING)
            self._peer.enter(State.LEFT)
