"""`LeaveProtocol`: leave gracefully, cut a link, close the channel.

A leaving peer sends its neighbor list to its neighbors. They pair up and link to each other: first with second, third
with fourth, or in another combination if those are neighbors already. The peer has left when all have acknowledged.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from broadloom.protocol.events import LinkDownReason, PeerState
from broadloom.wire.link_messages import CloseChannel, Leave, Unlink, UnlinkAck

if TYPE_CHECKING:
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer


def pairings(count: int) -> Iterator[list[tuple[int, int]]]:
    """The rounds of the circle method for 0..count-1: every round pairs each number with a new partner."""
    positions = list(range(count + count % 2))
    for _ in range(len(positions) - 1):
        half = len(positions) // 2
        pairs = zip(positions[::2], positions[1::2], strict=True) if half else iter(())
        yield [(min(pair), max(pair)) for pair in pairs if max(pair) < count]
        positions = _next_round(positions)


def _next_round(positions: list[int]) -> list[int]:
    """Rotate all but the first by one; the positions are stored pair by pair."""
    upper, lower = positions[::2], positions[1::2]
    upper, lower = [upper[0], lower[0], *upper[1:-1]] if len(upper) > 1 else upper, [*lower[1:], upper[-1]]
    return [each for pair in zip(upper, lower, strict=True) for each in pair]


class LeaveProtocol:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._lingers = False
        """Without links, but not gone yet."""
        self._close_at = 0.0
        self.unanswered = 0
        """Neighbors that have not acknowledged that this peer left: they may lack what was sent last."""

    # -- this peer leaves

    def start(self) -> None:
        """Announce it to all neighbors. Their messages are relayed until they close: another peer may leave at the
        same moment, and this one may be the only one that received its last message."""
        peer = self._peer
        if not peer.is_present:
            return
        peer.broadcaster.begin_leave()
        peer.begin_leave()
        message = Leave(peer.links.peer_infos)
        for link in peer.links:
            link.send(message)
        self._close_at = peer.runtime.now() + peer.settings.leave_timeout_s
        peer.runtime.call_later(peer.settings.unlink_timeout_s, self._close_silent)
        self.check_finished()

    def _close_silent(self) -> None:
        """Close the links to neighbors that are dead or stopped. The others acknowledge when they have read all."""
        peer = self._peer
        if peer.state is PeerState.LEFT:
            return
        now = peer.runtime.now()
        silence_s = max(peer.settings.unlink_timeout_s, 2 * peer.settings.heartbeat_s)
        for link in list(peer.links):
            if now >= self._close_at or link.is_silent(now, silence_s):
                self.unanswered += 1
                link.close(LinkDownReason.LOCAL_LEAVE)
        peer.runtime.call_later(peer.settings.tick_s, self._close_silent)

    def check_finished(self) -> None:
        if self._peer.state is PeerState.LEAVING and not len(self._peer.links) and not self._lingers:
            self._peer.finish_leave()

    # -- a neighbor leaves

    def on_leave(self, link: "Link", leave: Leave) -> None:
        peer = self._peer
        peer.peer_cache.drop(link.peer_id)
        if peer.links.get(link.peer_id) is not link:
            link.acknowledge_unlink()  # the link was cut before
        elif not peer.is_present:
            link.acknowledge_unlink()  # both leave
        else:
            link.linger()
            self._pair_neighbors(leave)

    def _pair_neighbors(self, leave: Leave) -> None:
        """The lower index of a pair requests a link, the higher one reserves a slot."""
        peer = self._peer
        peer_ids = [neighbor.peer_id for neighbor in leave.neighbors]
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

    # -- a link is cut, for a newcomer or to merge two parts

    def on_unlink(self, link: "Link", unlink: Unlink) -> None:
        """Acknowledge, and refill the slot as the message says."""
        peer = self._peer
        was_neighbor = peer.links.get(link.peer_id) is link
        if was_neighbor:
            peer.links.remove(link, LinkDownReason.REWIRED)
        link.acknowledge_unlink()
        if not was_neighbor or not peer.is_present:
            return
        if unlink.dial is not None:
            peer.join_protocol.request_link(unlink.dial, announced_by=link.peer_id)
        elif unlink.await_dial is not None:
            peer.links.await_dial(unlink.await_dial, announced_by=link.peer_id)
        peer.slot_repair.schedule()

    def on_unlink_ack(self, link: "Link", _ack: UnlinkAck) -> None:
        link.finish()

    # -- all peers leave

    def close_channel(self) -> None:
        self._peer.broadcaster.flush()
        self._peer.control_flood.start(CloseChannel)
        self._close_all()

    def on_close_channel(self, _link: "Link", _message: CloseChannel) -> None:
        if self._peer.accepts_channel_close:
            self._close_all()

    def close_links(self, linger_s: float) -> None:
        """Leave without waiting for the neighbors, but answer newcomers for a while."""
        self._lingers = True
        self._peer.begin_leave()
        for link in list(self._peer.links):
            link.close(LinkDownReason.LOCAL_LEAVE)
        self._peer.runtime.call_later(linger_s, self._close_all)

    def _close_all(self) -> None:
        if self._peer.state is not PeerState.LEFT:
            self._lingers = False
            self._peer.begin_leave()
            for link in list(self._peer.links):
                link.close(LinkDownReason.LOCAL_LEAVE)
            self._peer.finish_leave()
