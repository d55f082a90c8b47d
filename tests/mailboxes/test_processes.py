"""Owners in other processes that are killed or stopped, and a late joiner with many values."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import broadloom
from broadloom.mailboxes import GoneReason, Mailboxes
from broadloom.mailboxes.classes import CLASSES
from broadloom.mailboxes.letterbox import Letterbox
from broadloom.protocol import Tuning
from broadloom.testing.sim.simulation import Simulation, SimulationSettings
from tests.channel.joined import QUICK, unique_name
from tests.mailboxes.harness import QUICK_MAILBOXES
from tests.mailboxes.sim_runtime import SimProgram
from tests.support import TIMEOUT_S, eventually

OWNER = """
import asyncio, sys
import broadloom
from broadloom.mailboxes import Mailboxes

async def main():
    async with broadloom.connect(sys.argv[1], tls=False, name="anna") as channel, Mailboxes(channel) as boxes:
        await channel.wait_for_peers(30)
        cursor = await boxes.bind("cursor", fetch=True, while_here=True)
        await cursor.put(b"3,4")
        while not boxes.keepers:
            await asyncio.sleep(0.05)
        plan = await boxes.bind("plan", fetch=True, held=True)
        await plan.put(b"v1")
        print("ready", flush=True)
        await asyncio.sleep(120)

asyncio.run(main())
"""


@asynccontextmanager
async def owner_process(name: str) -> AsyncIterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-c", OWNER, name]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ)  # noqa: ASYNC220
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), TIMEOUT_S) == b"ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


async def test_value_is_fetched_while_its_owner_is_stopped_and_after_it_was_killed(tmp_path: Path) -> None:
    name = unique_name()
    async with (
        broadloom.connect(name, tls=False, settings=QUICK, name="keeper") as channel,
        Mailboxes(channel, store=tmp_path / "values.db", settings=QUICK_MAILBOXES) as keeper,
        owner_process(name) as process,
    ):
        await eventually(lambda: keeper._office.table.named("plan") and keeper._office.table.named("cursor"))
        process.send_signal(signal.SIGSTOP)
        async with (
            broadloom.connect(name, tls=False, settings=QUICK) as late_channel,
            Mailboxes(late_channel, settings=QUICK_MAILBOXES) as late,
        ):
            assert (await late.fetch("plan", of="anna")).data == b"v1"
            news = await late.watch("cursor")
            change = await news.receive(20)
            process.kill()
            while change.reason is None:
                change = await news.receive(20)
            assert change.reason is GoneReason.OWNER_GONE
            assert (await late.fetch("plan", of="anna")).data == b"v1"


def test_late_joiner_has_ten_thousand_values_within_two_seconds() -> None:
    sim = Simulation(5, SimulationSettings(peer=Tuning(), roster=True))
    anna, ben = SimProgram(sim, "anna"), SimProgram(sim, "ben")
    assert sim.run_until(lambda: anna.is_synced and ben.is_synced, 30)
    for number in range(10_000):
        own = anna.office.own
        own.bind(f"value/{number}", CLASSES[8], while_here=False, copies=1, letterbox=Letterbox())
        own.put(f"value/{number}", b"%0100d" % number, lambda _result: None)
    assert sim.run_until(lambda: anna.office.table.digest == ben.office.table.digest, 30)
    late = SimProgram(sim, "carl")
    assert sim.run_until(lambda: late.node.is_connected, 30)
    assert sim.run_until(lambda: late.office.table.digest == anna.office.table.digest, 2.0)
