"""Measure meetings: `python -m tests.apps.conference.measure sites|late|meeting|fabric [COUNT]`.

- `sites`: a leader shows 30 viewpoints a second; time until each of the other sites has one. All in one process, over
  loopback, with TLS.
- `late`: time to join a meeting with this many items.
- `meeting`: simulated participants, links of 40 ms. Virtual time until one that requests the floor leads, until a
  viewpoint has reached all others, until a late joiner has 1,000 items, and until the next one leads after the leader
  was killed. The roster makes the work grow with the square of their number.
- `fabric`: the viewpoint only, on bare peers.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from statistics import quantiles
from typing import Any, NamedTuple
from uuid import uuid4

from broadloom.apps import conference
from broadloom.apps.conference import Meeting, MeetingEvent, ViewMoved, Viewpoint, live
from broadloom.apps.conference.actions import Annotate, RequestFloor
from broadloom.protocol.events import Message
from broadloom.testing.sim.node import SimNode
from broadloom.testing.sim.simulation import Simulation
from tests.apps.conference.sim_participant import SimParticipant
from tests.apps.large_fabric import grow, simulation

RATE = 30.0
VIEWS = 300
LATENCY_MS = 40.0
ITEMS = 1000
LOOK_S = 0.02


async def measure_sites(count: int) -> None:
    channel, sent_at, took_ms = f"review/{uuid4().hex}", dict[float, float](), list[float]()

    def on_event(event: MeetingEvent) -> None:
        if isinstance(event, ViewMoved):
            took_ms.append(1000 * (time.perf_counter() - sent_at[event.viewpoint.eye[0]]))

    async with AsyncExitStack() as stack:
        meetings: list[Meeting] = []
        for number in range(count):
            meetings.append(await stack.enter_async_context(conference.join(channel, name=f"site {number}")))
        leader, others = meetings[0], meetings[1:]
        for meeting in others:
            meeting.on_event(on_event)
        async with leader.floor():
            await asyncio.sleep(1)
            for number in range(VIEWS):
                eye = (float(number), 0.0, 0.0)
                sent_at[eye[0]] = time.perf_counter()
                await leader.show(Viewpoint(eye))
                await asyncio.sleep(1 / RATE)
            await asyncio.sleep(1)
    shares = quantiles(took_ms, n=100)
    print(f"{count} sites: {len(took_ms):,} of {VIEWS * (count - 1):,} deliveries")
    print(f"median {shares[49]:.1f} ms, p99 {shares[98]:.1f} ms")


async def measure_late(count: int) -> None:
    channel = f"review/{uuid4().hex}"
    async with conference.join(channel, name="first") as first:
        for start in range(0, count, 100):
            await asyncio.gather(*(first.annotate("rib", f"note {start + each}") for each in range(100)))
        began = time.perf_counter()
        async with conference.join(channel, name="late") as late:
            took_s = time.perf_counter() - began
            print(f"{len(late.state.notes):,} items after {took_s:.2f} s, joining the channel included")


class MeetingTimes(NamedTuple):
    """In virtual time."""

    floor_s: float
    """From a request for the floor to leading."""
    viewpoint_s: float
    """Until a viewpoint has reached all others."""
    late_s: float
    """From the start of a late joiner to having all items."""
    next_leader_s: float
    """From the death of the leader until the next in the queue leads."""
    leaders_max: int
    """At any time."""


def run_meeting(count: int, report: Callable[[str], None] = lambda _text: None) -> MeetingTimes:
    """A meeting of this many participants."""
    sim = simulation(LATENCY_MS)
    participants = [SimParticipant(node, f"person {node.number}") for node in grow(sim, count)]
    _wait(sim, lambda: all(len(each.core.state.participants) == count for each in participants), 300.0)
    report(f"{count:,} participants know each other after {sim.clock.now:.1f} s")
    leaders_max = 0

    def look() -> None:
        nonlocal leaders_max
        leaders_max = max(leaders_max, sum(each.is_alive and each.is_leader for each in participants))
        sim.clock.call_at(sim.clock.now + LOOK_S, look)

    look()
    leader, following = participants[count // 2], participants[count // 3]
    floor_s = _wait(sim, lambda: leader.is_leader, 30.0, leader.submit, RequestFloor())
    report(f"floor after {floor_s:.2f} s")
    viewpoint_s = _show(sim, leader.node)
    report(f"viewpoint at {count - 1:,} others after {viewpoint_s:.3f} s")
    for number in range(ITEMS):
        participants[number % count].submit(Annotate("rib", f"note {number}"))
    _wait(sim, lambda: all(len(each.core.state.notes) == ITEMS for each in participants), 60.0)
    began_at, node = sim.clock.now, sim.add_peer()
    _wait(sim, lambda: node.is_connected, 30.0)
    late = SimParticipant(node, "late")
    _wait(sim, lambda: len(late.core.state.notes) == ITEMS, 30.0)
    participants.append(late)
    late_s = sim.clock.now - began_at
    report(f"{ITEMS:,} items at a late joiner after {late_s:.2f} s")
    _wait(sim, lambda: following.peer_id in leader.core.state.floor.queue, 30.0, following.submit, RequestFloor())
    next_leader_s = _wait(sim, lambda: following.is_leader, 30.0, leader.node.kill)
    report(f"the next leader {next_leader_s:.2f} s after the death of the first")
    return MeetingTimes(floor_s, viewpoint_s, late_s, next_leader_s, leaders_max)


def _wait(
    sim: Simulation,
    condition: Callable[[], bool],
    timeout_s: float,
    begin: Callable[..., None] | None = None,
    *args: Any,
) -> float:
    """The time from `begin` until the condition holds."""
    began_at = sim.clock.now
    if begin is not None:
        begin(*args)
    while not condition():
        assert sim.clock.now < began_at + timeout_s, f"not after {timeout_s:g} s"
        sim.run_for(LOOK_S)
    return sim.clock.now - began_at


def measure_fabric(count: int) -> None:
    sim = simulation(LATENCY_MS, roster=False)
    took_s = _show(sim, grow(sim, count)[count // 2])
    print(f"viewpoint at {count - 1:,} others after {took_s:.3f} s")


def _show(sim: Simulation, leader: SimNode) -> float:
    """The time until all others have a viewpoint."""
    reached: dict[SimNode, float] = {}
    handlers = {node: node.on_message for node in sim.members}

    def on_message(node: SimNode, message: Message) -> None:
        handler = handlers[node]
        if message.kind == 0:
            reached.setdefault(node, sim.clock.now)
        elif handler is not None:
            handler(message)

    for node in handlers:
        node.on_message = partial(on_message, node)
    began_at = sim.clock.now
    leader.broadcast(live.encode(live.LiveView(1, Viewpoint((1.0, 2.0, 3.0)))))
    assert sim.run_until(lambda: len(reached) >= len(handlers) - 1, 30.0)
    for node, handler in handlers.items():
        node.on_message = handler
    return max(reached.values()) - began_at


def main() -> None:
    what, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None
    match what:
        case "sites":
            asyncio.run(measure_sites(count or 12))
        case "late":
            asyncio.run(measure_late(count or 1000))
        case "meeting":
            times = run_meeting(count or 200, partial(print, flush=True))
            print(f"leaders at a time: {times.leaders_max}")
        case "fabric":
            measure_fabric(count or 1200)


if __name__ == "__main__":
    main()
