"""Measure meetings: `python -m tests.apps.conference.measure sites|late|meeting|fabric [COUNT]`.

- `sites`: a leader shows 30 viewpoints a second; time until each of the other sites has one. All in one process, over
  loopback, with TLS.
- `late`: time to join a meeting with this many items.
- `meeting`: simulated participants, links of 40 ms. Virtual time until one that requests the floor leads, and until a
  viewpoint has reached all others. The roster makes the work grow with the square of their number.
- `fabric`: the viewpoint only, on bare peers.
"""

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from functools import partial
from statistics import quantiles
from uuid import uuid4

from broadloom.apps import conference
from broadloom.apps.conference import Meeting, MeetingEvent, ViewMoved, Viewpoint, live
from broadloom.apps.conference.actions import RequestFloor
from broadloom.protocol.events import Message
from broadloom.testing.sim.network import SimNetworkSettings
from broadloom.testing.sim.node import SimNode
from broadloom.testing.sim.simulation import Simulation, SimulationSettings
from tests.apps.conference.sim_participant import SimParticipant

RATE = 30.0
VIEWS = 300
LATENCY_MS = 40.0
JOINS_AT_ONCE = 20


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


def measure_meeting(count: int) -> None:
    sim = _simulation(roster=True)
    participants = [SimParticipant(node, f"person {node.number}") for node in _grow(sim, count)]
    is_complete = sim.run_until(lambda: all(len(each.core.state.participants) == count for each in participants), 300.0)
    print(f"{count:,} participants; everyone knows all others: {is_complete}", flush=True)
    leader = participants[count // 2]
    began_at = sim.clock.now
    leader.submit(RequestFloor())
    sim.run_until(lambda: leader.is_leader, 30.0)
    print(f"floor after {sim.clock.now - began_at:.2f} s")
    _show(sim, leader.node)


def measure_fabric(count: int) -> None:
    sim = _simulation(roster=False)
    _show(sim, _grow(sim, count)[count // 2])


def _simulation(*, roster: bool) -> Simulation:
    network = SimNetworkSettings(latency_ms=(LATENCY_MS, LATENCY_MS))
    return Simulation(1, SimulationSettings(network=network, roster=roster, keep_received=False))


def _grow(sim: Simulation, count: int) -> list[SimNode]:
    while len(sim.members) < count:
        for _ in range(min(JOINS_AT_ONCE if sim.nodes else 1, count - len(sim.nodes))):
            sim.add_peer()
        assert sim.run_until(lambda: len(sim.members) == len(sim.nodes), 120.0)
    return sim.members


def _show(sim: Simulation, leader: SimNode) -> None:
    reached: dict[int, float] = {}
    for node in sim.members:
        node.on_message = partial(_on_message, sim, node.number, reached)
    began_at = sim.clock.now
    leader.broadcast(live.encode(live.LiveView(1, Viewpoint((1.0, 2.0, 3.0)))))
    sim.run_until(lambda: len(reached) >= len(sim.members) - 1, 30.0)
    print(f"viewpoint at {len(reached):,} others after {max(reached.values()) - began_at:.3f} s")


def _on_message(sim: Simulation, number: int, reached: dict[int, float], _message: Message) -> None:
    reached.setdefault(number, sim.clock.now)


def main() -> None:
    what, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None
    match what:
        case "sites":
            asyncio.run(measure_sites(count or 12))
        case "late":
            asyncio.run(measure_late(count or 1000))
        case "meeting":
            measure_meeting(count or 200)
        case "fabric":
            measure_fabric(count or 1200)


if __name__ == "__main__":
    main()
