"""The worker process of a chaos run: peers that send checked payloads."""

import asyncio
import time
from typing import Any

import broadloom
from broadloom.testing.chaos.connect_phases import ConnectPhases
from broadloom.testing.processes import process_stats
from broadloom.testing.processes.managed_peer import ManagedPeer
from broadloom.testing.processes.worker import Worker
from broadloom.testing.workloads import checked_payload

BURST_MESSAGES = 50
"""Messages of one peer at full speed before the next peer's turn."""


class ChaosPeer(ManagedPeer):
    checks_payloads = True

    async def send(self, size_bytes: int) -> bool:
        """Broadcast the next message; returns False if the peer is not connected at the moment."""
        sequence, now_ns = self.sent_count + 1, time.monotonic_ns()
        payload = checked_payload.CheckedPayload(self.peer_id, sequence, now_ns, self.last_sent_ns)
        try:
            assigned = await self.channel.broadcast(checked_payload.encode(payload, size_bytes))
        except broadloom.NotConnectedError:
            return False
        self.sent_count, self.last_sent_ns = sequence, now_ns
        if assigned != sequence:
            self.report_violation(1, f"assigned sequence {assigned} to message {sequence}")
        return True

    def report(self) -> dict[str, Any]:
        log = self.delivery_log
        return {
            "view": self.view(),
            "deliveries": log.latency.total,
            "hops_max": log.hops_max,
            "missed": log.missed_count,
            "twice": log.delivered_twice,
            "latency": log.latency.as_dict(),
            "counters": {name: count for name, count in self.channel.status().counters.items() if count},
        }


class ChaosWorker(Worker[ChaosPeer]):
    peer_class = ChaosPeer

    def __init__(self) -> None:
        super().__init__()
        self._left_peers: list[ChaosPeer] = []
        self._connect_phases: ConnectPhases | None = None
        self._traffic_task: asyncio.Task[None] | None = None
        self._is_full_speed = False
        self._full_speed_tasks = 0
        """Tasks that still send, also shortly after the command to stop."""

    def on_removed(self, peer: ChaosPeer) -> None:
        self._left_peers.append(peer)

    def do_start(self, *, timed: bool = False, **request: Any) -> None:
        if timed:
            self._connect_phases = ConnectPhases()
        super().do_start(**request)

    async def prepare(self, peer: ChaosPeer, *, began_ns: int = 0, **_options: Any) -> dict[str, Any]:
        if self._connect_phases is None or peer.observer is None:
            return {"phases": {}}
        return {"phases": self._connect_phases.phases(began_ns, peer.observer, peer.connected_ns)}

    # -- commands

    def do_usage(self) -> dict[str, Any]:
        return super().do_usage() | {"is_sending": bool(self._full_speed_tasks)}

    def do_report(self) -> dict[str, Any]:
        return process_stats.usage() | {
            "peers": [peer.report() for peer in self.peers.values()],
            "left": [peer.report() for peer in self._left_peers],
            "warnings": self.warnings,
        }

    # -- traffic

    def do_set_traffic(self, *, per_s: float) -> None:
        self._is_full_speed = False
        if self._traffic_task is not None:
            self._traffic_task.cancel()
            self._traffic_task = None
        if per_s:
            self._traffic_task = self.spawn(self.send_at_random(per_s, lambda peer: peer.send(self.config.size_bytes)))

    async def do_send_at_full_speed(self) -> None:
        """As fast as `broadcast` admits. Not canceled but asked to end, so that no message is half sent."""
        self.do_set_traffic(per_s=0)
        self._is_full_speed = True
        self._full_speed_tasks += 1
        while self._is_full_speed:
            for peer in list(self.peers.values()):
                for _ in range(BURST_MESSAGES):
                    await peer.send(self.config.size_bytes)
            await asyncio.sleep(0)
        self._full_speed_tasks -= 1
