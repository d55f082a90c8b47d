"""The worker process of a local cluster: peers with live traffic, chat groups, and partitions.

Link changes are reported as they happen; everything else is counted and reported a few times per second.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import broadloom
from broadloom.protocol.events import Batch, LinkDown, LinkUp, Missed
from broadloom.testing.cluster.config import TrafficRates
from broadloom.testing.histogram import LatencyHistogram
from broadloom.testing.partition import Partition, PartitionedConnect, PartitionedNode
from broadloom.testing.processes.managed_peer import ManagedPeer
from broadloom.testing.processes.peer_observer import (
    ClusterPeerObserver,
    PeerObserver,
    SampledMessages,
    TapeAnnotator,
)
from broadloom.testing.processes.worker import Worker
from broadloom.testing.workloads import chat, feed

if TYPE_CHECKING:
    from broadloom.channel import ChannelEvent

REPORT_INTERVAL_S = 0.2
REPORT_BACKLOG_BYTES_MAX = 1 << 20
"""With more unread by the coordinator, sampled hops are held back; counts are still reported."""
MISSED_RANGES_MAX = 50
"""Missed ranges listed per report; all are counted."""
CLOSE_TIMEOUT_S = 2.0


class PeerTally:
    """Counts of all peers of a worker since the last report."""

    def __init__(self) -> None:
        self.delivered = 0
        self.missed = 0
        self.links_made = 0
        self.links_lost = 0
        self.latency = LatencyHistogram()
        self.hops: dict[int, int] = {}
        self.missed_ranges: list[list[int]] = []

    def as_dict(self) -> dict[str, Any]:
        return {
            "delivered": self.delivered,
            "missed": self.missed,
            "missed_ranges": self.missed_ranges[:MISSED_RANGES_MAX],
            "links_made": self.links_made,
            "links_lost": self.links_lost,
            "latency": self.latency.as_dict() if self.latency.total else {},
            "hops": [[hops, count] for hops, count in self.hops.items()],
        }


class ClusterPeer(ManagedPeer):
    worker: "ClusterWorker"
    observer: ClusterPeerObserver
    logs_layers = True

    def __init__(
        self, worker: Worker[Any], number: int, channel: broadloom.Channel, observer: PeerObserver | None
    ) -> None:
        super().__init__(worker, number, channel, observer)
        self.name = feed.member_name(number)
        self.chat_workload: chat.ChatWorkload | None = None
        self.suppressed_batches = 0
        """Number of batches to withhold from the log: an injected fault."""
        self.observer.on_sent = self._on_sent

    async def start_chat(self, random: Random) -> None:
        """Join the chat groups."""
        workload = chat.ChatWorkload(self.channel, self.name, self.number, random)
        await workload.join()
        self.chat_workload = workload

    # -- incoming

    def _on_batch(self, batch: Batch) -> None:
        if self.suppressed_batches:
            self.suppressed_batches -= 1
            return
        super()._on_batch(batch)
        now_s, tally = time.time(), self.worker.tally
        for message in batch:
            self.worker.annotator.record_position(message.author, message.sequence, message.data, message.kind)
            sent_s = feed.sent_at(message.data)
            if sent_s is not None:
                tally.latency.add(max(0, int((now_s - sent_s) * 1e9)))
        tally.delivered += len(batch)
        tally.hops[batch.hops] = tally.hops.get(batch.hops, 0) + len(batch)

    def _on_event(self, event: "ChannelEvent") -> None:
        if isinstance(event, LinkUp):
            self.worker.tally.links_made += 1
        elif isinstance(event, LinkDown):
            self.worker.tally.links_lost += 1
        super()._on_event(event)

    def _on_missed(self, missed: Missed) -> None:
        super()._on_missed(missed)
        tally = self.worker.tally
        tally.missed += missed.last_sequence - missed.first_sequence + 1
        tally.missed_ranges.append([self.peer_id, *missed])

    # -- outgoing

    def _on_sent(self, sequence: int) -> None:
        self.sent_count, self.last_sent_ns = sequence, time.monotonic_ns()

    async def send(self, broadcast: Awaitable[int]) -> None:
        with suppress(broadloom.BroadloomError):  # not connected at the moment, or leaving
            await broadcast

    async def post(self) -> None:
        if self.chat_workload is not None:
            with suppress(broadloom.BroadloomError):
                await self.chat_workload.post()

    # -- state

    @property
    def node(self) -> PartitionedNode:
        node = self.channel._node
        assert isinstance(node, PartitionedNode)
        return node

    def counts(self) -> Counter[str]:
        seen = self.observer
        return Counter(sent=self.sent_count, received=seen.received_count, duplicates=seen.duplicates_count)

    def slow_neighbors(self) -> list[int]:
        return [link.peer_id for link in self.node.peer.links if link.is_behind]

    # -- the end

    async def leave(self) -> None:
        await self._close_groups()
        await self.channel.leave()

    async def abort(self) -> None:
        """Drop all sockets without notice, as the kernel does for a killed process."""
        self.channel.abort()
        await self._close_groups()

    async def _close_groups(self) -> None:
        if self.chat_workload is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self.chat_workload.groups.aclose()


class ClusterWorker(Worker[ClusterPeer]):
    peer_class = ClusterPeer

    def __init__(self) -> None:
        super().__init__()
        self.tally = PeerTally()
        self._reported_counts = Counter[str]()
        self._departed_counts = Counter[str]()
        self._reported_heads: dict[int, int] = {}
        self._partition = Partition()
        self._sampled = SampledMessages()
        self.annotator = TapeAnnotator(chat.group_titles())
        self._traffic_tasks: list[asyncio.Task[None]] = []
        self._prices: dict[str, float] = {}

    def on_started(self) -> None:
        self.spawn(self._report_regularly())

    def on_stopped(self) -> None:
        self._report_counts()

    def make_observer(self, number: int) -> ClusterPeerObserver:
        return ClusterPeerObserver(self.tape, self._sampled, self.annotator)

    def member_name(self, number: int) -> str:
        return feed.member_name(number)

    def connect(self, options: broadloom.ConnectOptions) -> PartitionedConnect:
        return PartitionedConnect(self.config.channel, self._partition, options)

    async def prepare(self, peer: ClusterPeer, *, chats: bool = False, **_options: Any) -> dict[str, Any]:
        if chats:
            await peer.start_chat(self.random)
        return {}

    def on_removed(self, peer: ClusterPeer) -> None:
        self._departed_counts += peer.counts()

    # -- reports

    async def _report_regularly(self) -> None:
        while True:
            await asyncio.sleep(REPORT_INTERVAL_S)
            self._report_counts()

    def _report_counts(self) -> None:
        tally, self.tally = self.tally, PeerTally()
        peers = list(self.peers.values())
        totals = sum((peer.counts() for peer in peers), Counter(self._departed_counts))
        counts = tally.as_dict()
        counts |= {name: totals[name] - self._reported_counts[name] for name in ("sent", "received", "duplicates")}
        self._reported_counts = totals
        for peer in peers:
            if peer.chat_workload is not None:
                peer.chat_workload.read_messages()
        heads = [
            [peer.peer_id, peer.sent_count, peer.last_sent_ns]
            for peer in peers
            if self._reported_heads.get(peer.peer_id) != peer.sent_count
        ]
        self._reported_heads.update({peer_id: sent for peer_id, sent, _ in heads})
        counts |= {"heads": heads, "violation_count": self.violation_count}
        counts["slow"] = sorted({peer_id for peer in peers for peer_id in peer.slow_neighbors()})
        counts["diameters"] = [[peer.peer_id, peer.node.peer.diameter.estimate] for peer in peers]
        counts["dropped_rows"] = self.tape.dropped_rows if self.tape is not None else 0
        if self._writer.transport.get_write_buffer_size() < REPORT_BACKLOG_BYTES_MAX:
            counts |= {"sampled_sent": list(self._sampled.sent), "sampled_hops": list(self._sampled.hops)}
            self._sampled.sent.clear()
            self._sampled.hops.clear()
        self.report("counts", **counts)

    # -- commands

    def do_kill(self, *, numbers: list[int]) -> None:
        for peer in self.remove(numbers):
            self.spawn(peer.abort())

    def do_sample(self, *, one_in: int) -> None:
        self._sampled.one_in = one_in

    def do_partition(self, *, peers: Iterable[int], ports: Iterable[int]) -> None:
        self._partition.set_far_side(peers, ports)
        for peer in self.peers.values():
            peer.node.drop_crossing_connections()

    def do_suppress(self, *, number: int, count: int) -> None:
        self.peers[number].suppressed_batches += count

    def do_set_rates(self, *, rates: dict[str, float]) -> None:
        for task in self._traffic_tasks:
            task.cancel()
        per_s = TrafficRates(**rates)
        kinds = (
            (per_s.ticks_per_s, self._send_tick),
            (per_s.identifications_per_s, lambda peer: peer.send(peer.channel.identify())),
            (per_s.ads_per_s, self._send_ad),
            (per_s.chat_per_s, lambda _peer: self._post()),
        )
        self._traffic_tasks = [self.spawn(self.send_at_random(rate, send)) for rate, send in kinds if rate]

    async def _send_tick(self, peer: ClusterPeer) -> None:
        await peer.send(peer.channel.broadcast(feed.tick(self.random, self._prices)))

    async def _send_ad(self, peer: ClusterPeer) -> None:
        name, topic = self.random.choice(feed.ADS)
        await peer.send(peer.channel.advert(name, topic=topic))

    async def _post(self) -> None:
        chatting = [peer for peer in self.peers.values() if peer.chat_workload is not None]
        if chatting:
            await self.random.choice(chatting).post()
