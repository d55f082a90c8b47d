"""What one peer of a channel can know, as a timeline: itself, its neighbors and their neighbors.

No peer sees the whole fabric. Of a message it knows the last hop: the neighbor that brought the first copy, and the
number of links traveled. The log contains messages only; a follower finds changes of peers and links by comparing.
"""

import time
from collections import deque
from math import nan
from typing import TYPE_CHECKING

from broadloom.testing.cluster.metrics import SAMPLES_MAX, MetricsSample
from broadloom.testing.cluster.timeline import (
    Change,
    ChangeLog,
    MessageHop,
    MessageSent,
    MessagesMissed,
    PeerSnapshot,
)

if TYPE_CHECKING:
    from broadloom.channel import Channel
    from broadloom.channel.status import Status
    from broadloom.protocol.channel_name import ChannelName
    from broadloom.protocol.events import Batch, Event, LayerEvent, Missed
    from broadloom.protocol.identity import Identity
    from broadloom.wire import Broadcast, PeerId

SAMPLE_INTERVAL_S = 0.3
"""Maximum rate at which one message is shown."""
NAME_DIGITS = 6


class PeerTimeline:
    """Pass it to `broadloom.connect` as the tape, then set `timeline.channel = channel`."""

    def __init__(self, channel: "Channel | None" = None) -> None:
        self.channel = channel
        self._me = 0
        self._log = ChangeLog()
        self._sampled_s = 0.0
        self._samples: deque[MetricsSample] = deque(maxlen=SAMPLES_MAX)
        # Since the last sample:
        self._second_began_s = time.time()
        self._hops: list[int] = []
        self._links: frozenset[tuple[int, int]] = frozenset()
        self._counters: dict[str, int] = {}

    # -- as a timeline

    def now(self) -> dict[int, PeerSnapshot]:
        return peer_views(self.channel.status()) if self.channel is not None else {}

    def changes(self, since: int) -> tuple[int, list[Change]]:
        now_s = time.time()
        if now_s - self._second_began_s >= 1 and self.channel is not None:
            self._sample(self.channel.status(), now_s)
        return self._log.since(since)

    # -- metrics

    def metrics(self) -> list[MetricsSample]:
        """One sample per second; unknown values are NaN."""
        return list(self._samples)

    def _sample(self, status: "Status", now_s: float) -> None:
        took_s, self._second_began_s = now_s - self._second_began_s, now_s
        before, self._counters = self._counters or status.counters, dict(status.counters)
        sent, delivered, duplicates, missed = (
            status.counters[name] - before.get(name, 0) for name in ("sent", "delivered", "duplicates", "missed")
        )
        views = peer_views(status)
        links_before = self._links
        self._links = frozenset((min(a, b), max(a, b)) for a, view in views.items() for b in view.links)
        hops, self._hops = sorted(self._hops), []
        self._samples.append(
            MetricsSample(
                at_s=now_s,
                peers=len(views),
                sent_per_s=sent / took_s,
                delivered_per_s=delivered / took_s,
                latency_p50_ms=nan,
                latency_p99_ms=nan,
                hops_p50=float(hops[len(hops) // 2]) if hops else 0.0,
                hops_max=hops[-1] if hops else 0,
                redundancy=(delivered + duplicates) / delivered if delivered else 0.0,
                slow_peers=sum(each.send_queue_bytes > 0 for each in status.neighbors),
                missed=missed,
                links_made=len(self._links - links_before),
                links_lost=len(links_before - self._links),
            )
        )

    # -- as a tape and its observer, driven by our own peer

    def observer(
        self, channel: "ChannelName", me: "PeerId", *, name: str = "", identity: "Identity | None" = None
    ) -> "PeerTimeline":
        self._me = me
        return self

    def sent(self, sequence: int, data: bytes, kind: int) -> None:
        self._log.add(MessageSent(time.time(), self._me, sequence, len(data)))

    def received(self, message: "Broadcast", neighbor: "PeerId") -> None:
        self._hops += [message.hops] * len(message.messages)
        now_s = time.time()
        if now_s - self._sampled_s >= SAMPLE_INTERVAL_S:
            self._sampled_s = now_s
            size = sum(len(data) for data in message.messages)
            self._log.add(MessageSent(now_s, message.author, message.sequence, size))
            self._log.add(MessageHop(now_s, message.author, message.sequence, neighbor, self._me, message.hops))

    def missed(self, missed: "Missed") -> None:
        self._log.add(MessagesMissed(time.time(), self._me, missed.author, missed.first_sequence, missed.last_sequence))

    def delivered(self, batch: "Batch") -> None:
        """Counted when received."""

    def on_event(self, event: "Event | LayerEvent") -> None:
        """Links are compared."""

    def duplicates(self, count: int) -> None:
        """Counted by the peer."""


def peer_views(status: "Status") -> dict[int, PeerSnapshot]:
    """This peer, its neighbors, and theirs."""
    me, free_slots = status.peer_id, 0 if status.is_full_mesh else status.free_slots
    near = {each.peer_id: each for each in status.neighbors}

    def view(peer: int, name: str, state: str, links: tuple[int, ...], free_slots: int = 0) -> PeerSnapshot:
        return PeerSnapshot(peer, name, state, links, free_slots, status.diameter_estimate, status.is_full_mesh)

    views = {me: view(me, "this page", status.state, tuple(near), free_slots)}
    for peer, each in near.items():
        views[peer] = view(peer, each.name or str(each.peer_id)[:NAME_DIGITS], "connected", each.neighbors)
    for other in [other for peer in near for other in views[peer].links]:
        if other not in views:
            views[other] = view(other, f"{other:016x}"[:NAME_DIGITS], "unknown", ())
    return views
