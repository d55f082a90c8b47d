"""Inside a process of a lab: peers that do as the coordinator says, and tell what happens to them.

Links are told as they change; everything else is counted, and told a few times a second. Ends when told to, and when
the coordinator is gone (its end of the socket closes).
"""

import asyncio
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import broadloom
from broadloom.testing.checks import local_audit
from broadloom.testing.checks.delivery_log import AuthorHead
from broadloom.testing.cluster.config import TrafficRates
from broadloom.testing.partition import Partition, PartitionedConnect
from broadloom.testing.processes import process_stats
from broadloom.testing.processes.control_protocol import decode_line
from broadloom.testing.processes.managed_peer import ManagedPeer, PeerTally
from broadloom.testing.processes.peer_observer import ClusterPeerObserver, SampledMessages, TapeAnnotator
from broadloom.testing.processes.reporting import WorkerChannel
from broadloom.testing.workloads import chat, feed

if TYPE_CHECKING:
    from broadloom.protocol.events import Missed
    from broadloom.record import Tape

REPORT_INTERVAL_S = 0.2
"""How often counts are told."""
VIEW_DELAY_S = 0.1
"""Changes of links within this time are told together."""
REPORT_BACKLOG_BYTES_MAX = 1 << 20
"""If the coordinator has not read so much, the ways of messages are not told until it has; counts go on."""
STOP_TIMEOUT_S = 2.0
MISSING_REPORTED_MAX = 5
MISSED_RANGES_MAX = 50
"""Ranges of missed messages told one by one between two tellings; all are counted."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What all peers of a lab have in common."""

    channel: str
    degree: int
    tape: str
    """A folder; empty: nothing is recorded."""
    file_duration_s: float
    connect_timeout_s: float


class Worker(WorkerChannel):
    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._random = Random()
        self._peers: dict[int, ManagedPeer] = {}
        """By id."""
        self._changed_peers: dict[ManagedPeer, None] = {}
        self._tally = PeerTally()
        self._reported_counts = dict.fromkeys(("sent", "received", "duplicates"), 0)
        self._reported_heads: dict[int, int] = {}
        self._departed_counts = dict.fromkeys(("sent", "received", "duplicates"), 0)
        """Of peers that are no more."""
        self._missed_ranges: list[list[int]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._partition = Partition()
        self._sampled = SampledMessages()
        self._annotator = TapeAnnotator(chat.group_titles())
        self._traffic_tasks: list[asyncio.Task[None]] = []
        self._prices: dict[str, float] = {}
        self._tape: Tape | None = None

    async def main(self) -> None:
        await self.connect(on_warning=lambda _text: None)
        self._config = WorkerConfig(**decode_line(await self._requests.readline()))
        if self._config.tape:
            from broadloom.record import Tape, TapeSettings

            self._tape = Tape(
                Path(self._config.tape), settings=TapeSettings(file_duration_s=self._config.file_duration_s)
            )
        self._spawn(self._report_counts())
        try:
            async for request in self.requests():
                self._handle(request)
        finally:
            await self._stop()

    async def _stop(self) -> None:
        for task in [*self._tasks, *self._traffic_tasks]:
            task.cancel()
        for peer in self._peers.values():
            peer.channel.abort()
        if self._tape is not None:
            self._tape.close()
        self.report(tell="counts", **self._collect_counts())
        with suppress(OSError, TimeoutError):  # nobody may be there to read it
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._writer.drain()
        self._writer.close()

    # -- telling

    def _on_missed(self, peer: ManagedPeer, missed: "Missed") -> None:
        if len(self._missed_ranges) < MISSED_RANGES_MAX:
            self._missed_ranges.append([peer.peer_id, *missed])

    def _on_link_change(self, peer: ManagedPeer) -> None:
        if not self._changed_peers:
            self._loop.call_later(VIEW_DELAY_S, self._report_views)
        self._changed_peers[peer] = None

    def _report_views(self) -> None:
        changed, self._changed_peers = self._changed_peers, {}
        views = [resident.view() for resident in changed if resident.peer_id in self._peers]
        if views:
            self.report(tell="views", views=views)

    async def _report_counts(self) -> None:
        while True:
            await asyncio.sleep(REPORT_INTERVAL_S)
            self.report(tell="counts", **self._collect_counts())

    def _collect_counts(self) -> dict[str, Any]:
        tally, self._tally = self._tally, PeerTally()
        peers = list(self._peers.values())
        counts = tally.as_dict()
        for name in self._reported_counts:
            so_far = self._departed_counts[name] + sum(int(getattr(each.observer, f"{name}_count")) for each in peers)
            counts[name] = so_far - self._reported_counts[name]
            self._reported_counts[name] = so_far
        for each in peers:
            if each.chat_workload is not None:
                each.chat_workload.read_messages()
        heads = [
            [each.peer_id, each.sent_count, each.last_sent_ns]
            for each in peers
            if self._reported_heads.get(each.peer_id) != each.sent_count
        ]
        self._reported_heads.update({peer: sent for peer, sent, _ in heads})
        missed, self._missed_ranges = self._missed_ranges, []
        counts |= {"marks": heads, "missed_ranges": missed, "broken_count": self._violation_count}
        counts["slow"] = sorted({peer for each in peers for peer in each.slow_neighbors()})
        counts["diameters"] = [[each.peer_id, each.node.peer.diameter.estimate] for each in peers]
        counts["lost_rows"] = self._tape.dropped_rows if self._tape is not None else 0
        if self._writer.transport.get_write_buffer_size() < REPORT_BACKLOG_BYTES_MAX:
            counts |= {"said": list(self._sampled.sent), "hops_seen": list(self._sampled.hops)}
            self._sampled.sent.clear()
            self._sampled.hops.clear()
        counts["dropped"] = self._sampled.dropped
        return counts

    # -- orders

    def _handle(self, request: dict[str, Any]) -> None:
        match request["do"]:
            case "start":
                self._spawn(self._start(request["number"], request["portals"], chats=request["talks"]))
            case "kill":
                for peer in self._remove(request["peers"]):
                    self._spawn(peer.abort())
            case "leave":
                for peer in self._remove(request["peers"]):
                    self._spawn(self._leave(peer))
            case "rates":
                self._set_rates(TrafficRates(**request["rates"]))
            case "follow":
                self._sampled.one_in = request["one_of"]
            case "border":
                self._partition.set_far_side(request["peers"], request["ports"])
                for peer in self._peers.values():
                    peer.node.drop_crossing_connections()
            case "suppress":
                self._peers[request["peer"]].suppressed_batches += request["count"]
            case question:
                self.report(answer=request["ask"], **self._reply(question, request))

    def _reply(self, kind: str, request: dict[str, Any]) -> dict[str, Any]:
        peers: list[Any] = list(self._peers.values())
        match kind:
            case "heads":
                return local_audit.author_heads(peers, request["gone"])
            case "check":
                return self._find_missing(request["roll"])
            case "vitals":
                return process_stats.usage() | {"views": [each.view() for each in peers]}
        raise ValueError(f"no such order: {kind!r}")

    def _find_missing(self, rows: list[list[int]]) -> dict[str, Any]:
        """What our peers lack of what is owed."""
        expected = {author: AuthorHead(last, last_ns) for author, last, last_ns in rows}
        missing = [
            f"peer {each.number} {text}"
            for each in self._peers.values()
            for text in each.delivery_log.find_missing(expected)
        ]
        pairs = len(expected) * len(self._peers)
        return {"lacking": missing[:MISSING_REPORTED_MAX], "lacking_count": len(missing), "pairs": pairs}

    def _remove(self, peer_ids: list[int]) -> list[ManagedPeer]:
        """Off our list, with what they have counted kept."""
        removed = [self._peers.pop(peer) for peer in peer_ids if peer in self._peers]
        for each in removed:
            for name in self._departed_counts:
                self._departed_counts[name] += int(getattr(each.observer, f"{name}_count"))
        return removed

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self, number: int, bootstrap: list[str], *, chats: bool) -> None:
        observer = ClusterPeerObserver(self._tape, feed.member_name(number), self._sampled, self._annotator)
        began_ns = time.monotonic_ns()
        try:
            channel = await PartitionedConnect(
                self._config.channel,
                self._partition,
                bootstrap=bootstrap,
                timeout_s=self._config.connect_timeout_s,
                tape=observer,
                settings=broadloom.ChannelSettings(degree=self._config.degree),
            )
        except broadloom.BroadloomError as problem:
            self.report(tell="failed", number=number, text=str(problem))
            return

        def on_violation(promise: int, text: str) -> None:
            self.report_violation(promise, f"peer {number} ({channel.peer_id:016x}) {text}")

        peer = ManagedPeer(
            number,
            channel,
            observer,
            tally=lambda: self._tally,
            record_position=self._annotator.record_position,
            on_violation=on_violation,
            on_missed=self._on_missed,
            on_change=self._on_link_change,
        )
        self._peers[peer.peer_id] = peer
        if chats:
            await peer.start_chat(self._random)
        else:
            peer.listen()
        took_s = (peer.connected_ns - began_ns) / 1e9
        address = peer.node.peer.me.address
        # With its links: a peer of which they are not known must not be overlooked when the fabric is looked at.
        self.report(tell="connected", number=number, took_s=took_s, port=address.port, view=peer.view())

    async def _leave(self, peer: ManagedPeer) -> None:
        began_ns = time.monotonic_ns()
        await peer.leave()
        took_s = (time.monotonic_ns() - began_ns) / 1e9
        self.report(tell="left", peer=peer.peer_id, sent=peer.sent_count, sent_ns=peer.last_sent_ns, took_s=took_s)

    # -- traffic

    def _set_rates(self, rates: TrafficRates) -> None:
        for task in self._traffic_tasks:
            task.cancel()
        kinds = (
            (rates.ticks_per_s, lambda _resident: feed.tick(self._random, self._prices)),
            (rates.identifications_per_s, lambda resident: feed.identification(resident.name)),
            (rates.ads_per_s, lambda _resident: feed.ad(self._random)),
        )
        self._traffic_tasks = [
            self._loop.create_task(self._send_traffic(per_s, make)) for per_s, make in kinds if per_s
        ]
        if rates.chat_per_s:
            self._traffic_tasks.append(self._loop.create_task(self._send_chat(rates.chat_per_s)))

    async def _send_traffic(self, per_s: float, make: Any) -> None:
        """At random moments, each time a random peer; an order to stop never breaks off a message half sent."""
        while True:
            await asyncio.sleep(self._random.expovariate(per_s))
            if self._peers:
                peer = self._random.choice(list(self._peers.values()))
                await asyncio.shield(self._loop.create_task(peer.send(make(peer))))

    async def _send_chat(self, per_s: float) -> None:
        while True:
            await asyncio.sleep(self._random.expovariate(per_s))
            workloads = [each.chat_workload for each in self._peers.values() if each.chat_workload is not None]
            if workloads:
                with suppress(broadloom.BroadloomError):  # it is leaving just now
                    await asyncio.shield(self._loop.create_task(self._random.choice(workloads).post()))


def main(sock: socket.socket) -> None:
    """What a forked process does with its life."""
    from broadloom.transport.event_loop import run

    run(Worker(sock).main())
