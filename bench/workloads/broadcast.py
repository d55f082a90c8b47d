"""Throughput, latency, all-to-all and scale: one or all send, and all others must have everything.

Time runs from the first message sent until the last receiver has its last; what has not come when nothing moves any
more counts as lost.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.child_process import ChildProcess
from bench.group import RESPONSE_S, Group, Report
from bench.machine import ResourceMeter, wait_until_idle
from bench.plan import Case, Plan
from bench.result_row import Row
from bench.summary import quantile, quantiles
from bench.systems import System

POLL_S = 0.05
PROGRESS_S = 0.25
CURVE_POINTS = 200
"""So many quantiles are kept of all latencies: enough to draw them, and a file that one can open."""


async def broadcast(system: System, case: Case, plan: Plan) -> list[Row]:
    all_send = case.workload == "all-to-all"
    processes = case.receivers if all_send else case.receivers + 1
    authors = range(processes) if all_send else range(1)
    receiving = range(processes) if all_send else range(1, processes)
    async with Group(system, case, plan, authors, processes) as group:
        nodes = await group.start(range(processes), receiving)
        for node in nodes:
            await group.connect(node)
        flow = Flow(group, [nodes[index] for index in authors], [nodes[index] for index in receiving])
        await group.warm(flow.senders, flow.receivers)
        rows = []
        for _ in range(1 if case.rate_per_s else plan.repeats):
            await wait_until_idle(plan.calm_s)
            rows.append(await flow.measure(case.messages))
            if rows[-1]["lost"]:
                break  # what was given up on may still come, and would be counted as the next one's
        return rows


@dataclass(frozen=True, slots=True)
class Flow:
    """Senders and receivers of a group that is connected."""

    group: Group
    senders: Sequence[ChildProcess]
    receivers: Sequence[ChildProcess]

    async def expect(self, messages: int) -> None:
        """Call before every sender sends this many messages."""
        for node in {*self.senders, *self.receivers}:
            node.clear("done", "sent")
        for receiver in self.receivers:
            expected = messages * self._authors_of(receiver)
            await receiver.request(f"expect {expected}", "expecting", RESPONSE_S)

    def begin(self, messages: int) -> None:
        for sender in self.senders:
            sender.send(f"send {messages} {self.group.case.rate_per_s}")

    def _authors_of(self, receiver: ChildProcess) -> int:
        return len(self.senders) - (receiver in self.senders)

    def expected_deliveries(self, messages: int) -> int:
        return messages * sum(map(self._authors_of, self.receivers))

    async def measure(self, messages: int) -> Row:
        before = await self.group.reports(self.receivers)
        await self.expect(messages)
        meter, began_ns = ResourceMeter(self.group.pids), time.monotonic_ns()
        self.begin(messages)
        progressed_ns = await self.end()
        cpu_s, wire_bytes, foreign = meter.read()
        after = await self.group.reports(self.receivers)
        began_ns, ended_ns = await self._times_ns(began_ns, progressed_ns)
        row = self._row(messages, before, after, (ended_ns - began_ns) / 1e9)
        row |= {
            "cpu_s": cpu_s,
            "cpu_us_per_delivery": cpu_s * 1e6 / max(1, row["delivered"]),
            "wire_bytes": wire_bytes,
            "wire_per_payload": wire_bytes / (row["wanted"] * self.group.case.size_bytes),
            "foreign_share": foreign,
        }
        return row | (await self._latencies() if self.group.case.workload == "latency" else {})

    async def end(self) -> int:
        """Wait until all have all, or nothing more comes; when something last came (ns)."""
        plan = self.group.plan
        deadline_s = time.monotonic() + plan.deadline_s
        had, progressed_s = -1, time.monotonic()
        while not all(receiver.has_reported("done") for receiver in self.receivers):
            await asyncio.sleep(POLL_S)
            self.group.check()
            is_late = time.monotonic() > deadline_s
            if is_late or all(sender.has_reported("sent") for sender in self.senders):
                await asyncio.sleep(PROGRESS_S)
                have = sum(report.received for report in await self.group.reports(self.receivers))
                if have != had:
                    had, progressed_s = have, time.monotonic()
                if is_late or time.monotonic() - progressed_s > plan.progress_timeout_s:
                    break
        return int(progressed_s * 1e9)

    async def _times_ns(self, began_ns: int, progressed_ns: int) -> tuple[int, int]:
        """As the processes themselves saw them, if all got everything."""
        if not all(receiver.has_reported("done") for receiver in self.receivers):
            return began_ns, progressed_ns
        sent = [await sender.wait_for("sent", RESPONSE_S) for sender in self.senders]
        done = [await receiver.wait_for("done", RESPONSE_S) for receiver in self.receivers]
        return min(int(first) for first, _ in sent), max(int(last) for (last,) in done)

    def _row(self, messages: int, before: Sequence[Report], after: Sequence[Report], seconds: float) -> Row:
        expected = self.expected_deliveries(messages)
        delivered = sum(report.received for report in after) - sum(report.received for report in before)
        return {
            "seconds": seconds,
            "wanted": expected,
            "delivered": delivered,
            "lost": expected - delivered,
            "duplicates": sum(report.duplicates for report in after) - sum(report.duplicates for report in before),
            "deliveries_per_s": delivered / seconds,
            "broadcasts_per_s": delivered / expected * messages * len(self.senders) / seconds,
        }

    async def _latencies(self) -> Row:
        responses = [await receiver.request("latencies", "latencies", RESPONSE_S) for receiver in self.receivers]
        ms = sorted(int(value) / 1e6 for response in responses for value in response)
        if not ms:
            return {}
        curve = [round(value, 4) for value in quantiles(ms, CURVE_POINTS)]
        return {"p50_ms": quantile(ms, 0.5), "p99_ms": quantile(ms, 0.99), "max_ms": ms[-1], "curve_ms": curve}
