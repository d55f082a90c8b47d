"""Inside a process that is measured: one peer, which speaks as the coordinator says."""

import asyncio
import socket
import time
from typing import Any

import broadloom
from broadloom.testing.bench.config import BenchWorkerConfig, SecurityMode
from broadloom.testing.bench.measured_peer import MeasuredPeer
from broadloom.testing.chaos.worker import Worker
from broadloom.testing.processes import process_stats

PROGRESS_INTERVAL_NS = 200_000_000
"""Who speaks tells how far it is, so often."""


class BenchWorker(Worker):
    def __init__(self, config: BenchWorkerConfig, sock: socket.socket) -> None:
        super().__init__(config, sock)
        self._bench_config = config
        self._peer: MeasuredPeer | None = None
        self._is_stopped = False

    def _handle(self, request: dict[str, Any]) -> None:
        match request["do"]:
            case "speak":
                self._is_stopped = False
                self._spawn(self._send(request["most"], request["seconds"], request["per_s"], request["at_ns"]))
            case "hush":
                self._is_stopped = True
            case _:
                super()._handle(request)

    def _reply(self, kind: str, request: dict[str, Any]) -> dict[str, Any]:
        peer = self._peer
        match kind:
            case "begin":
                if peer is not None:
                    peer.start_measuring(timed=request["timed"])
                return {}
            case "heads":
                return {"peers": [peer.progress()] if peer is not None else []}
            case "report":
                return {"peers": [peer.report()] if peer is not None else []} | process_stats.usage()
        return super()._reply(kind, request)

    async def _start(self, number: int, request: dict[str, Any]) -> None:
        config, start_ns = self._bench_config, time.monotonic_ns()
        try:
            channel = await broadloom.connect(
                config.channel,
                bootstrap=request["portals"],
                key=config.key,
                tls=config.security is not SecurityMode.PLAIN,
                signed=True if config.security is SecurityMode.SIGNED else None,
                timeout_s=config.connect_timeout_s,
                settings=broadloom.ChannelSettings(degree=config.degree),
            )
        except broadloom.BroadloomError as problem:
            self.report(tell="failed", number=number, text=str(problem))
            return

        def on_violation(promise: int, text: str) -> None:
            self.report_violation(promise, f"peer {number} {text}")

        peer = MeasuredPeer(
            number, channel, config.size_bytes, on_violation=on_violation, on_change=self._on_link_change
        )
        peer.start_measuring(timed=request["timed"])
        self._peer = self._peers[number] = peer
        took_s = (peer.connected_ns - start_ns) / 1e9
        self.report(tell="connected", number=number, took_s=took_s, phases={}, view=peer.view())

    async def _send(self, messages_max: int, duration_s: float, per_s: float, at_ns: int) -> None:
        """At most so many messages, and not for longer than this; `per_s` is 0 at full speed."""
        peer = self._peer
        assert peer is not None
        await asyncio.sleep(max(0.0, (at_ns - time.monotonic_ns()) / 1e9))
        first_ns = now_ns = time.monotonic_ns()
        end_ns, report_ns, count = first_ns + int(duration_s * 1e9), first_ns + PROGRESS_INTERVAL_NS, 0
        try:
            while count < messages_max and not self._is_stopped:
                now_ns = time.monotonic_ns()
                if now_ns >= end_ns:
                    break
                if now_ns >= report_ns:
                    report_ns = now_ns + PROGRESS_INTERVAL_NS
                    self.report(tell="speaking", number=peer.number, count=count)
                due_ns = first_ns + int(count * 1e9 / per_s) if per_s else 0
                if due_ns > now_ns:
                    await asyncio.sleep((due_ns - now_ns) / 1e9)
                    continue
                await peer.broadcast_next(now_ns)
                count += 1
        except broadloom.BroadloomError as problem:
            self.report_error(str(problem))
        self.report(
            tell="spoken", number=peer.number, peer=peer.peer_id, count=count, total=peer.sent_count, first_ns=first_ns
        )
