"""One process of a benchmark: it runs one adapter and obeys the driver, in lines of plain words.

    driver to node   connect <JSON list of earlier addresses> | warm | expect <count> | send <count> <rate per s, or 0>
                     report | gaps | latencies | stop
    node to driver   up | ready <address> <ns when connecting began> | warmed | expecting | first <ns> | done <ns>
                     sent <ns of the first> <ns of the last> | latencies <ns> <ns> ... | gaps <count>
                     report <ns> <received> <duplicates> <authors heard> <told missed> <troubles>

Words and not Python objects, so that a node may be written in any language: see `jgroups/Node.java`.
"""

import asyncio
import importlib
import json
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

from bench.part import BaseNode, Part
from bench.tally import HEAD, WARMING, Tally

TURN_MESSAGES = 64
"""After so many a sender lets its event loop turn: one that never yields would not receive, nor flush."""

Order = tuple[str, str]


def say(*words: object) -> None:
    """One write, so that lines of several threads do not mix."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def listen(tally: Tally, put: Callable[[Order], object]) -> None:
    """The driver's lines, read by a thread of its own: questions are answered at once, even while the node sends."""
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "report":
            counts = tally.received, tally.duplicates, len(tally.warmed), tally.missed, tally.troubles
            say("report", time.monotonic_ns(), *counts)
        elif word == "gaps":
            say("gaps", tally.gaps())
        elif word == "latencies":
            say("latencies", *tally.latencies_ns)
        elif word == "expect":
            tally.expect(int(rest))
            say("expecting")
        elif word == "stop":
            break
        else:
            put((word, rest))
    os._exit(0)  # whatever threads and sockets a library has: the driver is done with this process, or is dead


class Performer:
    """Carries out the orders that concern the system under test."""

    def __init__(self, part: Part, node: BaseNode, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._part = part
        self._node = node
        self._sleep = sleep
        self._padding = bytes(max(0, part.size_bytes - HEAD.size))
        self._next = 0

    async def perform(self, orders: AsyncIterator[Order]) -> None:
        await self._node.prepare()
        say("up")
        async for word, rest in orders:
            if word == "connect":
                began_ns = time.monotonic_ns()
                say("ready", await self._node.connect(json.loads(rest)) or "-", began_ns)
            elif word == "warm":
                await self._node.publish(HEAD.pack(self._part.index, WARMING, 0) + self._padding)
                await self._node.flush()
                say("warmed")
            elif word == "send":
                count, rate = map(int, rest.split())
                began_ns = time.monotonic_ns()
                await (self._send_paced(count, rate) if rate else self._send_all(count))
                say("sent", began_ns, time.monotonic_ns())

    async def _send_all(self, count: int) -> None:
        publish, pack, now_ns = self._node.publish, HEAD.pack, time.monotonic_ns
        index, padding = self._part.index, self._padding
        first, self._next = self._next, self._next + count
        for sequence in range(first, first + count):
            if not sequence % TURN_MESSAGES:
                await self._sleep(0)
            await publish(pack(index, sequence, now_ns()) + padding)
        await self._node.flush()

    async def _send_paced(self, count: int, rate: int) -> None:
        began_s = time.monotonic()
        for turn in range(count):
            wait_s = began_s + turn / rate - time.monotonic()
            if wait_s > 0:
                await self._sleep(wait_s)
            await self._node.publish(HEAD.pack(self._part.index, self._next, time.monotonic_ns()) + self._padding)
            await self._node.flush()
            self._next += 1


def make(part: Part) -> tuple[BaseNode, Tally]:
    """The adapter is imported here and nowhere else: only the process that uses a library needs to have it."""
    tally = Tally(part.index, timed=part.timed, say=say)
    adapter = importlib.import_module(f"bench.adapters.{part.adapter}")
    return adapter.Node(part, tally), tally


async def life(part: Part) -> None:
    node, tally = make(part)
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[Order] = asyncio.Queue()

    async def orders() -> AsyncIterator[Order]:
        while True:
            yield await waiting.get()

    def put(order: Order) -> None:
        loop.call_soon_threadsafe(waiting.put_nowait, order)

    threading.Thread(target=listen, args=(tally, put), daemon=True).start()
    await Performer(part, node, asyncio.sleep).perform(orders())


def run(part: Part) -> None:
    adapter = importlib.import_module(f"bench.adapters.{part.adapter}")
    runner: Callable[[Coroutine[Any, Any, None]], object]
    if hasattr(adapter, "run_trio"):
        adapter.run_trio(part)
        return
    if hasattr(adapter, "run"):
        runner = adapter.run
    elif "uvloop" in part.options:
        runner = importlib.import_module("uvloop").run
    else:
        runner = asyncio.run
    runner(life(part))


if __name__ == "__main__":
    run(Part.from_json(sys.argv[1]))
