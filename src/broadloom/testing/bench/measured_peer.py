"""One peer that is measured, inside its process: it speaks, and looks at every message that it is given.

The rule: what is checked must cost next to nothing beside Broadloom itself, so a message carries its number among its
author's and two times, and the rest is filler that nobody reads. (`broadloom chaos` checks every byte.)
"""

import os
import time
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any

import broadloom
from broadloom.protocol.events import Batch, Message, Missed
from broadloom.testing.bench.histogram import LatencyHistogram
from broadloom.testing.chaos.managed_peer import ManagedPeer, PeerObserver

if TYPE_CHECKING:
    from broadloom.channel import ChannelEvent

_HEADER = Struct(">QQQ")
"""Number; when it was sent, and when the one before it (CLOCK_MONOTONIC, which all processes of a machine share)."""
SIZE_MIN_BYTES = _HEADER.size


class MeasuredPeer(ManagedPeer):
    def __init__(
        self,
        number: int,
        channel: broadloom.Channel,
        size_bytes: int,
        *,
        on_violation: Callable[[int, str], None],
        on_change: Callable[[ManagedPeer], None],
    ) -> None:
        self._size_bytes = size_bytes
        self._filler = os.urandom(size_bytes - SIZE_MIN_BYTES)
        self._last_numbers: dict[int, int] = {}
        """Author -> number of its last message."""
        self._latency: LatencyHistogram | None = None
        self._counters_before: dict[str, int] = {}
        """Counters of the peer when the measurement began."""
        self._gaps: dict[int, None] = {}
        """Authors of whom it was told that it missed something: their next message may be any later one."""
        self._missed_count = 0
        self.deliveries = 0
        self.last_ns = 0
        super().__init__(number, channel, PeerObserver(None), on_violation=on_violation, on_change=on_change)
        channel.on_batch(self._on_batch)

    # -- speaking

    async def broadcast_next(self, now_ns: int) -> None:
        """The next message."""
        await self.channel.broadcast(_HEADER.pack(self.sent_count + 1, now_ns, self.last_sent_ns) + self._filler)
        self.sent_count += 1
        self.last_sent_ns = now_ns

    # -- hearing

    def _on_message(self, message: Message) -> None:
        self._on_batch(Batch.from_message(message))

    def _on_batch(self, batch: Batch) -> None:
        now_ns, latency, size = time.monotonic_ns(), self._latency, self._size_bytes
        last_number = self._last_numbers.get(batch.author)
        for data in batch.data:
            if len(data) != size:
                self._on_violation(1, f"was given {len(data)} bytes where {size} were sent")
                continue
            number, sent_ns, previous_ns = _HEADER.unpack_from(data)
            if last_number is None:
                if number > 1 and previous_ns >= self.connected_ns:
                    self._on_violation(3, f"started with message {number}, but was a member before {number - 1}")
            elif number != last_number + 1 and not (number > last_number and batch.author in self._gaps):
                how = "a second time, or late" if number <= last_number else "too early"
                self._on_violation(1, f"was given message {number} {how}: {last_number + 1} comes next")
            last_number = number
            if latency is not None:
                latency.add(max(0, now_ns - sent_ns))
        if last_number is not None:
            self._last_numbers[batch.author] = last_number
        self._gaps.pop(batch.author, None)
        self.deliveries += len(batch.data)
        self.last_ns = now_ns

    def _on_event(self, event: "ChannelEvent") -> None:
        if isinstance(event, Missed):
            self._gaps[event.author] = None
            self._missed_count += event.last_sequence - event.first_sequence + 1
        else:
            super()._on_event(event)

    # -- telling

    def start_measuring(self, *, timed: bool) -> None:
        """From here on it counts."""
        self.deliveries = self.last_ns = self._missed_count = 0
        self._latency = LatencyHistogram() if timed else None
        self._counters_before = self.channel.status().counters

    def progress(self) -> dict[str, Any]:
        """How far it is."""
        return {"peer": self.peer_id, "deliveries": self.deliveries, "heard": list(self._last_numbers.items())}

    def report(self) -> dict[str, Any]:
        counters = self.channel.status().counters
        counted = {name: counters[name] - self._counters_before.get(name, 0) for name in ("delivered", "duplicates")}
        latency = self._latency.as_dict() if self._latency is not None else {}
        report = {
            "number": self.number,
            "deliveries": self.deliveries,
            "missed": self._missed_count,
            "last_ns": self.last_ns,
        }
        return report | {"latency": latency, **counted}
