"""Requests and replies, to one process (`request`) or to the handler of an operation (`switch`), and values that are
read from afar (`mailbox`): one process serves, all others ask it.

First one after the other and not too often, for the latency of a single request; then as fast as each client allows,
for the rate that one server sustains. Connections are warm: every client has had an answer before.
"""

import asyncio

from bench.child_process import ChildProcess
from bench.group import RESPONSE_S, Group
from bench.machine import ResourceMeter, wait_until_idle
from bench.plan import REQUEST_CONCURRENCY, Case, Plan
from bench.result_row import Row
from bench.summary import quantile
from bench.systems import System

WARM_REQUESTS = 50
WARM_S = 30.0


async def request(system: System, case: Case, plan: Plan) -> list[Row]:
    processes = case.receivers + 1
    async with Group(system, case, plan, [0], processes) as group:
        server, *clients = await group.start(range(processes), [])
        for node in (server, *clients):
            await group.connect(node)
        (target,) = await server.request(f"serve {case.workload}", "serving", RESPONSE_S)
        asking = Asking(group, clients, target)
        await asking.all(WARM_REQUESTS, 0, 1, WARM_S)
        rows = []
        for _ in range(plan.repeats):
            await wait_until_idle(plan.calm_s)
            paced = int(case.rate_per_s * plan.latency_s)
            rows.append(await asking.latency(paced, case.rate_per_s) | await asking.rate(case.messages))
        return rows


class Asking:
    def __init__(self, group: Group, clients: list[ChildProcess], target: str) -> None:
        self._group = group
        self._clients = clients
        self._target = target

    async def all(self, count: int, rate: int, concurrency: int, seconds: float) -> tuple[float, int]:
        """Every client sends this many requests; seconds from the first to the last, and how many failed."""
        line = f"ask {self._target} {count} {rate} {concurrency}"
        answers = await asyncio.gather(*(client.request(line, "asked", seconds) for client in self._clients))
        began_ns, ended_ns, failures = zip(*(map(int, answer) for answer in answers), strict=True)
        return (max(ended_ns) - min(began_ns)) / 1e9, sum(failures)

    async def latency(self, count: int, rate: int) -> Row:
        _, failures = await self.all(count, rate, 1, self._group.plan.deadline_s)
        answers = await asyncio.gather(*(each.request("latencies", "latencies", RESPONSE_S) for each in self._clients))
        ms = sorted(int(value) / 1e6 for answer in answers for value in answer)
        return {"p50_ms": quantile(ms, 0.5), "p99_ms": quantile(ms, 0.99), "max_ms": ms[-1], "failures": failures}

    async def rate(self, count: int) -> Row:
        meter = ResourceMeter(self._group.pids)
        seconds, failures = await self.all(count, 0, REQUEST_CONCURRENCY, self._group.plan.deadline_s)
        cpu_s, wire_bytes, foreign = meter.read()
        requests = count * len(self._clients)
        return {
            "requests_per_s": requests / seconds,
            "cpu_us_per_request": cpu_s * 1e6 / requests,
            "wire_per_payload": wire_bytes / (2 * requests * self._group.case.size_bytes),
            "lost": failures,
            "duplicates": 0,
            "foreign_share": foreign,
        }
