"""Agreed order between processes whose sequencer is killed while all of them submit: nothing is ordered twice, and
nothing that a survivor had is lost."""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.channel.joined import unique_name
from tests.support import wait_until

WAIT_S = 90.0
"""Several processes start, on a machine that may be busy."""
POLL_S = 0.05
ENTRIES = 10
"""Entries of each program that must be ordered before the next step."""
PROGRAM = """
import asyncio, json, sys
import broadloom
from broadloom.order import Entry, Rewound

def say(**what):
    print(json.dumps(what), flush=True)

async def main(channel_name, mode, name, store, count, *voters):
    options = {"voters": voters, "store": store} if voters else {}
    async with (
        broadloom.connect(channel_name, name=name) as channel,
        broadloom.ordered(channel, "moves", mode=mode, from_index=1, **options) as order,
        asyncio.TaskGroup() as tasks,
    ):
        async def read():
            async for item in order:
                if isinstance(item, Entry):
                    say(index=item.index, text=item.text, is_sequencer=order.is_sequencer)
                elif isinstance(item, Rewound):
                    say(rewound=item.to_index, revoked=[entry.text for entry in item.entries])
                else:
                    say(problem=repr(item))

        async def submit(number):
            await order.submit(b"%s:%d" % (name.encode(), number), timeout_s=60)
            window.release()

        tasks.create_task(read())
        while len(order.participants) < int(count):
            await asyncio.sleep(0.02)
        window, number = asyncio.Semaphore(8), 0
        stopped = tasks.create_task(asyncio.to_thread(sys.stdin.readline))
        while not stopped.done():
            await window.acquire()
            number += 1
            tasks.create_task(submit(number))
            await asyncio.sleep(0.02)
        for _ in range(8):
            await window.acquire()
        say(submitted=number)

asyncio.run(main(*sys.argv[1:]))
"""


class Program:
    """A process that submits numbered entries, and what it has printed."""

    def __init__(self, folder: Path, channel: str, mode: str, name: str, names: list[str]) -> None:
        self.name = name
        self._output = folder / f"{name}.txt"
        store, voters = str(folder / f"{name}.db"), names if mode == "safe" else []
        command = [sys.executable, "-c", PROGRAM, channel, mode, name, store, str(len(names)), *voters]
        with self._output.open("w") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, text=True)

    @property
    def lines(self) -> list[dict[str, Any]]:
        printed = self._output.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in printed if line.endswith("\n")]  # the last one may be incomplete

    def said(self, key: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if key in line]

    @property
    def texts(self) -> list[str]:
        """The entries that were not revoked, which must have no gaps. A process that a busy machine does not run for
        seconds counts as cut off, so some may be revoked in mode `available`, exactly as reported."""
        texts: list[str] = []
        for line in self.lines:
            if "index" in line:
                texts.append(line["text"])
                assert line["index"] == len(texts), self.name
            elif "rewound" in line:
                assert line["revoked"] == texts[line["rewound"] :], self.name
                del texts[line["rewound"] :]
        return texts

    def count(self, author: "Program") -> int:
        return sum(text.startswith(f"{author.name}:") for text in self.texts)

    @property
    def is_sequencer(self) -> bool:
        return bool(entries := self.said("index")) and entries[-1]["is_sequencer"]

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def wait_for_entries(programs: list[Program]) -> None:
    """Each program has this many more entries of each, and agrees who the sequencer is."""
    before = {(reader, author): reader.count(author) for reader in programs for author in programs}

    def is_done() -> bool:
        return all(reader.count(author) >= count + ENTRIES for (reader, author), count in before.items())

    wait_until(
        is_done,
        lambda: str({program.name: len(program.texts) for program in programs}),
        timeout_s=WAIT_S,
        poll_s=POLL_S,
    )


def run_with_kills(folder: Path, mode: str, count: int, kills: int) -> None:
    names = [f"p{number}" for number in range(count)]
    channel = unique_name()
    with ExitStack() as stack:
        programs = []
        for name in names:
            programs.append(Program(folder, channel, mode, name, names))
            stack.callback(programs[-1].close)
        wait_for_entries(programs)
        killed: list[Program] = []
        for _ in range(kills):
            victim = wait_until(
                lambda: next((each for each in programs if each.is_sequencer), None), timeout_s=WAIT_S, poll_s=POLL_S
            )
            victim.process.kill()
            victim.process.wait()
            programs.remove(victim)
            killed.append(victim)
            wait_for_entries(programs)
        for program in programs:
            assert program.process.stdin is not None
            program.process.stdin.close()
        wait_until(lambda: all(program.said("submitted") for program in programs), timeout_s=WAIT_S, poll_s=POLL_S)
        wait_until(lambda: len({len(program.texts) for program in programs}) == 1, timeout_s=WAIT_S, poll_s=POLL_S)
        check(mode, programs, killed)


def check(mode: str, survivors: list[Program], killed: list[Program]) -> None:
    texts = survivors[0].texts
    assert all(program.texts == texts for program in survivors)
    assert [program.said("problem") for program in survivors] == [[] for _ in survivors]
    assert len(set(texts)) == len(texts)
    for program in survivors:
        submitted = program.said("submitted")[0]["submitted"]
        own = [text for text in texts if text.startswith(f"{program.name}:")]
        assert own == [f"{program.name}:{number}" for number in range(1, submitted + 1)]
    if mode == "safe":  # nothing is revoked, and what a killed one has delivered was final
        assert not any(program.said("rewound") for program in survivors)
        assert all(texts[: len(program.texts)] == program.texts for program in killed)


@pytest.mark.parametrize("mode", ["available", "safe"])
def test_order_goes_on_without_the_killed_sequencer(mode: str, tmp_path: Path) -> None:
    run_with_kills(tmp_path, mode, count=3, kills=1)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["available", "safe"])
def test_order_goes_on_when_one_sequencer_after_the_other_is_killed(mode: str, tmp_path: Path) -> None:
    run_with_kills(tmp_path, mode, count=7, kills=3)
