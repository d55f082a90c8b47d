"""Observers of the peers in a worker. They see a peer from its first moment on and forward everything to its tape.

Every message is counted, but only a sample is followed hop by hop, so the reports stay bounded. The sample depends on
author and sequence alone: all peers pick the same messages without coordination.
"""

import time
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any

from broadloom.groups import payload_ids
from broadloom.groups.codec import LAYER
from broadloom.testing.workloads import feed
from broadloom.wire.payload_kind import layer_kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from broadloom.groups import MessageId
    from broadloom.protocol import ChannelName
    from broadloom.protocol.events import Batch, Event, LayerEvent, Missed
    from broadloom.protocol.identity import Identity
    from broadloom.protocol.runtime import Observer, ObserverFactory
    from broadloom.record import PayloadMetadata, Recorder, Tape
    from broadloom.wire import Broadcast, PeerId

POSITIONS_MAX = 20_000
"""Chat messages whose position in the channel is remembered."""
SAMPLES_MAX = 4_000
"""Sampled hops waiting to be reported; the oldest are dropped."""
GROUPS_KIND = layer_kind(LAYER)
_MIX = 0x9E3779B97F4A7C15
_ID_MASK = (1 << 64) - 1


class PeerObserver:
    """Takes the place of a tape.

    It sees the messages of all layers, and before `connect` returns also where a `Missed` event belongs among them.
    """

    def __init__(self, tape: "ObserverFactory | None") -> None:
        self._tape = tape
        self._observer: Observer | None = None
        self.early: list[Batch | Missed] = []
        """What was delivered or missed before a `ManagedPeer` took over."""
        self.is_attached = False
        """Set when it has."""
        self.on_delivered: Callable[[Batch], None] | None = None
        self.created_ns = 0
        self.events: list[tuple[int, Event | LayerEvent]] = []
        """Link and state changes before `connect` returned, with their times."""

    def observer(
        self, channel: "ChannelName", me: "PeerId", *, name: str = "", identity: "Identity | None" = None
    ) -> "Observer":
        self.created_ns = time.monotonic_ns()
        if self._tape is not None:
            self._observer = self._tape.observer(channel, me, name=name, identity=identity)
        return self

    def sent(self, sequence: int, data: bytes, kind: int) -> None:
        if self._observer is not None:
            self._observer.sent(sequence, data, kind)

    def received(self, message: "Broadcast", neighbor: "PeerId") -> None:
        if self._observer is not None:
            self._observer.received(message, neighbor)

    def delivered(self, batch: "Batch") -> None:
        if not self.is_attached:
            self.early.append(batch)
        elif self.on_delivered is not None:
            self.on_delivered(batch)
        if self._observer is not None:
            self._observer.delivered(batch)

    def missed(self, missed: "Missed") -> None:
        if not self.is_attached:
            self.early.append(missed)
        if self._observer is not None:
            self._observer.missed(missed)

    def on_event(self, event: "Event | LayerEvent") -> None:
        if not self.is_attached:
            self.events.append((time.monotonic_ns(), event))
        if self._observer is not None:
            self._observer.on_event(event)

    def duplicates(self, count: int) -> None:
        if self._observer is not None:
            self._observer.duplicates(count)


class SampledMessages:
    """The messages that are followed through the fabric, for all peers of a worker."""

    def __init__(self) -> None:
        self.one_in = 1
        """One message in this many is followed; 0 for none."""
        self.sent: deque[list[Any]] = deque(maxlen=SAMPLES_MAX)
        """Time, author, sequence, size."""
        self.hops: deque[list[Any]] = deque(maxlen=SAMPLES_MAX)
        """Time, author, sequence, source, peer, hops."""

    def is_sampled(self, author: int, sequence: int) -> bool:
        one_in = self.one_in
        return one_in > 0 and ((author ^ sequence * _MIX & _ID_MASK) >> 20) % one_in == 0


class TapeAnnotator:
    """Reads group, parent message and topic from a payload, for the tape."""

    def __init__(self, titles: dict[int, str]) -> None:
        self._titles = titles
        self._positions: OrderedDict[tuple[int, MessageId], tuple[int, int]] = OrderedDict()
        """Group id and message id to author and sequence in the channel."""

    def record_position(self, author: int, sequence: int, data: bytes, kind: int) -> None:
        """Remember where a chat message is in the channel, so that a reply to it can name its parent."""
        ids = payload_ids(data) if kind == GROUPS_KIND else None
        if ids is not None and (ids.group_id, ids.message_id) not in self._positions:
            self._positions[ids.group_id, ids.message_id] = author, sequence
            if len(self._positions) > POSITIONS_MAX:
                self._positions.popitem(last=False)

    def describe(self, data: bytes, kind: int) -> "PayloadMetadata | None":
        from broadloom.record import PayloadMetadata

        ids = payload_ids(data) if kind == GROUPS_KIND else None
        if ids is not None:
            title = self._titles.get(ids.group_id, f"{ids.group_id:016x}")
            parent = self._positions.get((ids.group_id, ids.parent_id)) if ids.parent_id is not None else None
            return PayloadMetadata(title, parent, "chat")
        return PayloadMetadata(topic=feed.TICK) if feed.sent_at(data) is not None else None


class ClusterPeerObserver(PeerObserver):
    """Also counts, samples messages and annotates the tape."""

    def __init__(self, tape: "Tape | None", sampled: SampledMessages, annotator: TapeAnnotator) -> None:
        super().__init__(tape)
        self._recording_tape = tape
        self._sampled = sampled
        self._annotator = annotator
        self._peer_id: PeerId = 0
        self._author_recorder: Recorder | None = None
        self.on_sent: Callable[[int], None] | None = None
        self.received_count = 0
        self.duplicates_count = 0

    def observer(
        self, channel: "ChannelName", me: "PeerId", *, name: str = "", identity: "Identity | None" = None
    ) -> "ClusterPeerObserver":
        super().observer(channel, me, name=name, identity=identity)
        self._peer_id = me
        if self._recording_tape is not None:
            # Only the author's row has the metadata. A receiver's rows are those of the channel, where a reply may
            # arrive before its parent; the groups restore causal order later, above the tape.
            self._author_recorder = self._recording_tape.observer(
                channel, me, name=name, identity=identity, describe=self._annotator.describe
            )
        return self

    def sent(self, sequence: int, data: bytes, kind: int) -> None:
        if self.on_sent is not None:
            self.on_sent(sequence)
        self._annotator.record_position(self._peer_id, sequence, data, kind)
        if self._author_recorder is not None:
            self._author_recorder.sent(sequence, data, kind)
        if self._sampled.is_sampled(self._peer_id, sequence):
            self._sampled.sent.append([time.time(), self._peer_id, sequence, len(data)])

    def received(self, message: "Broadcast", neighbor: "PeerId") -> None:
        author, first, _, messages, hops = message[:5]
        self.received_count += len(messages)
        for sequence in range(first, first + len(messages)):
            if self._sampled.is_sampled(author, sequence):
                hop = [time.time(), author, sequence, neighbor, self._peer_id, hops]
                self._sampled.hops.append(hop)
        super().received(message, neighbor)

    def duplicates(self, count: int) -> None:
        self.duplicates_count += count
        super().duplicates(count)
