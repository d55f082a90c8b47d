"""One run of the fuzzer: victims in their own processes, attackers in this one, and a monitor for each victim."""

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

from broadloom.transport import parse_address
from broadloom.wire import PeerInfo
from tests.fuzz.monitor import VictimMonitor
from tests.fuzz.scripts import Script, ScriptLog, ScriptRunner, Target

MODES = ("plain", "tls")
WORKERS = 4
"""Concurrent attackers per channel. More would take all slots of the honest peers, which would lose each other."""
LINKS_MAX = 2
"""Attackers that are neighbors at the same time."""
START_S = 30.0
SETTLE_S = 3.0
"""Time after the last attack for the honest traffic to arrive."""
ROOT = Path(__file__).parents[2]


class VictimProcess:
    def __init__(self, mode: str, process: asyncio.subprocess.Process, target: Target) -> None:
        self.process = process
        self.target = target
        now = time.monotonic()
        self.monitor = VictimMonitor(mode, now, now)
        self.links = asyncio.Semaphore(LINKS_MAX)
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @classmethod
    async def start(cls, mode: str, *, false_claims: bool) -> "VictimProcess":
        name = f"fuzz/{secrets.token_hex(8)}"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.fuzz.victims", mode, name),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        async with asyncio.timeout(START_S):
            addresses = json.loads(await process.stdout.readline())
        peer_infos = tuple(PeerInfo(peer, parse_address(address)) for peer, address in addresses["victims"])
        return cls(mode, process, Target(mode, name, peer_infos, false_claims=false_claims))

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.monitor.on_report(json.loads(line), time.monotonic())

    def check(self) -> None:
        if self.process.returncode is not None:
            self.monitor.on_exit(self.process.returncode)
        else:
            self.monitor.check_silence(time.monotonic())

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
    def __init__(self, seed: int, *, false_claims: bool = False) -> None:
        self.seed = seed
        self.script_counts: Counter[str] = Counter()
        self.sent_bytes = 0
        self.script_log = ScriptLog()
        self.victims: list[VictimProcess] = []
        self._false_claims = false_claims

    async def run(
        self, seconds: float, on_progress: Callable[["Campaign"], None], replayed: list[Script] | None = None
    ) -> None:
        self.victims = [await VictimProcess.start(mode, false_claims=self._false_claims) for mode in MODES]
        loop = asyncio.get_running_loop()
        until = time.monotonic() + seconds
        try:
            if replayed is None:
                workers = [
                    loop.create_task(self._attack(each, Random(f"{self.seed} {each.monitor.mode} {number}"), until))
                    for each in self.victims
                    for number in range(WORKERS)
                ]
            else:
                workers = [loop.create_task(self._replay(replayed))]
            await self._supervise(workers, on_progress)
            until = time.monotonic() + SETTLE_S
            while time.monotonic() < until and not self.findings:
                await asyncio.sleep(0.2)
                self._check()
        finally:
            for each in self.victims:
                each.monitor.check_memory()
                await each.stop()

    async def _supervise(self, workers: list[asyncio.Task[None]], on_progress: Callable[["Campaign"], None]) -> None:
        while not all(worker.done() for worker in workers) and not self.findings:
            await asyncio.wait(workers, timeout=0.5)
            self._check()
            on_progress(self)
        for worker in workers:
            if worker.done():
                worker.result()  # an error of the fuzzer itself
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def _check(self) -> None:
        for each in self.victims:
            each.check()

    async def _attack(self, victims: VictimProcess, random: Random, until: float) -> None:
        runner = ScriptRunner(victims.target, random)
        while time.monotonic() < until:
            await self._play(victims, runner, runner.draw())

    async def _replay(self, scripts: list[Script]) -> None:
        for script in scripts:
            victims = next(each for each in self.victims if each.monitor.mode == script.mode)
            await self._play(victims, ScriptRunner(victims.target, Random(self.seed)), script)

    async def _play(self, victims: VictimProcess, runner: ScriptRunner, script: Script) -> None:
        self.script_log.add(script)
        if script.layer == "link":
            async with victims.links:
                await runner.run(script)
        else:
            await runner.run(script)
        self.script_counts[f"{script.mode} {script.layer}"] += 1
        self.sent_bytes += script.size

    @property
    def findings(self) -> list[str]:
        return [f"{each.monitor.mode}: {finding}" for each in self.victims for finding in each.monitor.findings]

    def summary(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "scripts": dict(sorted(self.script_counts.items())),
            "sent_bytes": self.sent_bytes,
            "victims": {each.monitor.mode: _victim_summary(each.monitor) for each in self.victims},
            "findings": self.findings,
        }


def _victim_summary(monitor: VictimMonitor) -> dict[str, Any]:
    memory = [kb for _, kb in monitor.memory] or [0]
    return {
        "delivered": monitor.last.get("delivered", 0),
        "lag_s_max": monitor.lag_s,
        "late_s_max": monitor.late_s,
        "rss_mib_first_max_last": [memory[0] >> 10, max(memory) >> 10, memory[-1] >> 10],
        "counters": {name: count for name, count in monitor.last.get("counters", {}).items() if count},
    }
