"""The processes of one case, and their broker if they have one."""

import asyncio
import json
import os
import random
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bench import jgroups
from bench.child import Child, Failed
from bench.machine import free_ports
from bench.part import HOST, Part
from bench.plan import Case, Plan
from bench.systems import System

ROOT = Path(__file__).resolve().parent.parent
START_S = 90.0
CONNECT_S = 40.0
ANSWER_S = 20.0
BROKER_S = 10.0
WARM_S = 40.0
LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Report:
    """What one receiver had, at one moment."""

    at_ns: int
    received: int
    duplicates: int
    authors_heard: int
    missed: int
    """That the system itself told it had lost."""
    troubles: int


class Group:
    """Use it with `async with`: at the end nothing of it is left, whatever happened."""

    def __init__(self, system: System, case: Case, plan: Plan, authors: Sequence[int], processes: int) -> None:
        self.system = system
        self.case = case
        self.plan = plan
        self.authors = tuple(authors)
        self.nodes: list[Child] = []
        self.broker: Child | None = None
        self._ports = tuple(free_ports(processes + 1))
        self._seed = random.randrange(1 << 30)
        self._told_of_broker: dict[str, object] = {}
        self._addresses: list[str] = []
        self._directory = Path(tempfile.mkdtemp(prefix="weft-bench-"))

    async def __aenter__(self) -> Self:
        try:
            if self.system.broker is not None:
                await self._start_broker()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_problem: object) -> None:
        await self._end()

    async def _end(self) -> None:
        if self.broker is not None:
            self.broker.terminate()
        await asyncio.gather(*(child.stop() for child in self.children))
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def children(self) -> list[Child]:
        return [*self.nodes, *([self.broker] if self.broker is not None else [])]

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in self.children]

    async def _start_broker(self) -> None:
        assert self.system.broker is not None
        port = self._ports[-1]
        command, self._told_of_broker = self.system.broker(port, self._directory)
        self.broker = Child("the broker", self._directory / "broker.log")
        await self.broker.start(command, os.environ, self._directory)
        end = time.monotonic() + BROKER_S
        while time.monotonic() < end:
            self.broker.check()
            try:
                socket.create_connection((HOST, port), 1).close()
                return
            except OSError:
                await asyncio.sleep(LOOK_S)
        raise Failed(f"the broker does not listen: {self.broker.last_words()}")

    async def start(self, indexes: Iterable[int], receivers: Iterable[int]) -> list[Child]:
        """Start processes; they have done their imports when this returns, but are not connected."""
        environment = {**os.environ, "PYTHONPATH": _path(), **self.system.environment}
        receiving = set(receivers)
        begun = []
        for index in indexes:
            part = Part(
                adapter=self.system.adapter,
                options=self.system.options,
                index=index,
                authors=self.authors,
                receives=index in receiving,
                size_bytes=self.case.size_bytes,
                paced=bool(self.case.rate_per_s),
                timed=self.case.workload == "latency",
                seed=self._seed,
                ports=self._ports[:-1],
                broker=self._told_of_broker,
            )
            node = Child(f"node {index}", self._directory / f"node-{index}.log")
            self.nodes.append(node)
            command = [sys.executable, "-m", "bench.node", part.to_json()]
            if self.system.java:
                command = await jgroups.command(part)
            await node.start(command, environment, self._directory)
            begun.append(node)
        await asyncio.gather(*(node.said("up", START_S) for node in begun))
        return begun

    async def connect(self, node: Child) -> int:
        """Let it join those already there; when its joining began (ns)."""
        address, began_ns = await node.ask(f"connect {json.dumps(self._addresses)}", "ready", CONNECT_S)
        self._addresses.append(address)
        return int(began_ns)

    async def warm(self, senders: Sequence[Child], receivers: Sequence[Child]) -> None:
        """Send until every receiver has heard every sender, so that no measurement begins half connected."""
        end = time.monotonic() + WARM_S
        while True:
            for sender in senders:
                await sender.ask("warm", "warmed", ANSWER_S)
            await asyncio.sleep(4 * LOOK_S)
            reports = await self.reports(receivers)
            lacking = [
                receiver.name
                for receiver, report in zip(receivers, reports, strict=True)
                if report.authors_heard < len(senders) - (receiver in senders)
            ]
            if not lacking:
                await asyncio.sleep(self.plan.settle_s)
                return
            if time.monotonic() > end:
                raise Failed(f"not all connected within {WARM_S:g} s; not heard by {', '.join(lacking)}")

    async def reports(self, nodes: Sequence[Child]) -> list[Report]:
        answers = await asyncio.gather(*(node.ask("report", "report", ANSWER_S) for node in nodes))
        return [Report(*map(int, answer)) for answer in answers]

    def check(self) -> None:
        for child in self.children:
            child.check()


def _path() -> str:
    """Nodes run in a directory of their own, and must find this package."""
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
