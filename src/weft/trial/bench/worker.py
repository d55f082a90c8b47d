"""Inside a process that is measured: one peer, which speaks as the coordinator says."""

import asyncio
import socket
import time
from typing import Any

import weft
from weft.trial import vitals
from weft.trial.bench.plan import BenchTerms, Security
from weft.trial.bench.reader import Reader
from weft.trial.worker import Worker

TELL_NS = 200_000_000
"""Who speaks tells how far it is, so often."""


class BenchWorker(Worker):
    def __init__(self, terms: BenchTerms, end: socket.socket) -> None:
        super().__init__(terms, end)
        self._bench = terms
        self._reader: Reader | None = None
        self._hushed = False

    def _obey(self, order: dict[str, Any]) -> None:
        match order["do"]:
            case "speak":
                self._hushed = False
                self._spawn(self._speak(order["most"], order["seconds"], order["per_s"], order["at_ns"]))
            case "hush":
                self._hushed = True
            case _:
                super()._obey(order)

    def _answer(self, question: str, order: dict[str, Any]) -> dict[str, Any]:
        reader = self._reader
        match question:
            case "begin":
                if reader is not None:
                    reader.begin(timed=order["timed"])
                return {}
            case "heads":
                return {"peers": [reader.heads()] if reader is not None else []}
            case "report":
                return {"peers": [reader.report()] if reader is not None else []} | vitals.usage()
        return super()._answer(question, order)

    async def _start(self, number: int, order: dict[str, Any]) -> None:
        terms, start_ns = self._bench, time.monotonic_ns()
        try:
            channel = await weft.connect(
                terms.channel,
                portals=order["portals"],
                key=terms.key,
                plain=terms.security is Security.PLAIN,
                signed=True if terms.security is Security.SIGNED else None,
                timeout_s=terms.connect_s,
                settings=weft.Settings(degree=terms.degree),
            )
        except weft.WeftError as problem:
            self.tell(tell="failed", number=number, text=str(problem))
            return

        def broken(promise: int, text: str) -> None:
            self.broken(promise, f"peer {number} {text}")

        reader = Reader(number, channel, terms.size_bytes, broken=broken, changed=self._link_changed)
        reader.begin(timed=order["timed"])
        self._reader = self._members[number] = reader
        took_s = (reader.connected_ns - start_ns) / 1e9
        self.tell(tell="connected", number=number, took_s=took_s, phases={}, view=reader.view())

    async def _speak(self, most: int, seconds: float, per_s: float, at_ns: int) -> None:
        """At most so many messages, and not for longer than this; `per_s` is 0 at full speed."""
        reader = self._reader
        assert reader is not None
        await asyncio.sleep(max(0.0, (at_ns - time.monotonic_ns()) / 1e9))
        first_ns = now_ns = time.monotonic_ns()
        end_ns, tell_ns, count = first_ns + int(seconds * 1e9), first_ns + TELL_NS, 0
        try:
            while count < most and not self._hushed:
                now_ns = time.monotonic_ns()
                if now_ns >= end_ns:
                    break
                if now_ns >= tell_ns:
                    tell_ns = now_ns + TELL_NS
                    self.tell(tell="speaking", number=reader.number, count=count)
                due_ns = first_ns + int(count * 1e9 / per_s) if per_s else 0
                if due_ns > now_ns:
                    await asyncio.sleep((due_ns - now_ns) / 1e9)
                    continue
                await reader.speak(now_ns)
                count += 1
        except weft.WeftError as problem:
            self.fault(str(problem))
        self.tell(
            tell="spoken", number=reader.number, peer=reader.id, count=count, total=reader.sent, first_ns=first_ns
        )
