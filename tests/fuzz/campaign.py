"""One run of the fuzzer: victims in processes of their own, attackers in this one, and a watch on all of it."""

import asyncio
import json
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.scripts import Kept, Player, Script, Target
from tests.fuzz.watch import Watch
from weft.net import parse_address
from weft.wire import Contact

MODES = ("plain", "tls")
WORKERS = 4
"""Attackers at a time, for each channel. More would take all places of honest peers, who would lose each other."""
LINKS_MAX = 2
"""Of them neighbours at a time."""
START_S = 30.0
SETTLE_S = 3.0
"""After the last attack, for the honest traffic to come in."""
ROOT = Path(__file__).parents[2]


class Victims:
    """A process with honest peers."""

    def __init__(self, mode: str, process: asyncio.subprocess.Process, target: Target) -> None:
        self.process = process
        self.target = target
        now = time.monotonic()
        self.watch = Watch(mode, now, now)
        self.links = asyncio.Semaphore(LINKS_MAX)
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @classmethod
    async def start(cls, mode: str, *, hearsay: bool) -> "Victims":
        name = f"fuzz/{secrets.token_hex(8)}"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.fuzz.victims", mode, name),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        async with asyncio.timeout(START_S):
            first = json.loads(await process.stdout.readline())
        contacts = tuple(Contact(peer, parse_address(address)) for peer, address in first["victims"])
        return cls(mode, process, Target(mode, name, contacts, hearsay=hearsay))

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.watch.reported(json.loads(line), time.monotonic())

    def look(self) -> None:
        if self.process.returncode is not None:
            self.watch.died(self.process.returncode)
        else:
            self.watch.silent(time.monotonic())

    async def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            async with asyncio.timeout(5):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        await self._reading


class Campaign:
    def __init__(self, seed: int, *, hearsay: bool = False) -> None:
        self.seed = seed
        self.played: Counter[str] = Counter()
        self.sent_bytes = 0
        self.kept = Kept()
        self.victims: list[Victims] = []
        self._hearsay = hearsay

    async def run(self, seconds: float, tell: Callable[["Campaign"], None], again: list[Script] | None = None) -> None:
        self.victims = [await Victims.start(mode, hearsay=self._hearsay) for mode in MODES]
        loop = asyncio.get_running_loop()
        until = time.monotonic() + seconds
        try:
            if again is None:
                workers = [
                    loop.create_task(self._attack(each, Random(f"{self.seed} {each.watch.mode} {number}"), until))
                    for each in self.victims
                    for number in range(WORKERS)
                ]
            else:
                workers = [loop.create_task(self._replay(again))]
            await self._oversee(workers, tell)
            until = time.monotonic() + SETTLE_S
            while time.monotonic() < until and not self.findings:
                await asyncio.sleep(0.2)
                self._look()
        finally:
            for each in self.victims:
                each.watch.conclude()
                await each.stop()

    async def _oversee(self, workers: list[asyncio.Task[None]], tell: Callable[["Campaign"], None]) -> None:
        while not all(worker.done() for worker in workers) and not self.findings:
            await asyncio.wait(workers, timeout=0.5)
            self._look()
            tell(self)
        for worker in workers:
            if worker.done():
                worker.result()  # a mistake of the fuzzer itself
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def _look(self) -> None:
        for each in self.victims:
            each.look()

    async def _attack(self, victims: Victims, chance: Random, until: float) -> None:
        player = Player(victims.target, chance)
        while time.monotonic() < until:
            await self._play(victims, player, player.draw())

    async def _replay(self, scripts: list[Script]) -> None:
        for script in scripts:
            victims = next(each for each in self.victims if each.watch.mode == script.mode)
            await self._play(victims, Player(victims.target, Random(self.seed)), script)

    async def _play(self, victims: Victims, player: Player, script: Script) -> None:
        self.kept.add(script)
        if script.layer == "link":
            async with victims.links:
                await player.play(script)
        else:
            await player.play(script)
        self.played[f"{script.mode} {script.layer}"] += 1
        self.sent_bytes += script.size

    @property
    def findings(self) -> list[str]:
        return [f"{each.watch.mode}: {finding}" for each in self.victims for finding in each.watch.findings]

    def summary(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "scripts": dict(sorted(self.played.items())),
            "sent_bytes": self.sent_bytes,
            "victims": {each.watch.mode: _fared(each.watch) for each in self.victims},
            "findings": self.findings,
        }


def _fared(watch: Watch) -> dict[str, Any]:
    memory = [kb for _, kb in watch.memory] or [0]
    return {
        "delivered": watch.last.get("delivered", 0),
        "lag_s_max": watch.lag_s,
        "late_s_max": watch.late_s,
        "rss_mib_first_max_last": [memory[0] >> 10, max(memory) >> 10, memory[-1] >> 10],
        "counters": {name: count for name, count in watch.last.get("counters", {}).items() if count},
    }
