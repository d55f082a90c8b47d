"""Leaving: alone, or everybody at once.

A leaver tells its neighbours who its neighbours are; they pair up among each other, first with second, third with
fourth, or in another combination if those are neighbours already. It goes when all have said their last word.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from broadloom.protocol.events import LinkDownReason, PeerState
from broadloom.wire.link_messages import CloseChannel, Leave, Unlink, UnlinkAck

if TYPE_CHECKING:
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer


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


class LeaveProtocol:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer

    # -- we leave

    def start(self) -> None:
        """Tell all neighbours. Until they hang up, what they say is passed on among them as ever: another one may
        leave at the same moment, and we be the last to have heard it."""
        peer = self._peer
        if not peer.is_present:
            return
        peer.broadcaster.flush()
        peer.begin_leave()
        message = Leave(peer.links.peer_infos)
        for link in peer.links:
            link.send(message)
        peer.runtime.call_later(peer.settings.unlink_timeout_s, self._close_all)
        self.check_finished()

    def check_finished(self) -> None:
        """The last neighbour has hung up."""
        if self._peer.state is PeerState.LEAVING and not len(self._peer.links):
            self._peer.finish_leave()

    # -- a neighbour leaves

    def on_leave(self, link: "Link", leave: Leave) -> None:
        peer = self._peer
        peer.peer_cache.drop(link.peer_id)
        if peer.links.get(link.peer_id) is not link:
            link.acknowledge_unlink()  # cut already
        elif not peer.is_present:
            link.acknowledge_unlink()  # so do we
        else:
            link.linger()
            self._pair_neighbors(leave)

    def _pair_neighbors(self, leave: Leave) -> None:
        """The lower place of a pair calls, the higher one keeps a place for it."""
        peer = self._peer
        peer_ids = [contact.peer_id for contact in leave.neighbors]
        if peer.me.peer_id not in peer_ids:
            return
        own_index = peer_ids.index(peer.me.peer_id)
        for pairs in pairings(len(peer_ids)):
            for low, high in pairs:
                if own_index == low and peer_ids[high] not in peer.links:
                    peer.join_protocol.request_link(leave.neighbors[high])
                    return
                if own_index == high and peer_ids[low] not in peer.links:
                    peer.links.reserve(peer_ids[low])
                    return

    # -- a link is cut, for a newcomer or for the other part

    def on_unlink(self, link: "Link", unlink: Unlink) -> None:
        """Drain, and fill the place as told."""
        peer = self._peer
        was_neighbor = peer.links.get(link.peer_id) is link
        if was_neighbor:
            peer.links.remove(link, LinkDownReason.REWIRED)
        link.acknowledge_unlink()
        if not was_neighbor or not peer.is_present:
            return
        if unlink.dial is not None:
            peer.join_protocol.request_link(unlink.dial)
        elif unlink.await_dial is not None:
            peer.links.reserve(unlink.await_dial.peer_id)
        peer.slot_repair.schedule()

    def on_unlink_ack(self, link: "Link", _ack: UnlinkAck) -> None:
        link.finish()

    # -- everybody leaves

    def close_channel(self) -> None:
        """Close the channel for all."""
        self._peer.broadcaster.flush()
        self._peer.control_flood.start(CloseChannel)
        self._close_all()

    def on_close_channel(self, _link: "Link", _message: CloseChannel) -> None:
        if self._peer.accepts_channel_close:
            self._close_all()

    def _close_all(self) -> None:
        if self._peer.state is not PeerState.LEFT:
            self._peer.begin_leave()
            for link in list(self._peer.links):
                link.close(LinkDownReason.LOCAL_LEAVE)
            self._peer.finish_leave()
