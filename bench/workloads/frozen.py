"""A paused receiver: one of them is stopped (SIGSTOP) under full load and resumed some seconds later.

Three questions: How fast do the others receive meanwhile, compared with just before? Whose memory grows? Does the
paused receiver finally get everything, or at least learn what it missed?
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.child_process import ChildProcess
from bench.group import Group
from bench.machine import ResourceMeter, memory_bytes, wait_until_idle
from bench.plan import Case, Plan
from bench.result_row import Row
from bench.systems import System
from bench.workloads.broadcast import Flow

BEFORE_S = 2.0
AFTER_S = 2.0
SAMPLE_S = 0.1
MESSAGES_MAX = 3_000_000
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """How many messages the others had together, at one moment."""

    at_s: float
    received: int


async def frozen(system: System, case: Case, plan: Plan) -> list[Row]:
    async with Group(system, case, plan, [0], case.receivers + 1) as group:
        nodes = await group.start(range(case.receivers + 1), range(1, case.receivers + 1))
        for node in nodes:
            await group.connect(node)
        flow = Flow(group, nodes[:1], nodes[1:])
        await group.warm(flow.senders, flow.receivers)
        await wait_until_idle(plan.calm_s)
        undisturbed = await flow.measure(case.messages)
        length_s = BEFORE_S + plan.frozen_s + AFTER_S
        messages = min(MESSAGES_MAX, int(undisturbed["broadcasts_per_s"] * length_s))
        row = await PauseRun(flow, messages).run(plan.frozen_s)
        return [row | {"undisturbed_per_s": undisturbed["deliveries_per_s"] / case.receivers}]


class PauseRun:
    def __init__(self, flow: Flow, messages: int) -> None:
        self._flow = flow
        self._group = flow.group
        self._messages = messages
        self._paused_receiver = flow.receivers[-1]
        self._others = flow.receivers[:-1]
        self._samples: list[Sample] = []
        self._memory_peak: dict[str, int] = {}

    async def run(self, paused_s: float) -> Row:
        receiver_before = (await self._group.reports([self._paused_receiver]))[0]
        memory_before = self._memory()
        self._received_before = sum(report.received for report in await self._group.reports(self._others))
        await self._flow.expect(self._messages)
        meter = ResourceMeter(self._group.pids)
        self._flow.begin(self._messages)
        await self._watch(BEFORE_S)
        self._paused_receiver.pause()
        paused_at_s = time.monotonic()
        try:
            await self._watch(paused_s)
        finally:
            self._paused_receiver.resume()
        resumed_at_s = time.monotonic()
        await self._flow.end()
        _, _, foreign = meter.read()
        receiver_after = (await self._group.reports([self._paused_receiver]))[0]
        others_have = await self._others_received()
        wanted = self._messages * len(self._others)
        before = samples_between(self._samples, wanted, 0.0, paused_at_s)
        during = samples_between(self._samples, wanted, paused_at_s, resumed_at_s)
        before_per_s, during_per_s = (rate_per_s(samples) / len(self._others) for samples in (before, during))
        self._note_memory()
        return {
            "messages": self._messages,
            "frozen_s": resumed_at_s - paused_at_s,
            "before_per_s": before_per_s,
            "during_per_s": during_per_s,
            "others_kept": during_per_s / before_per_s if before_per_s else 0.0,
            "stall_s": longest_stall_s(during),
            "others_lost": wanted - others_have,
            "lacking": self._messages - (receiver_after.received - receiver_before.received),
            "missed": receiver_after.missed - receiver_before.missed,
            "troubles": receiver_after.errors - receiver_before.errors,
            "caught_up_s": await self._caught_up_s(resumed_at_s),
            "foreign_share": foreign,
            **{f"{role}_mib": peak / MIB for role, peak in self._memory_peak.items()},
            **{f"{who}_before_mib": held / MIB for who, held in memory_before.items()},
        }

    async def _watch(self, seconds: float) -> None:
        """Look at the others until this time is over."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self._note_memory()
            self._samples.append(Sample(time.monotonic(), await self._others_received()))
            await asyncio.sleep(SAMPLE_S)

    async def _others_received(self) -> int:
        return sum(report.received for report in await self._group.reports(self._others)) - self._received_before

    async def _caught_up_s(self, resumed_at_s: float) -> float | None:
        if not self._paused_receiver.has_reported("done"):
            return None
        (done_ns,) = await self._paused_receiver.wait_for("done", 1.0)
        return max(0.0, int(done_ns) / 1e9 - resumed_at_s)

    def _memory(self) -> dict[str, int]:
        parts: dict[str, Sequence[ChildProcess]] = {"sender": self._flow.senders, "others": self._others}
        parts["victim"] = [self._paused_receiver]
        if self._group.broker is not None:
            parts["broker"] = [self._group.broker]
        return {role: max(memory_bytes(child.pid) for child in children) for role, children in parts.items()}

    def _note_memory(self) -> None:
        for role, held in self._memory().items():
            self._memory_peak[role] = max(held, self._memory_peak.get(role, 0))


def samples_between(samples: Sequence[Sample], wanted: int, from_s: float, to_s: float) -> list[Sample]:
    """Those of that time, up to the first at which the others had everything."""
    inside = []
    for sample in samples:
        if from_s <= sample.at_s <= to_s:
            inside.append(sample)
            if sample.received >= wanted:
                break
    return inside


def rate_per_s(samples: Sequence[Sample]) -> float:
    """Messages a second from the first to the last of them."""
    if len(samples) < 2:
        return 0.0
    return (samples[-1].received - samples[0].received) / (samples[-1].at_s - samples[0].at_s)


def longest_stall_s(samples: Sequence[Sample]) -> float:
    """The longest time in which nobody got anything."""
    longest_s = 0.0
    moved = samples[0] if samples else Sample(0.0, 0)
    for sample in samples:
        longest_s = max(longest_s, sample.at_s - moved.at_s)
        if sample.received > moved.received:
            moved = sample
    return longest_s
