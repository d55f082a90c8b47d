"""A process without file descriptors: it says so once, waits, and recovers. Each process has a limit of its own."""

import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.attack.harness import unique_name
from tests.support import wait_until

PREPARE = """
import asyncio, os, resource, sys, time
from broadloom import ConnectError, connect
from broadloom.transport.event_loop import new_event_loop

def exhaust():
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    held = []
    try:
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        return held

def run(main):
    factory = new_event_loop if sys.argv[1] == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())
"""
MEMBER = """
async def main():
    async with connect(sys.argv[2]) as channel:
        held = exhaust()
        print(channel.status().address, flush=True)
        started_at = time.process_time()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        print(time.process_time() - started_at, flush=True)
        for each in held:
            os.close(each)
        await channel.wait_for_peers(30)
        print("recovered", flush=True)

run(main)
"""
NEWCOMER = """
async def main():
    connecting = asyncio.ensure_future(join())
    if sys.argv[3] == "later":
        for _ in range(20):  # it listens by then
            await asyncio.sleep(0)
    held = []
    while not connecting.done():
        held += exhaust()
        await asyncio.sleep(0.001)
    try:
        connecting.result()
    except ConnectError as problem:
        print(problem, flush=True)

async def join():
    return await connect(sys.argv[2], bootstrap=["127.0.0.2"], advertise_host="127.0.0.1", timeout_s=2)

run(main)
"""
EACH_LOOP = pytest.mark.parametrize("loop", ["uvloop", "asyncio"])


@contextmanager
def program(tmp_path: Path, text: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(PREPARE + text))
    pipe, command = subprocess.PIPE, [sys.executable, str(file), *arguments]
    with (
        (tmp_path / "stderr").open("w") as errors,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True) as process,
    ):
        try:
            yield process
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=30)
        finally:
            process.kill()


@EACH_LOOP
def test_member_without_descriptors_logs_once_waits_and_recovers(loop: str, tmp_path: Path) -> None:
    name = unique_name()
    with program(tmp_path, MEMBER, loop, name) as member:
        assert member.stdout is not None
        assert member.stdin is not None
        host, port = member.stdout.readline().strip().split(":")
        waiting = [socket.create_connection((host, int(port))) for _ in range(30)]
        wait_until(lambda: "out of file descriptors" in (tmp_path / "stderr").read_text(), "the warning")
        wait_until(lambda: Path(f"/proc/{member.pid}/stat").read_text().split()[2] == "S", "an idle process")
        member.stdin.write("\n")
        member.stdin.flush()
        assert float(member.stdout.readline()) < 1.0, "seconds of processor time"
        for each in waiting:
            each.close()
        newcomer = "async def main():\n    async with connect(sys.argv[2]):\n        sys.stdin.readline()\nrun(main)"
        other_directory = tmp_path / "newcomer"
        other_directory.mkdir()
        with program(other_directory, newcomer, loop, name):
            assert member.stdout.readline() == "recovered\n"
    assert len((tmp_path / "stderr").read_text().splitlines()) < 5


@EACH_LOOP
@pytest.mark.parametrize("when", ["at once", "later"])
def test_newcomer_without_descriptors_says_so(loop: str, when: str, tmp_path: Path) -> None:
    with program(tmp_path, NEWCOMER, loop, unique_name(), when) as newcomer:
        assert newcomer.stdout is not None
        assert "out of file descriptors (this process may open 64); raise the limit" in newcomer.stdout.readline()
    errors = (tmp_path / "stderr").read_text()
    assert "Traceback" not in errors
    assert len(errors.splitlines()) < 5
