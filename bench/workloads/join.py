"""Joining: newcomers, one after the other, into a group in which one member talks all the time.

From the call that connects, with imports done, until the first message is there. Then the newcomer stays, and what it
lacks from its first message on is counted: a system that says "connected" too early shows it here.
"""

import asyncio

from bench.group import RESPONSE_S, Group
from bench.machine import ResourceMeter, wait_until_idle
from bench.plan import JOIN_MEMBERS, Case, Plan
from bench.result_row import Row
from bench.summary import median
from bench.systems import System

FIRST_S = 30.0
SENDING_S = 0.5
BETWEEN_S = 0.1
LISTEN_S = 0.5


async def join(system: System, case: Case, plan: Plan) -> list[Row]:
    members, all_indexes = range(JOIN_MEMBERS), range(case.receivers + 1)
    async with Group(system, case, plan, [0], len(all_indexes)) as group:
        first, *others = await group.start(members, members[1:])
        for node in (first, *others):
            await group.connect(node)
        await group.warm([first], others)
        newcomers = await group.start(all_indexes[len(members) :], all_indexes[len(members) :])
        await wait_until_idle(plan.calm_s)
        first.send(f"send {case.messages} {case.rate_per_s}")
        await asyncio.sleep(SENDING_S)
        meter, times_ms = ResourceMeter(group.pids), []
        for node in newcomers:
            began_ns = await group.connect(node)
            (received_ns,) = await node.wait_for("first", FIRST_S)
            times_ms.append((int(received_ns) - began_ns) / 1e6)
            await asyncio.sleep(BETWEEN_S)
        await asyncio.sleep(LISTEN_S)
        reports = await group.reports(newcomers)
        gaps = [int((await node.request("gaps", "gaps", RESPONSE_S))[0]) for node in newcomers]
        cpu_s, _, foreign = meter.read()
        return [
            {
                "join_ms": median(times_ms),
                "join_max_ms": max(times_ms),
                "joins_ms": times_ms,
                "gaps": sum(gaps),
                "duplicates": sum(report.duplicates for report in reports),
                "cpu_s": cpu_s,
                "foreign_share": foreign,
            }
        ]
