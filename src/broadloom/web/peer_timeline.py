"""What one peer of a channel can know, as a timeline: itself, its neighbors and their neighbors.

No peer sees the whole fabric. Of a message it knows the last hop: the neighbor that brought the first copy, and the
number of links traveled.
"""

import time
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING

from broadloom.testing.cluster.metrics import SAMPLES_MAX, MetricsSample
from broadloom.testing.cluster.timeline import (
    Annotation,
    Change,
    ChangeLog,
    LinkAdded,
    LinkRemoved,
    MessageHop,
    MessageSent,
    MessagesMissed,
    PeerAdded,
    PeerRemoved,
    PeerSnapshot,
)

if TYPE_CHECKING:
    from broadloom.channel import Channel
    from broadloom.channel.status import Status
    from broadloom.protocol.channel_name import ChannelName
    from broadloom.protocol.events import Batch, Event
    from broadloom.protocol.events import Missed as MissedMessages
    from broadloom.wire import Broadcast, PeerId

SAMPLE_INTERVAL_S = 0.3
"""Maximum rate at which one message is shown."""
NAME_DIGITS = 6


@dataclass(slots=True)
class _SecondSample:
    """Counted between two samples."""

    began_s: float
    hops: list[int]
    links_made: int = 0
    links_lost: int = 0


class PeerTimeline:
    """Pass it to `broadloom.connect` as the tape, then set `timeline.channel = channel`."""

    def __init__(self, channel: "Channel | None" = None) -> None:
        self.channel = channel
        self._log = ChangeLog()
        self._views: dict[int, PeerSnapshot] = {}
        self._links: set[tuple[int, int]] = set()
        self._sampled_s = 0.0
        self._second = _SecondSample(time.time(), [])
        self._counters: dict[str, int] = {}
        self.samples: list[MetricsSample] = []

    # -- as a timeline

    def now(self) -> dict[int, PeerSnapshot]:
        return peer_views(self.channel.status()) if self.channel is not None else {}

    def changes(self, since: int) -> tuple[int, list[Change]]:
        self._poll()
        return self._log.since(since)

    def _poll(self) -> None:
        """Compare with the previous state; called on every request."""
        now_s, views = time.time(), self.now()
        links = {(min(a, b), max(a, b)) for a, view in views.items() for b in view.links if b in views}
        for peer in [each for each in self._views if each not in views]:
            # A neighbor's neighbor that is no longer visible may still be there; our own neighbors' links are known.
            self._log.add(PeerRemoved(now_s, peer, "left"))
        for peer, view in views.items():
            if peer not in self._views:
                self._log.add(PeerAdded(now_s, peer, view.name))
        for pair in sorted(self._links - links):
            self._second.links_lost += 1
            self._log.add(LinkRemoved(now_s, *pair))
        for pair in sorted(links - self._links):
            self._second.links_made += 1
            self._log.add(LinkAdded(now_s, *pair))
        self._views, self._links = views, links
        if now_s - self._second.began_s >= 1 and self.channel is not None:
            self._sample(self.channel.status(), now_s)

    # -- metrics

    def metrics(self) -> list[MetricsSample]:
        """One sample per second; unknown values are NaN."""
        return list(self.samples)

    def _sample(self, status: "Status", now_s: float) -> None:
        second, took_s = self._second, now_s - self._second.began_s
        self._second = _SecondSample(now_s, [])
        before, self._counters = self._counters or status.counters, dict(status.counters)
        sent, delivered, duplicates, missed = (
            status.counters[name] - before.get(name, 0) for name in ("sent", "delivered", "duplicates", "missed")
        )
        hops = sorted(second.hops)
        self.samples.append(
            MetricsSample(
                at_s=now_s,
                peers=len(self._views),
                sent_per_s=sent / took_s,
                delivered_per_s=delivered / took_s,
                latency_p50_ms=nan,
                latency_p99_ms=nan,
                hops_p50=float(hops[len(hops) // 2]) if hops else 0.0,
                hops_max=hops[-1] if hops else 0,
                redundancy=(delivered + duplicates) / delivered if delivered else 0.0,
                slow_peers=sum(each.send_queue_bytes > 0 for each in status.neighbors),
                missed=missed,
                links_made=second.links_made,
                links_lost=second.links_lost,
            )
        )
        del self.samples[:-SAMPLES_MAX]

    # -- as a tape, driven by our own peer

    def observer(self, channel: "ChannelName", me: "PeerId") -> "_TimelineObserver":
        return _TimelineObserver(self, me)

    def received(self, me: "PeerId", message: "Broadcast", neighbor: "PeerId") -> None:
        self._second.hops += [message.hops] * len(message.messages)
        now_s = time.time()
        if now_s - self._sampled_s >= SAMPLE_INTERVAL_S:
            self._sampled_s = now_s
            size = sum(len(data) for data in message.messages)
            self._log.add(MessageSent(now_s, message.author, message.sequence, size))
            self._log.add(MessageHop(now_s, message.author, message.sequence, neighbor, me, message.hops))

    def missed(self, me: "PeerId", missed: "MissedMessages") -> None:
        self._log.add(MessagesMissed(time.time(), me, missed.author, missed.first_sequence, missed.last_sequence))

    def sent(self, me: "PeerId", sequence: int, size: int) -> None:
        self._log.add(MessageSent(time.time(), me, sequence, size))

    def annotate(self, text: str) -> None:
        self._log.add(Annotation(time.time(), text))


class _TimelineObserver:
    def __init__(self, timeline: PeerTimeline, me: "PeerId") -> None:
        self._timeline = timeline
        self._me = me

    def sent(self, sequence: int, data: bytes) -> None:
        self._timeline.sent(self._me, sequence, len(data))

    def received(self, message: "Broadcast", neighbor: "PeerId") -> None:
        self._timeline.received(self._me, message, neighbor)

    def missed(self, missed: "MissedMessages") -> None:
        self._timeline.missed(self._me, missed)

    def delivered(self, batch: "Batch") -> None:
        """Counted when received."""

    def on_event(self, event: "Event") -> None:
        """Links are polled."""

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
