"""What one peer of a channel may know, as a story: itself, its neighbours, and whom they say they are linked to.

Nobody sees the whole of a channel that it only takes part in. Of a message it knows the last step: from which neighbour
its first copy came, and how many links it had travelled.
"""

import time
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING

from weft.lab.figures import SAMPLES_KEPT_MAX, Sample
from weft.lab.story import Came, Change, ChangeLog, Hop, LinkDown, LinkUp, Missed, PeerView, Said, Told, Went

if TYPE_CHECKING:
    from weft.channel import Channel
    from weft.channel.status import Status
    from weft.fabric.channel_id import ChannelName
    from weft.fabric.events import Batch, Event
    from weft.fabric.events import Missed as MissedMessages
    from weft.wire import Broadcast, PeerId

RIPPLE_EVERY_S = 0.3
"""A message is shown at most so often."""
NAME_DIGITS = 6


@dataclass(slots=True)
class _Second:
    """What is counted between two samples."""

    began_s: float
    hops: list[int]
    made: int = 0
    lost: int = 0


class Heard:
    """A story. Give it to `weft.connect` as the tape, then tell it the channel: `heard.channel = channel`."""

    def __init__(self, channel: "Channel | None" = None) -> None:
        self.channel = channel
        self._log = ChangeLog()
        self._seen: dict[int, PeerView] = {}
        self._links: set[tuple[int, int]] = set()
        self._rippled_s = 0.0
        self._second = _Second(time.time(), [])
        self._counters: dict[str, int] = {}
        self.samples: list[Sample] = []

    # -- a story

    def now(self) -> dict[int, PeerView]:
        return views_of(self.channel.status()) if self.channel is not None else {}

    def changes(self, since: int) -> tuple[int, list[Change]]:
        self._look()
        return self._log.since(since)

    def _look(self) -> None:
        """Compare with what was seen last; called as often as somebody asks."""
        now_s, views = time.time(), self.now()
        links = {(min(a, b), max(a, b)) for a, view in views.items() for b in view.links if b in views}
        for peer in [each for each in self._seen if each not in views]:
            # A neighbour of a neighbour that is out of sight need not be gone; of our own neighbours a link tells.
            self._log.add(Went(now_s, peer, "left"))
        for peer, view in views.items():
            if peer not in self._seen:
                self._log.add(Came(now_s, peer, view.name))
        for pair in sorted(self._links - links):
            self._second.lost += 1
            self._log.add(LinkDown(now_s, *pair))
        for pair in sorted(links - self._links):
            self._second.made += 1
            self._log.add(LinkUp(now_s, *pair))
        self._seen, self._links = views, links
        if now_s - self._second.began_s >= 1 and self.channel is not None:
            self._sample(self.channel.status(), now_s)

    # -- figures

    def figures(self) -> list[Sample]:
        """One sample a second; what one peer cannot know is not a number."""
        return list(self.samples)

    def _sample(self, status: "Status", now_s: float) -> None:
        second, took_s = self._second, now_s - self._second.began_s
        self._second = _Second(now_s, [])
        before, self._counters = self._counters or status.counters, dict(status.counters)
        sent, delivered, duplicates, missed = (
            status.counters[name] - before.get(name, 0) for name in ("sent", "delivered", "duplicates", "missed")
        )
        hops = sorted(second.hops)
        self.samples.append(
            Sample(
                at_s=now_s,
                peers=len(self._seen),
                sent_per_s=sent / took_s,
                delivered_per_s=delivered / took_s,
                latency_p50_ms=nan,
                latency_p99_ms=nan,
                hops_p50=float(hops[len(hops) // 2]) if hops else 0.0,
                hops_max=hops[-1] if hops else 0,
                redundancy=(delivered + duplicates) / delivered if delivered else 0.0,
                slow_peers=sum(each.queued_bytes > 0 for each in status.neighbours),
                missed=missed,
                links_made=second.made,
                links_lost=second.lost,
            )
        )
        del self.samples[:-SAMPLES_KEPT_MAX]

    # -- as a tape: told by our own peer

    def observer(self, channel: "ChannelName", me: "PeerId") -> "_Observer":
        return _Observer(self, me)

    def received(self, me: "PeerId", message: "Broadcast", neighbour: "PeerId") -> None:
        self._second.hops += [message.hops] * len(message.messages)
        now_s = time.time()
        if now_s - self._rippled_s >= RIPPLE_EVERY_S:
            self._rippled_s = now_s
            size = sum(len(data) for data in message.messages)
            self._log.add(Said(now_s, message.author, message.sequence, size))
            self._log.add(Hop(now_s, message.author, message.sequence, neighbour, me, message.hops))

    def missed(self, me: "PeerId", missed: "MissedMessages") -> None:
        self._log.add(Missed(time.time(), me, missed.author, missed.first, missed.last))

    def sent(self, me: "PeerId", sequence: int, size: int) -> None:
        self._log.add(Said(time.time(), me, sequence, size))

    def say(self, text: str) -> None:
        self._log.add(Told(time.time(), text))


class _Observer:
    def __init__(self, heard: Heard, me: "PeerId") -> None:
        self._heard = heard
        self._me = me

    def sent(self, sequence: int, data: bytes) -> None:
        self._heard.sent(self._me, sequence, len(data))

    def received(self, message: "Broadcast", neighbour: "PeerId") -> None:
        self._heard.received(self._me, message, neighbour)

    def missed(self, missed: "MissedMessages") -> None:
        self._heard.missed(self._me, missed)

    def delivered(self, batch: "Batch") -> None:
        """What was received is delivered."""

    def happened(self, event: "Event") -> None:
        """Links are looked at."""

    def duplicates(self, count: int) -> None:
        """Counted by the peer itself."""


def views_of(status: "Status") -> dict[int, PeerView]:
    """Ourselves, our neighbours, and theirs."""
    me, holes = int(status.peer, 16), 0 if status.small else status.holes
    near = {int(each.peer, 16): each for each in status.neighbours}

    def view(peer: int, name: str, state: str, links: tuple[int, ...], holes: int = 0) -> PeerView:
        return PeerView(peer, name, state, links, holes, status.diameter, status.small)

    views = {me: view(me, "this page", status.state, tuple(near), holes)}
    for peer, each in near.items():
        links = tuple(int(other, 16) for other in each.neighbours)
        views[peer] = view(peer, each.name or each.peer[:NAME_DIGITS], "connected", links)
    for other in [other for peer in near for other in views[peer].links]:
        if other not in views:
            views[other] = view(other, f"{other:016x}"[:NAME_DIGITS], "unknown", ())
    return views
