"""Measure games: `python -m tests.apps.game.measure spectators|late|monitor [COUNT]`.

- `spectators`: simulated players and this many spectators, links of 1 ms. Virtual time from an action to the moment at
  which another player has applied it: without spectators, with them, and with more links per peer as well.
  `tools/game_latency.py` measures real programs.
- `late`: time to join a game with a megabyte of state, over loopback with TLS, in both orders.
- `monitor`: time until the monitor of a lobby reports the right number of members, after one has joined, has left and
  was killed.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import uuid4

import broadloom
from broadloom.apps import game
from broadloom.apps.game import Acted, Change, Game, Phase
from broadloom.apps.game import lobby as lobbies
from broadloom.apps.game.entry import Kind
from broadloom.apps.game.lobby import Lobby
from broadloom.apps.game.monitor import monitoring
from tests.apps.game.sim_runtime import SimGame
from tests.apps.game.test_times import STATE_BYTES, LargeFreeRelay, LargeRelay
from tests.apps.large_fabric import grow, percentiles_text, simulation
from tests.support import eventually
from tools.game_latency import KINDS

PLAYERS = 16
RATE = 30.0
SECONDS = 2.0
WARM_UP_S = 1.0
LATENCY_MS = 1.0
JITTER_MS = 0.2
ATTEMPTS = 5


class Player(SimGame):
    """Acts regularly, and notes the time of the actions of others."""

    def __init__(self, *arguments: Any) -> None:
        self.took_s: list[float] = []
        self.is_counting = False
        super().__init__(*arguments)

    def act(self) -> None:
        participant = self.participant
        entry = participant.new_entry(Kind.ACT, participant.role or "", "act", {"at": self.now()})
        participant.submit(entry)
        self.node.call_later(1 / RATE, self.act)

    def emit(self, change: Change) -> None:
        if self.is_counting and isinstance(change, Acted) and change.role != self.participant.role:
            self.took_s.append(self.now() - change.action.values["at"])


def action_times(of: Game, spectators: int, degree: int = 4, seconds: float = SECONDS) -> list[float]:
    """In a game with this many spectators."""
    sim = simulation(LATENCY_MS, JITTER_MS, degree=degree)
    nodes = grow(sim, PLAYERS + spectators)
    sim.random.shuffle(nodes)  # those that join first are closer to each other
    players = [Player(node, of, f"p{number}", f"player {number}") for number, node in enumerate(nodes[:PLAYERS], 1)]
    watching = [SimGame(node, of, "", "") for node in nodes[PLAYERS:]]
    everyone: list[SimGame] = [*players, *watching]
    assert sim.run_until(lambda: all(each.participant.table.phase is Phase.RUNNING for each in everyone), 60.0)
    for number, player in enumerate(players):
        sim.clock.call_at(sim.clock.now + number / RATE / PLAYERS, player.act)
    sim.run_for(WARM_UP_S)
    for player in players:
        player.is_counting = True
    sim.run_for(seconds)
    return [took_s for player in players for took_s in player.took_s]


def measure_spectators(count: int) -> None:
    for kind, make in KINDS.items():
        for spectators, degree in ((0, 4), (count, 4), (count, 8)):
            took_s = action_times(make(PLAYERS), spectators, degree)
            what = f"{kind}, {spectators} spectators, degree {degree}"
            print(f"{what}: {len(took_s):,} actions, {percentiles_text(took_s)}", flush=True)


async def measure_late() -> None:
    for of in (LargeRelay, LargeFreeRelay):
        channel, took_s = f"relay/{uuid4().hex}", []
        async with game.join(channel, of=of(), name="Anna") as anna:
            await anna.start()
            for _ in range(ATTEMPTS):
                began_at = time.perf_counter()
                async with game.join(channel, of=of(), role="") as late:
                    took_s.append(time.perf_counter() - began_at)
                    assert len(late.state["world"]) == STATE_BYTES
        print(f"{of.__name__}: a megabyte of state, joining the channel included: {percentiles_text(took_s)}")


async def monitor_times(attempts: int, **options: Any) -> dict[str, list[float]]:
    """The times until a monitor reports the right number of members, after what happened to one of them."""
    took: dict[str, list[float]] = {"has joined": [], "has left": [], "was killed": []}
    connect = partial(broadloom.connect, **options)
    async with connect(f"games/{uuid4().hex}") as channel, lobbies.opened(channel) as lobby:
        listing = await lobby.register("board", "chain", 2)
        made = listing.make_game()
        async with monitoring(lobby, connect), game.join(listing.channel, of=made, name="Ann", **options):
            await count_is(lobby, 2)  # the monitor is a member
            for number in range(2 * attempts):
                other = await connect(listing.channel)
                play = await game.Play(other, made).__aenter__()
                took["has joined"].append(await count_is(lobby, 3))
                if number % 2:
                    other.abort()
                    took["was killed"].append(await count_is(lobby, 2))
                    await play.leave()
                else:
                    await play.leave()
                    await other.leave()
                    took["has left"].append(await count_is(lobby, 2))
    return took


async def measure_monitor() -> None:
    for what, took_s in (await monitor_times(ATTEMPTS)).items():
        print(f"a member {what}: {percentiles_text(took_s)}")


async def count_is(lobby: Lobby, count: int) -> float:
    """The time until the monitor reports this many members."""
    began_at = time.perf_counter()
    await eventually(
        lambda: (seen := lobby.activity("board")) is not None and seen.members == count, f"{count} members"
    )
    return time.perf_counter() - began_at


def main() -> None:
    measures: dict[str, Callable[[], object]] = {
        "spectators": lambda: measure_spectators(int(sys.argv[2]) if len(sys.argv) > 2 else 200),
        "late": lambda: asyncio.run(measure_late()),
        "monitor": lambda: asyncio.run(measure_monitor()),
    }
    measures[sys.argv[1]]()


if __name__ == "__main__":
    main()
