"""What the switch costs, and how soon failures are known: `python -m tools.switch_cost`. About half a minute.

Matching is CPU time of this process, without a network. Handlers and hosts of programs are processes of their own, on
loopback with TLS; their times are by the clock and include what other programs of the machine take.
"""

import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Annotated
from uuid import uuid4

import typer

import broadloom
from broadloom.switch import (
    Disposition,
    FailureReason,
    HandledRequest,
    MessageState,
    Pattern,
    ProgramType,
    Scope,
    Switch,
    SwitchMessage,
    SwitchReply,
)
from broadloom.switch.model import MessageClass, MessageId, Recipient
from broadloom.switch.pattern_index import PatternIndex
from broadloom.wire import PeerId

TRIES = 20
PATTERNS = 10_000
PROGRAMS = 10
MESSAGES = 2000
SESSION = "cost"
TIMEOUT_S = 60.0
EXIT_AT_ONCE = "import os, time; os.write(2, repr(time.time()).encode()); os._exit(3)"
"""A program that writes the time at which it exits."""


def matching_us(tries: int) -> list[float]:
    """One message against the patterns of ten programs."""
    index = PatternIndex()
    for program in range(PROGRAMS):
        names = range(PATTERNS // PROGRAMS)
        patterns = tuple(Pattern(True, (f"{program} {name}",), files=(f"file {name}",)) for name in names)
        index.set(PeerId(program), SESSION, patterns)
    messages = [
        SwitchMessage(
            MessageId(PeerId(1), number),
            MessageClass.REQUEST,
            Scope.FILE,
            Recipient.BOTH,
            SESSION,
            f"file {number % 700}",
            f"{number % PROGRAMS} {number % 700}",
            b"",
        )
        for number in range(MESSAGES)
    ]
    found = []
    for _ in range(tries):
        started_at = time.process_time()
        count = sum(len(list(index.find(message, SESSION))) for message in messages)
        found.append((time.process_time() - started_at) / MESSAGES * 1e6)
        assert count == MESSAGES
    return found


async def killed_handler_ms(tries: int) -> list[float]:
    """From killing a handler that has accepted a request to the failure of the request."""
    name, found = f"cost/{uuid4().hex}", []
    async with broadloom.connect(name) as channel, Switch(channel, session=SESSION) as switch:
        for number in range(tries):
            operation = f"hold {number}"
            with _process(_handle, name, operation) as handler:
                await switch.wait_for_handler(operation, timeout_s=TIMEOUT_S)
                killed_at = 0.0
                async for step in switch.follow(operation, b"", timeout_s=TIMEOUT_S):
                    if step.state is MessageState.ACCEPTED:
                        killed_at = time.perf_counter()
                        handler.kill()
                found.append((time.perf_counter() - killed_at) * 1e3)
                assert (step.reason, killed_at > 0) == (FailureReason.HANDLER_DIED, True), step
    return found


async def failed_start_ms(tries: int) -> list[float]:
    """From the exit of a program that exits at once to the failure of the request that started it."""
    name, found = f"cost/{uuid4().hex}", []
    async with broadloom.connect(name) as channel, Switch(channel, session=SESSION) as switch:
        with _process(_host, name, tries):
            await switch.wait_for_handler("ready", timeout_s=TIMEOUT_S)
            for number in range(tries):
                end = await _last(switch, f"start {number}")
                failed_at = time.time()
                assert end.reason is FailureReason.NOT_STARTED, end
                what, exited_at = end.failure_text.rsplit(": ", 1)
                assert what.endswith("exited with status 3"), end
                found.append((failed_at - float(exited_at)) * 1e3)
    return found


async def _last(switch: Switch, operation: str) -> SwitchReply:
    return [step async for step in switch.follow(operation, b"", timeout_s=TIMEOUT_S)][-1]


# -- the other processes


@contextmanager
def _process(target: Callable[..., None], *args: object) -> Iterator[BaseProcess]:
    process = multiprocessing.get_context("spawn").Process(target=target, args=args, daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def _handle(name: str, operation: str) -> None:
    async def run() -> None:
        async with broadloom.connect(name) as channel, Switch(channel, session=SESSION) as switch:

            @switch.handle(operation)
            async def hold(_request: HandledRequest) -> None:
                await asyncio.get_running_loop().create_future()

            await asyncio.get_running_loop().create_future()  # until it is killed

    asyncio.run(run())


def _host(name: str, count: int) -> None:
    """Offers a type for each try: after a failed start there is a pause."""
    types = {}
    for number in range(count):
        program = f"program {number}"
        handles = (Pattern(True, (f"start {number}",), program=program, disposition=Disposition.START),)
        types[program] = ProgramType(program, (sys.executable, "-I", "-S", "-c", EXIT_AT_ONCE), handles=handles)

    async def run() -> None:
        async with broadloom.connect(name) as channel, Switch(channel, session=SESSION, programs=types) as switch:
            switch.handle("ready")(lambda _request: b"")  # registered together with the types
            await asyncio.get_running_loop().create_future()

    asyncio.run(run())


def main(
    tries: Annotated[int, typer.Option(help="Number of tries of each measurement.", min=1)] = TRIES,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    measured = {
        f"matching with {PATTERNS:,} patterns, us": (matching_us(tries), 5),
        "killed handler is known, ms": (asyncio.run(killed_handler_ms(tries)), 100),
        "failed start is known, ms": (asyncio.run(failed_start_ms(tries)), 200),
    }
    result = {
        name: {"median": round(statistics.median(values), 2), "max": round(max(values), 2), "limit": limit}
        for name, (values, limit) in measured.items()
    }
    if as_json:
        print(json.dumps({**result, "tries": tries, "load": round(os.getloadavg()[0], 1)}, indent=2))
        return
    for name, each in result.items():
        print(f"{name}: median {each['median']:g}, max {each['max']:g} (limit {each['limit']:g})")
    print(f"{tries} tries each; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    typer.run(main)
