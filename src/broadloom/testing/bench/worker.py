"""The worker process of a benchmark: one peer that sends on command and checks what it receives.

The checks must cost next to nothing compared with Broadloom itself, so a message carries only its number and two times;
the rest is unchecked filler. (`broadloom chaos` checks every byte.)
"""

import asyncio
import os
import time
from struct import Struct
from typing import TYPE_CHECKING, Any

import broadloom
from broadloom.protocol.events import Batch, Missed
from broadloom.testing.histogram import LatencyHistogram
from broadloom.testing.processes import process_stats
from broadloom.testing.processes.managed_peer import ManagedPeer
from broadloom.testing.processes.worker import Worker

if TYPE_CHECKING:
    from broadloom.channel import Channel
    from broadloom.testing.processes.peer_observer import PeerObserver

_HEADER = Struct(">QQQ")
"""Number, time of sending, time of sending the previous message (CLOCK_MONOTONIC, common to all processes)."""
SIZE_MIN_BYTES = _HEADER.size
PROGRESS_INTERVAL_NS = 200_000_000


class MeasuredPeer(ManagedPeer):
    def __init__(self, worker: Worker[Any], number: int, channel: "Channel", observer: "PeerObserver | None") -> None:
        super().__init__(worker, number, channel, observer)
        self._size_bytes = worker.config.size_bytes
        self._filler = os.urandom(self._size_bytes - SIZE_MIN_BYTES)
        self._last_numbers: dict[int, int] = {}
        """Author to number of its last message."""
        self._latency: LatencyHistogram | None = None
        self._counters_before: dict[str, int] = {}
        self._gaps: set[int] = set()
        """Authors with missed messages: their next message may have any higher number."""
        self._missed_count = 0
        self.deliveries = 0
        self.last_ns = 0

    async def broadcast_next(self, now_ns: int) -> None:
        await self.channel.broadcast(_HEADER.pack(self.sent_count + 1, now_ns, self.last_sent_ns) + self._filler)
        self.sent_count += 1
        self.last_sent_ns = now_ns

    def _on_batch(self, batch: Batch) -> None:
        now_ns, latency, size = time.monotonic_ns(), self._latency, self._size_bytes
        last_number = self._last_numbers.get(batch.author)
        for data in batch.data:
            if len(data) != size:
                self.report_violation(1, f"received {len(data)} bytes instead of {size}")
                continue
            number, sent_ns, previous_ns = _HEADER.unpack_from(data)
            if last_number is None:
                if number > 1 and previous_ns >= self.connected_ns:
                    self.report_violation(3, f"started with message {number}, but joined before {number - 1} was sent")
            elif number != last_number + 1 and not (number > last_number and batch.author in self._gaps):
                how = "again or late" if number <= last_number else "too early"
                self.report_violation(1, f"received message {number} {how}: {last_number + 1} is next")
            last_number = number
            if latency is not None:
                latency.add(max(0, now_ns - sent_ns))
        if last_number is not None:
            self._last_numbers[batch.author] = last_number
        self._gaps.discard(batch.author)
        self.deliveries += len(batch.data)
        self.last_ns = now_ns

    def _on_missed(self, missed: Missed) -> None:
        self._gaps.add(missed.author)
        self._missed_count += missed.last_sequence - missed.first_sequence + 1

    def start_measuring(self, *, timed: bool) -> None:
        self.deliveries = self.last_ns = self._missed_count = 0
        self._latency = LatencyHistogram() if timed else None
        self._counters_before = self.channel.status().counters

    def progress(self) -> dict[str, Any]:
        return {"peer": self.peer_id, "deliveries": self.deliveries, "received": list(self._last_numbers.items())}

    def report(self) -> dict[str, Any]:
        counters = self.channel.status().counters
        counted = {name: counters[name] - self._counters_before.get(name, 0) for name in ("delivered", "duplicates")}
        return counted | {
            "number": self.number,
            "deliveries": self.deliveries,
            "missed": self._missed_count,
            "last_ns": self.last_ns,
            "latency": self._latency.as_dict() if self._latency is not None else {},
        }


class BenchWorker(Worker[MeasuredPeer]):
    peer_class = MeasuredPeer

    def __init__(self) -> None:
        super().__init__()
        self._is_stopped = False

    def make_observer(self, number: int) -> None:
        """Measure without an observer."""
        return

    async def prepare(self, peer: MeasuredPeer, **_options: Any) -> dict[str, Any]:
        peer.start_measuring(timed=False)
        return {"phases": {}}

    def do_start_measuring(self, *, timed: bool) -> dict[str, Any]:
        for peer in self.peers.values():
            peer.start_measuring(timed=timed)
        return {}

    def do_progress(self) -> dict[str, Any]:
        return {"peers": [peer.progress() for peer in self.peers.values()]}

    def do_report(self) -> dict[str, Any]:
        return process_stats.usage() | {"peers": [peer.report() for peer in self.peers.values()]}

    def do_stop_sending(self) -> None:
        self._is_stopped = True

    async def do_send(self, *, number: int, messages_max: int, duration_s: float, per_s: float, at_ns: int) -> None:
        """Send from `at_ns` on until a limit is reached; at full speed if `per_s` is 0."""
        self._is_stopped, peer = False, self.peers[number]
        await asyncio.sleep(max(0.0, (at_ns - time.monotonic_ns()) / 1e9))
        first_ns = time.monotonic_ns()
        end_ns, report_ns, count = first_ns + int(duration_s * 1e9), first_ns + PROGRESS_INTERVAL_NS, 0
        try:
            while count < messages_max and not self._is_stopped:
                now_ns = time.monotonic_ns()
                if now_ns >= end_ns:
                    break
                if now_ns >= report_ns:
                    report_ns = now_ns + PROGRESS_INTERVAL_NS
                    self.report("sending", number=number, count=count)
                due_ns = first_ns + int(count * 1e9 / per_s) if per_s else 0
                if due_ns > now_ns:
                    await asyncio.sleep((due_ns - now_ns) / 1e9)
                    continue
                await peer.broadcast_next(now_ns)
                count += 1
        except broadloom.BroadloomError as error:
            self.report_error(str(error))
        total = peer.sent_count
        self.report("sent", number=number, peer=peer.peer_id, count=count, total=total, first_ns=first_ns)
