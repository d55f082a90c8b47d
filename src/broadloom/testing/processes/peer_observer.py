"""Sees a peer of a lab from its first moment on: counts, follows some messages on their way, and hands all to the tape.

The rule: what is reported is bounded. Every message is counted; the way of a few a second is told hop by hop. Which
ones is decided by author and number alone, so all peers choose the same without a word between them.
"""

import time
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any

from broadloom.groups import payload_ids
from broadloom.testing.chaos.managed_peer import PeerObserver
from broadloom.testing.workloads import feed

if TYPE_CHECKING:
    from broadloom.groups import MessageId
    from broadloom.protocol import ChannelName
    from broadloom.record import PayloadMetadata, Recorder, Tape
    from broadloom.wire import Broadcast, PeerId

POSITIONS_MAX = 20_000
"""Chat lines of which it is known as which message of the channel they came."""
SAMPLES_MAX = 4_000
"""Hops that wait to be told; the oldest give way, and are counted."""
_MIX = 0x9E3779B97F4A7C15
_ID_MASK = (1 << 64) - 1


class SampledMessages:
    """Which messages are followed, and what was seen of them: one for all peers of a process."""

    def __init__(self) -> None:
        self.one_in = 1
        """One message of so many is followed; 0: none."""
        self.sent: deque[list[Any]] = deque(maxlen=SAMPLES_MAX)
        """Time, author, sequence, size."""
        self.hops: deque[list[Any]] = deque(maxlen=SAMPLES_MAX)
        """Time, author, sequence, source, peer, hops."""
        self.dropped = 0

    def is_sampled(self, author: int, sequence: int) -> bool:
        one_in = self.one_in
        return one_in > 0 and ((author ^ sequence * _MIX & _ID_MASK) >> 20) % one_in == 0

    def add(self, queue: deque[list[Any]], row: list[Any]) -> None:
        if len(queue) == queue.maxlen:
            self.dropped += 1
        queue.append(row)


class TapeAnnotator:
    """Reads in a message what the tape shall say of it: its group, what it answers, its topic."""

    def __init__(self, titles: dict[int, str]) -> None:
        self._titles = titles
        self._positions: OrderedDict[tuple[int, MessageId], tuple[int, int]] = OrderedDict()
        """A line is known by its group and its number there."""

    def record_position(self, author: int, sequence: int, data: bytes) -> None:
        """If this message of the channel is a line of a conversation, an answer to it may name it."""
        ids = payload_ids(data)
        if ids is not None and (ids.group_id, ids.message_id) not in self._positions:
            self._positions[ids.group_id, ids.message_id] = author, sequence
            if len(self._positions) > POSITIONS_MAX:
                self._positions.popitem(last=False)

    def describe(self, data: bytes) -> "PayloadMetadata | None":
        from broadloom.record import PayloadMetadata

        ids = payload_ids(data)
        if ids is not None:
            title = self._titles.get(ids.group_id, f"{ids.group_id:016x}")
            parent = self._positions.get((ids.group_id, ids.parent_id)) if ids.parent_id is not None else None
            return PayloadMetadata(title, parent, "chat")
        content = feed.decode(data)
        return PayloadMetadata(topic=str(content["kind"])) if content is not None else None


class ClusterPeerObserver(PeerObserver):
    def __init__(self, tape: "Tape | None", name: str, sampled: SampledMessages, annotator: TapeAnnotator) -> None:
        super().__init__(None)
        self._real_tape = tape
        self._name = name
        self._sampled = sampled
        self._annotator = annotator
        self._peer_id: PeerId = 0
        self._author_recorder: Recorder | None = None
        self.recorder: Recorder | None = None
        self.sent_count = 0
        self.last_sent_ns = 0
        self.received_count = 0
        self.duplicates_count = 0

    def observer(self, channel: "ChannelName", me: "PeerId") -> "ClusterPeerObserver":
        super().observer(channel, me)
        self._peer_id = me
        if self._real_tape is not None:
            self._observer = self.recorder = self._real_tape.observer(channel, me, name=self._name)
            # Only the author says what a message is about. A receiver's rows are those of the channel, which may bring
            # an answer first; the groups put that right later, where no tape sees it.
            self._author_recorder = self._real_tape.observer(
                channel, me, name=self._name, describe=self._annotator.describe
            )
        return self

    def sent(self, sequence: int, data: bytes) -> None:
        self.sent_count, self.last_sent_ns = sequence, time.monotonic_ns()
        self._annotator.record_position(self._peer_id, sequence, data)
        if self._author_recorder is not None:
            self._author_recorder.sent(sequence, data)
        if self._sampled.is_sampled(self._peer_id, sequence):
            self._sampled.add(self._sampled.sent, [time.time(), self._peer_id, sequence, len(data)])

    def received(self, message: "Broadcast", neighbor: "PeerId") -> None:
        author, first, _, messages, hops = message[:5]
        self.received_count += len(messages)
        for sequence in range(first, first + len(messages)):
            if self._sampled.is_sampled(author, sequence):
                step = [time.time(), author, sequence, neighbor, self._peer_id, hops]
                self._sampled.add(self._sampled.hops, step)
        super().received(message, neighbor)

    def duplicates(self, count: int) -> None:
        self.duplicates_count += count
        super().duplicates(count)
