"""Inside a process of a trial: peers that do as the coordinator says, and tell what happens to them.

Ends when told to, and when the coordinator is gone (its end of the socket closes).
"""

import asyncio
import socket
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import broadloom
from broadloom.testing.chaos.connect_phases import ConnectPhases
from broadloom.testing.chaos.managed_peer import ManagedPeer, PeerObserver
from broadloom.testing.checks import local_audit
from broadloom.testing.processes import process_stats
from broadloom.testing.processes.control_protocol import WorkerConfig
from broadloom.testing.processes.reporting import WorkerChannel

if TYPE_CHECKING:
    from broadloom.record import Tape

BURST_MESSAGES = 50
"""Messages of one peer before the next one's turn, and before anything else is looked at."""
VIEW_DELAY_S = 0.1
"""Changes of links within this time are told together."""


class Worker(WorkerChannel):
    def __init__(self, config: WorkerConfig, sock: socket.socket) -> None:
        super().__init__(sock)
        self._config = config
        self._random = Random()
        self._peers: dict[int, ManagedPeer] = {}
        self._left_peers: list[ManagedPeer] = []
        self._changed_peers: dict[ManagedPeer, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._traffic_task: asyncio.Task[None] | None = None
        self._is_full_speed = False
        self._full_speed_tasks = 0
        """Under way, also for a moment after the order to stop."""
        self._warnings: dict[str, int] = {}
        self._tape: Tape | None = None

    async def main(self) -> None:
        await self.connect(self.on_warning)
        if self._config.tape:
            from broadloom.record import Tape

            self._tape = Tape(Path(self._config.tape))
        try:
            async for request in self.requests():
                self._handle(request)
        finally:
            self._stop()

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._traffic_task is not None:
            self._traffic_task.cancel()
        for peer in self._peers.values():
            peer.channel.abort()
        if self._tape is not None:
            self._tape.close()

    # -- telling

    def on_warning(self, text: str) -> None:
        self._warnings[text] = self._warnings.get(text, 0) + 1

    def _on_link_change(self, peer: ManagedPeer) -> None:
        if not self._changed_peers:
            self._loop.call_later(VIEW_DELAY_S, self._report_views)
        self._changed_peers[peer] = None

    def _report_views(self) -> None:
        changed, self._changed_peers = self._changed_peers, {}
        self.report(tell="views", views=[member.view() for member in changed if member.number in self._peers])

    # -- orders

    def _handle(self, request: dict[str, Any]) -> None:
        match request["do"]:
            case "start":
                for number in request["numbers"]:
                    self._spawn(self._start(number, request))
            case "traffic":
                self._set_traffic(request["per_s"])
            case "shout":
                self._set_traffic(0)
                self._is_full_speed = True
                self._spawn(self._send_at_full_speed())
            case "leave":
                for number in request["numbers"]:
                    self._spawn(self._leave(self._peers.pop(number)))
            case question:
                self.report(answer=request["ask"], **self._reply(question, request))

    def _reply(self, kind: str, request: dict[str, Any]) -> dict[str, Any]:
        peers = list(self._peers.values())
        match kind:
            case "heads":
                return local_audit.author_heads(peers, request["gone"])
            case "check":
                return local_audit.find_missing(peers, request["roll"])
            case "missed":
                return {"told": [(each.number, *one) for each in peers for one in each.delivery_log.missed_ranges()]}
            case "held":
                return {"held": local_audit.find_held(peers, request["ranges"])}
            case "vitals":
                return process_stats.usage() | {"is_shouting": bool(self._full_speed_tasks)}
            case "report":
                left = [member.report() for member in self._left_peers]
                reports = {"peers": [member.report() for member in peers], "left": left}
                return (
                    reports
                    | {"broken_count": self._violation_count, "warnings": self._warnings}
                    | process_stats.usage()
                )
        raise ValueError(f"no such order: {kind!r}")

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self, number: int, request: dict[str, Any]) -> None:
        config, observer = self._config, PeerObserver(self._tape)
        wait_s = request["at_ns"] / 1e9 - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        start_ns = time.monotonic_ns()
        phases_timer = ConnectPhases() if request["timed"] else None
        try:
            channel = await broadloom.connect(
                config.channel,
                bootstrap=request["portals"],
                key=config.key,
                tls=config.key is not None,
                timeout_s=config.connect_timeout_s,
                tape=observer,
                settings=broadloom.ChannelSettings(degree=config.degree),
            )
        except broadloom.BroadloomError as problem:
            self.report(tell="failed", number=number, text=str(problem))
            return

        def on_violation(promise: int, text: str) -> None:
            self.report_violation(promise, f"peer {number} ({channel.peer_id:016x}) {text}")

        peer = ManagedPeer(number, channel, observer, on_violation=on_violation, on_change=self._on_link_change)
        self._peers[number] = peer
        took_s = (peer.connected_ns - start_ns) / 1e9
        phases = phases_timer.phases(start_ns, observer, peer.connected_ns) if phases_timer is not None else {}
        # With its links: a peer of which they are not known must not be overlooked when the fabric is looked at.
        self.report(tell="connected", number=number, took_s=took_s, phases=phases, view=peer.view())

    async def _leave(self, peer: ManagedPeer) -> None:
        self._left_peers.append(peer)
        start_ns = time.monotonic_ns()
        await peer.channel.leave()
        at_ns = time.monotonic_ns()
        self.report(
            tell="left",
            number=peer.number,
            sent=peer.sent_count,
            sent_ns=peer.last_sent_ns,
            at_ns=at_ns,
            took_s=(at_ns - start_ns) / 1e9,
        )

    # -- traffic

    def _set_traffic(self, per_s: float) -> None:
        self._is_full_speed = False
        if self._traffic_task is not None:
            self._traffic_task.cancel()
            self._traffic_task = None
        if per_s:
            self._traffic_task = self._loop.create_task(self._send_traffic(per_s))

    async def _send_traffic(self, per_s: float) -> None:
        """At random moments, each time a random peer; an order to stop never breaks off a message half sent."""
        while True:
            await asyncio.sleep(self._random.expovariate(per_s))
            if self._peers:
                peer = self._random.choice(list(self._peers.values()))
                await asyncio.shield(self._loop.create_task(peer.send(self._config.size_bytes)))

    async def _send_at_full_speed(self) -> None:
        """As fast as `broadcast` lets us. Ends by itself, so that no message is broken off half sent."""
        self._full_speed_tasks += 1
        while self._is_full_speed:
            for peer in list(self._peers.values()):
                for _ in range(BURST_MESSAGES):
                    await peer.send(self._config.size_bytes)
            await asyncio.sleep(0)
        self._full_speed_tasks -= 1
