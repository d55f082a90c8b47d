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
from bench.child_process import ChildProcess, MeasurementError
from bench.machine import free_ports
from bench.plan import Case, Plan
from bench.process_config import HOST, ProcessConfig
from bench.systems import System

ROOT = Path(__file__).resolve().parent.parent
START_S = 90.0
CONNECT_S = 40.0
RESPONSE_S = 20.0
BROKER_S = 10.0
WARM_S = 40.0
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Report:
    """What one receiver had, at one moment."""

    at_ns: int
    received: int
    duplicates: int
    authors_received: int
    missed: int
    """That the system itself told it had lost."""
    errors: int


class Group:
    """Use it with `async with`: at the end nothing of it is left, whatever happened."""

    def __init__(self, system: System, case: Case, plan: Plan, authors: Sequence[int], processes: int) -> None:
        self.system = system
        self.case = case
        self.plan = plan
        self.authors = tuple(authors)
        self.nodes: list[ChildProcess] = []
        self.broker: ChildProcess | None = None
        self._ports = tuple(free_ports(processes + 1))
        self._seed = random.randrange(1 << 30)
        self._broker_info: dict[str, object] = {}
        self._addresses: list[str] = []
        self._directory = Path(tempfile.mkdtemp(prefix="broadloom-bench-"))

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
    def children(self) -> list[ChildProcess]:
        return [*self.nodes, *([self.broker] if self.broker is not None else [])]

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in self.children]

    async def _start_broker(self) -> None:
        assert self.system.broker is not None
        port = self._ports[-1]
        command, self._broker_info = self.system.broker(port, self._directory)
        self.broker = ChildProcess("the broker", self._directory / "broker.log")
        await self.broker.start(command, os.environ, self._directory)
        end = time.monotonic() + BROKER_S
        while time.monotonic() < end:
            self.broker.check()
            try:
                socket.create_connection((HOST, port), 1).close()
                return
            except OSError:
                await asyncio.sleep(POLL_S)
        raise MeasurementError(f"the broker does not listen: {self.broker.log_tail()}")

    async def start(self, indexes: Iterable[int], receivers: Iterable[int]) -> list[ChildProcess]:
        """Start processes; they have done their imports when this returns, but are not connected."""
        environment = {**os.environ, "PYTHONPATH": self._python_path(), **self.system.environment}
        receiving = set(receivers)
        begun = []
        for index in indexes:
            config = ProcessConfig(
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
                topics=self.case.topics,
                broker=self._broker_info,
            )
            node = ChildProcess(f"node {index}", self._directory / f"node-{index}.log")
            self.nodes.append(node)
            command = [sys.executable, "-m", "bench.node", config.to_json()]
            if self.system.java:
                command = await jgroups.command(config)
            await node.start(command, environment, self._directory)
            begun.append(node)
        await asyncio.gather(*(node.wait_for("up", START_S) for node in begun))
        return begun

    async def connect(self, node: ChildProcess) -> int:
        """Let it join those already there; when its joining began (ns)."""
        address, began_ns = await node.request(f"connect {json.dumps(self._addresses)}", "ready", CONNECT_S)
        self._addresses.append(address)
        return int(began_ns)

    async def warm(self, senders: Sequence[ChildProcess], receivers: Sequence[ChildProcess]) -> None:
        """Send until every receiver has heard every sender, so that no measurement begins half connected."""
        end = time.monotonic() + WARM_S
        while True:
            for sender in senders:
                await sender.request("warm", "warmed", RESPONSE_S)
            await asyncio.sleep(4 * POLL_S)
            reports = await self.reports(receivers)
            missing = [
                receiver.name
                for receiver, report in zip(receivers, reports, strict=True)
                if report.authors_received < len(senders) - (receiver in senders)
            ]
            if not missing:
                await asyncio.sleep(self.plan.settle_s)
                return
            if time.monotonic() > end:
                raise MeasurementError(f"not all connected within {WARM_S:g} s; not heard by {', '.join(missing)}")

    async def reports(self, nodes: Sequence[ChildProcess]) -> list[Report]:
        responses = await asyncio.gather(*(node.request("report", "report", RESPONSE_S) for node in nodes))
        return [Report(*map(int, response)) for response in responses]

    def check(self) -> None:
        for child in self.children:
            child.check()

    def _python_path(self) -> str:
        """Nodes run in a directory of their own, and must find this package, and perhaps an older Broadloom."""
        older = [str(self.plan.before / "src")] if self.plan.before and "before" in self.system.options else []
        return os.pathsep.join(filter(None, [*older, str(ROOT), os.environ.get("PYTHONPATH", "")]))
