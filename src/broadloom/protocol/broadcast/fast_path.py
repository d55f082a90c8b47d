"""The usual case of receiving, in one piece: a single message, next in order, from the parent in the author's tree.

An author that sends one message at a time pays for every step at every relay, so this path does only what the message
needs: one unpack, the copies to the children, delivery. It has the same effects as `Receiver.on_broadcast`, so the two
can alternate from frame to frame. The only work that it defers is the index of the retention buffer, which completes it
before any read.

`FastPath.take` is the one place that says what is usual. Whatever it does not recognize is left to the receiver, which
also reports malformed frames. What changes rarely is part of a `RelayPlan`, which Plumtree discards when the author's
tree changes or a link comes or goes.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from broadloom.protocol.broadcast.retention import RetainedFrame
from broadloom.protocol.events import Batch
from broadloom.wire import Broadcast, Frame, PeerId
from broadloom.wire.broadcast_frame import (
    BROADCAST,
    HOPS_MAX,
    PREFIX,
    SPLIT_FRAME_BYTES_MIN,
    TREE,
    Priority,
    single_layout,
)
from broadloom.wire.codec import LENGTH_BYTES
from broadloom.wire.payload_kind import WANTS_RECEIPT
from broadloom.wire.xdr import PADDING

if TYPE_CHECKING:
    from broadloom.protocol.broadcast.broadcaster import Broadcaster
    from broadloom.protocol.broadcast.receive_window import ReceiveWindow
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer

_USUAL: Final = (1, int(TREE), int(Priority.NORMAL), 0, 1)
"""Number of messages, dissemination, priority, TTL, number of sizes."""


class RelayPlan(NamedTuple):
    """Where the frames of one author come from and go to, as long as neither its tree nor the links change."""

    parent: "Link"
    hops: int
    children: "tuple[Link, ...]"
    lazy_links: "tuple[Link, ...]"


class FastPath:
    def __init__(self, peer: "Peer", broadcaster: "Broadcaster") -> None:
        self._peer = peer
        self._broadcaster = broadcaster
        self._windows = broadcaster.receiver.windows
        self._retention = broadcaster.retention
        self._retention_ms = int(peer.settings.retention_s * 1000)
        self._verifier = verifier = broadcaster.verifier
        self._signature_bytes = verifier.signature_bytes if verifier is not None else 0
        self._layout = single_layout(self._signature_bytes)

    def take(self, link: "Link", frame: Frame) -> bool:
        """Relay and deliver a frame if it is a usual one; False: the receiver must handle it."""
        layout = self._layout
        if not layout.size <= len(frame) < SPLIT_FRAME_BYTES_MIN:
            return False
        (
            length, _, hops, age_ms, author, sequence, stream_offset,
            count, dissemination, kind, priority, ttl_ms, signature_bytes, signature, size_count, size, body_bytes,
        ) = layout.unpack_from(frame)  # fmt: skip
        window = self._windows.get(author)
        if window is None or (plan := window.tree.relay_plan) is None:
            return False
        peer, broadcaster, end = self._peer, self._broadcaster, layout.size + size
        if (
            plan.parent is not link
            or plan.hops != hops
            or sequence != window.last_contiguous + 1
            or sequence - stream_offset != window.stream_start
            or window.reorder_buffer
            or window.claimed_through is not None
            or (count, dissemination, priority, ttl_ms, size_count) != _USUAL
            or signature_bytes != self._signature_bytes
            or kind & WANTS_RECEIPT
            or size != body_bytes
            or length != len(frame) - LENGTH_BYTES
            or end + (-size & 3) != len(frame)
            or frame[end:] != PADDING[size & 3]
            or age_ms > self._retention_ms
            or not window.has_started
            or broadcaster.quotas is not None
            or broadcaster.in_process_links
            or (self._verifier is not None and not self._is_usual_if_signed(window, plan, author, sequence))
        ):
            return False
        now = peer.runtime.now()
        data = bytes(frame[layout.size : end])
        if self._verifier is not None:
            start = window.stream_start
            message = Broadcast(author, sequence, start, (data,), hops, age_ms, TREE, kind, signature=signature)
            if not self._verifier.verify(link, frame, message):
                return True
            age_ms = broadcaster.receiver.with_plausible_age(window, message, now).age_ms
        late: list[Link] = []
        if plan.children:
            copy = PREFIX.pack(length, BROADCAST, hops + 1, age_ms) + frame[PREFIX.size :]
            late = [child for child in plan.children if not child.send_now(copy)]
        window.last_active_at = now
        window.last_contiguous = sequence
        if sequence > window.last_known:
            window.last_known = sequence
        self._retention.add_single(author, sequence, frame, hops, age_ms, now, link.peer_id)
        if late:  # they cannot take the frame now: it waits in their queue, or their backlog grows
            retained = RetainedFrame(author, sequence, sequence, frame, hops, age_ms, now, link.peer_id, TREE)
            for child in late:
                broadcaster.send_retained(child, retained, now)
        if plan.lazy_links and not window.tree.has_pending_ihave:
            broadcaster.plumtree.announce(author, window.tree, plan.lazy_links)
        peer.counters.delivered += 1
        batch = Batch(author, sequence, (data,), hops, kind)
        if peer.observer is not None:
            start = window.stream_start
            message = Broadcast(author, sequence, start, (data,), hops, age_ms, TREE, kind, signature=signature)
            peer.observer.received(message, link.peer_id)
        peer.runtime.deliver(batch)
        if peer.observer is not None:
            peer.observer.delivered(batch)
        broadcaster.acks.on_frame(author, window, len(frame), 1)
        return True

    def _is_usual_if_signed(self, window: "ReceiveWindow", plan: RelayPlan, author: PeerId, sequence: int) -> bool:
        """On a signed channel: whether the message was not announced before, so that it cannot reveal equivocation, and
        no child needs the author's credential first."""
        return sequence > window.last_known and all(
            self._broadcaster.is_introduced(child, author) for child in plan.children
        )

    def learn(self, link: "Link", window: "ReceiveWindow", hops: int) -> None:
        """A single message came over this link along the tree: more of them may follow."""
        tree = window.tree
        if not self._peer.settings.fast_path or tree.relay_plan is not None:
            return
        is_settled = tree.parent is link and tree.first_copy_link is link and tree.failed_parent is not link
        if is_settled and tree.hops == tree.first_copy_hops == hops < HOPS_MAX and not link.is_draining:
            others = [each for each in self._peer.links if each is not link]
            children = tuple(each for each in others if each not in tree.lazy_links)
            lazy_links = tuple(each for each in others if each in tree.lazy_links)
            tree.relay_plan = RelayPlan(link, hops, children, lazy_links)
