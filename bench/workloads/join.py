"""Joining: newcomers, one after the other, into a group in which one member talks all the time.

From the call that connects, with imports done, until the first message is there. Then the newcomer stays, and what it
lacks from its first message on is counted: a system that says "connected" too early shows it here.
"""

import asyncio

from bench.group import ANSWER_S, Group
from bench.machine import Meter, calm
from bench.plan import JOIN_MEMBERS, Case, Plan
from bench.row import Row
from bench.summary import median
from bench.systems import System

FIRST_S = 30.0
TALKING_S = 0.5
BETWEEN_S = 0.1
LISTEN_S = 0.5


async def join(system: System, case: Case, plan: Plan) -> list[Row]:
    members, everyone = range(JOIN_MEMBERS), range(case.receivers + 1)
    async with Group(system, case, plan, [0], len(everyone)) as group:
        first, *others = await group.start(members, members[1:])
        for node in (first, *others):
            await group.connect(node)
        await group.warm([first], others)
        newcomers = await group.start(everyone[len(members) :], everyone[len(members) :])
        await calm(plan.calm_s)
        first.tell(f"send {case.messages} {case.rate_per_s}")
        await asyncio.sleep(TALKING_S)
        meter, times_ms = Meter(group.pids), []
        for node in newcomers:
            began_ns = await group.connect(node)
            (heard_ns,) = await node.said("first", FIRST_S)
            times_ms.append((int(heard_ns) - began_ns) / 1e6)
            await asyncio.sleep(BETWEEN_S)
        await asyncio.sleep(LISTEN_S)
        reports = await group.reports(newcomers)
        gaps = [int((await node.ask("gaps", "gaps", ANSWER_S))[0]) for node in newcomers]
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
