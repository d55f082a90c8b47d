"""Latency of actions in a game: `python -m tools.game_latency`. 16 players, 30 actions per second each, on loopback.

Each process has some of the players, each with a peer and a connection of its own. The time of an action is from the
call of `do` to the moment at which another player has applied it. With `--spectators N`, another process has as many
spectators; each needs about as much CPU time as a player. `python -m tests.apps.game.measure spectators` simulates more
than one machine bears.
"""

import asyncio
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Annotated, Any, ClassVar
from uuid import uuid4

import typer

from broadloom.apps import game
from broadloom.transport.event_loop import run

WARM_UP_S = 3.0


class Meter(game.Game):
    name: ClassVar[str] = "meter"
    title: ClassVar[str] = "Meter"
    about: ClassVar[str] = ""
    help: ClassVar[str] = ""

    def __init__(self, players: int) -> None:
        self.roles = {"player": players}

    def begin(self, players: Sequence[str], chance: game.Chance) -> game.State:
        return dict.fromkeys(players, 0)

    def apply(self, state: game.State, action: game.Action, by: str, chance: game.Chance) -> game.State:
        return {**state, by: state[by] + 1}

    def over(self, state: game.State) -> game.Result | None:
        return None


class AgreedMeter(Meter):
    order: ClassVar[game.GameOrder] = game.GameOrder.AGREED


class FreeMeter(Meter):
    order: ClassVar[game.GameOrder] = game.GameOrder.FREE


KINDS: dict[str, type[AgreedMeter] | type[FreeMeter]] = {"agreed": AgreedMeter, "free": FreeMeter}


async def _player(play: game.Play, rate: float, seconds: float, took_ms: list[float]) -> None:
    while play.table.phase is not game.Phase.RUNNING:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    begin = time.monotonic() + WARM_UP_S

    async def read() -> None:
        async for change in play:
            if isinstance(change, game.Acted) and change.role != play.role and time.monotonic() > begin:
                took_ms.append((time.monotonic_ns() - change.action.values["at"]) / 1e6)

    reading = asyncio.create_task(read())
    tasks: set[asyncio.Task[None]] = set()
    next_at = time.monotonic()
    while time.monotonic() < begin + seconds:
        task = asyncio.create_task(play.do("act", at=time.monotonic_ns()))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        next_at += 1 / rate
        await asyncio.sleep(max(0.0, next_at - time.monotonic()))
    await asyncio.gather(*tasks, return_exceptions=True)
    if reading.done():
        reading.result()
    reading.cancel()


async def _work(
    kind: str, channel: str, first: int, count: int, players: int, rate: float, seconds: float
) -> list[float]:
    took_ms: list[float] = []

    async def play(number: int) -> None:
        await asyncio.sleep(0.1 * number)
        made = KINDS[kind](players)
        async with game.join(channel, of=made, name=f"p{number}", role=f"player {number + 1}", tls=False) as joined:
            await _player(joined, rate, seconds, took_ms)
            await asyncio.sleep(1.0)

    await asyncio.gather(*(play(number) for number in range(first, first + count)))
    return took_ms


async def _watch(kind: str, channel: str, count: int, players: int, seconds: float) -> list[float]:
    async def watch() -> None:
        async with game.join(channel, of=KINDS[kind](players), role="", tls=False) as play:
            while play.table.phase is not game.Phase.RUNNING:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            with suppress(TimeoutError):
                async with asyncio.timeout(WARM_UP_S + seconds):
                    async for _change in play:
                        pass

    await asyncio.gather(*(watch() for _ in range(count)))
    return []


def _process(work: Callable[..., Coroutine[Any, Any, list[float]]], *args: Any) -> tuple[list[float], float]:
    """The times, and the CPU time of the process."""
    return run(work(*args)), time.process_time()


def main(
    players: Annotated[int, typer.Option(min=2)] = 16,
    processes: Annotated[int, typer.Option(min=1)] = 4,
    rate: Annotated[float, typer.Option(help="Actions per second of each player.")] = 30.0,
    seconds: Annotated[float, typer.Option()] = 10.0,
    spectators: Annotated[int, typer.Option(help="Members that only watch.", min=0)] = 0,
) -> None:
    """Print p50, p99 and the maximum, in milliseconds, for both orders; and the CPU time for each applied action."""
    share = players // processes
    for kind in KINDS:
        channel = f"meter/{uuid4().hex}"
        rows: list[tuple[Any, ...]] = [
            (_work, kind, channel, each * share, share, share * processes, rate, seconds) for each in range(processes)
        ]
        if spectators:
            rows.append((_watch, kind, channel, spectators, share * processes, seconds))
        with multiprocessing.get_context("spawn").Pool(len(rows)) as pool:
            parts = pool.starmap(_process, rows, chunksize=1)
        took_ms = sorted(each for part, _ in parts for each in part)
        cpu_us = round(sum(cpu_s for _, cpu_s in parts[:processes]) * 1e6 / len(took_ms))
        p50, p99 = (round(took_ms[int(len(took_ms) * part)], 2) for part in (0.5, 0.99))
        members = {"order": kind, "players": share * processes, "spectators": spectators}
        result = {**members, "actions": len(took_ms), "p50_ms": p50, "p99_ms": p99}
        machine = {"cpu_us_per_action": cpu_us, "load": round(os.getloadavg()[0], 1)}
        print(json.dumps({**result, "max_ms": round(took_ms[-1], 2), **machine}))


if __name__ == "__main__":
    typer.run(main)
