"""One process of a benchmark: it runs one adapter and obeys the driver, in lines of plain words.

    driver to node   connect <JSON list of earlier addresses> | warm | expect <count> | send <count> <rate per s, or 0>
                     serve <service> | ask <server> <count> <rate per s, or 0> <at a time>
                     report | gaps | latencies | stop
    node to driver   up | ready <address> <ns when connecting began> | warmed | expecting | first <ns> | done <ns>
                     serving <server> | asked <ns of the first> <ns of the last> <failures>
                     sent <ns of the first> <ns of the last> | latencies <ns> <ns> ... | gaps <count>
                     report <ns> <received> <duplicates> <authors heard> <told missed> <troubles>

Words and not Python objects, so that a node may be written in any language: see `jgroups/Node.java`.
"""

import asyncio
import gc
import importlib
import json
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

from bench.delivery_check import HEADER, WARMUP_SEQUENCE, DeliveryCheck
from bench.process_config import BaseNode, ProcessConfig

YIELD_MESSAGES = 64
"""A sender yields to its event loop after this many messages; otherwise it would neither receive nor flush."""

Command = tuple[str, str]


def emit(*fields: object) -> None:
    """One write, so that lines of several threads do not mix."""
    os.write(1, (" ".join(map(str, fields)) + "\n").encode())


def read_commands(delivery_check: DeliveryCheck, put: Callable[[Command], object]) -> None:
    """The driver's lines, read by a thread of its own: questions are answered at once, even while the node sends."""
    for line in sys.stdin:
        keyword, _, rest = line.strip().partition(" ")
        if keyword == "report":
            counts = (
                delivery_check.received,
                delivery_check.duplicates,
                len(delivery_check.warmed_authors),
                delivery_check.missed,
                delivery_check.errors,
            )
            emit("report", time.monotonic_ns(), *counts)
        elif keyword == "gaps":
            emit("gaps", delivery_check.gaps())
        elif keyword == "latencies":
            emit("latencies", *delivery_check.latencies_ns)
        elif keyword == "expect":
            delivery_check.expect(int(rest))
            emit("expecting")
        elif keyword == "stop":
            break
        else:
            put((keyword, rest))
    os._exit(0)  # whatever threads and sockets a library has: the driver is done with this process, or is dead


class CommandRunner:
    """Carries out the orders that concern the system under test."""

    def __init__(self, config: ProcessConfig, node: BaseNode, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._config = config
        self._node = node
        self._sleep = sleep
        self._latencies_ns = node.delivery_check.latencies_ns
        self._padding = bytes(max(0, config.size_bytes - HEADER.size))
        self._next = 0

    async def run(self, commands: AsyncIterator[Command]) -> None:
        await self._node.prepare()
        emit("up")
        async for keyword, rest in commands:
            if keyword == "connect":
                began_ns = time.monotonic_ns()
                emit("ready", await self._node.connect(json.loads(rest)) or "-", began_ns)
            elif keyword == "warm":
                await self._node.publish(HEADER.pack(self._config.index, WARMUP_SEQUENCE, 0) + self._padding)
                await self._node.flush()
                emit("warmed")
            elif keyword == "send":
                count, rate = map(int, rest.split())
                began_ns = time.monotonic_ns()
                await (self._send_paced(count, rate) if rate else self._send_all(count))
                emit("sent", began_ns, time.monotonic_ns())
            elif keyword == "serve":
                emit("serving", await self._node.serve(rest))
            elif keyword == "ask":
                server, *numbers = rest.split()
                emit("asked", *await self._ask(server, *map(int, numbers)))

    async def _ask(self, server: str, count: int, rate: int, at_a_time: int) -> tuple[int, int, int]:
        """Send requests and keep their latencies; when they began and ended, and how many failed."""
        latencies_ns, now_ns, payload = self._latencies_ns, time.monotonic_ns, bytes(self._config.size_bytes)
        latencies_ns.clear()
        failures = 0

        async def ask(requests: int) -> None:
            nonlocal failures
            # The clients take turns: each begins at another moment of the interval.
            next_s = time.monotonic() + (self._config.index / len(self._config.ports) / rate if rate else 0)
            for _ in range(requests):
                if rate:
                    await self._sleep(max(0.0, next_s - time.monotonic()))
                    next_s += 1 / rate
                began_ns = now_ns()
                if await self._node.ask(server, payload) != payload:
                    failures += 1
                latencies_ns.append(now_ns() - began_ns)

        began_ns = now_ns()
        await asyncio.gather(*(ask(count // at_a_time) for _ in range(at_a_time)))
        return began_ns, now_ns(), failures

    async def _send_all(self, count: int) -> None:
        publish, pack, now_ns = self._node.publish, HEADER.pack, time.monotonic_ns
        index, padding = self._config.index, self._padding
        first, self._next = self._next, self._next + count
        for sequence in range(first, first + count):
            if not sequence % YIELD_MESSAGES:
                await self._sleep(0)
            await publish(pack(index, sequence, now_ns()) + padding)
        await self._node.flush()

    async def _send_paced(self, count: int, rate: int) -> None:
        began_s = time.monotonic()
        for turn in range(count):
            wait_s = began_s + turn / rate - time.monotonic()
            if wait_s > 0:
                await self._sleep(wait_s)
            await self._node.publish(HEADER.pack(self._config.index, self._next, time.monotonic_ns()) + self._padding)
            await self._node.flush()
            self._next += 1


def create_node(config: ProcessConfig) -> tuple[BaseNode, DeliveryCheck]:
    """The adapter is imported here and nowhere else: only the process that uses a library needs to have it."""
    delivery_check = DeliveryCheck(config.index, timed=config.timed, emit=emit)
    adapter = importlib.import_module(f"bench.adapters.{config.adapter}")
    return adapter.Node(config, delivery_check), delivery_check


async def run_node(config: ProcessConfig) -> None:
    node, delivery_check = create_node(config)
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[Command] = asyncio.Queue()

    async def commands() -> AsyncIterator[Command]:
        while True:
            yield await waiting.get()

    def put(command: Command) -> None:
        loop.call_soon_threadsafe(waiting.put_nowait, command)

    threading.Thread(target=read_commands, args=(delivery_check, put), daemon=True).start()
    await CommandRunner(config, node, asyncio.sleep).run(commands())


def run(config: ProcessConfig) -> None:
    adapter = importlib.import_module(f"bench.adapters.{config.adapter}")
    gc.freeze()  # as Broadloom's own programs do, for all systems alike
    runner: Callable[[Coroutine[Any, Any, None]], object]
    if hasattr(adapter, "run_trio"):
        adapter.run_trio(config)
        return
    if hasattr(adapter, "run"):
        runner = adapter.run
    elif "uvloop" in config.options:
        runner = importlib.import_module("uvloop").run
    else:
        runner = asyncio.run
    runner(run_node(config))


if __name__ == "__main__":
    run(ProcessConfig.from_json(sys.argv[1]))
