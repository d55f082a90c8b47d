"""How the command ends when its surroundings fail: closed pipes, full disks, signals at any time."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from broadloom.cli.exit_codes import INTERRUPTED, MEANINGS, SUCCESS
from tests.cli.harness import COMMAND, listening, member, new_channel, running_command

FULL = Path("/dev/full")

INTERRUPT_AT_IMPORT = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
signal.signal(signal.SIGINT, signal.default_int_handler)
from broadloom.__main__ import main
main()
"""


@pytest.mark.parametrize("args", [["--help"], ["listen", "--help"], ["sim", "list"], ["--version"]])
def test_closed_pipe_is_no_error(args: list[str]) -> None:
    """As `broadloom --help | head -1`, at the worst moment: the reader is gone before the first write."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run([COMMAND, *args], stdout=writer, stderr=subprocess.PIPE, check=False, timeout=60)
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("args", [["key", "generate"], ["sim", "list"], ["--help"], ["--version"]])
def test_full_output_is_named(args: list[str]) -> None:
    with FULL.open("wb") as full:
        ended = subprocess.run(
            [COMMAND, *args], stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert ended.returncode == 1
    assert ended.stderr.endswith(": cannot write to standard output: No space left on device\n")
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_listen_fails_when_its_output_is_full() -> None:
    with FULL.open("wb") as full:
        args = [str(COMMAND), "listen", new_channel(), "--events"]
        ended = subprocess.run(args, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr == "broadloom listen: cannot write to standard output: No space left on device\n"


@pytest.mark.parametrize("module", ["typer", "broadloom.cli.main", "broadloom.cli.listen", "broadloom.channel"])
def test_ctrl_c_during_imports_shows_no_traceback(module: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPT_AT_IMPORT.format(module=module), "listen", new_channel()],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (INTERRUPTED, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_that_stop_a_session_are_a_success_and_documented(number: int) -> None:
    assert all(name in MEANINGS[SUCCESS] for name in ("Ctrl-C", "SIGTERM", "SIGHUP"))
    with running_command("join", new_channel()) as joined:
        joined.wait_for_output("joined")
        joined.signal(number)
        code, _, err = joined.wait()
    assert (code, err) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_during_unfinished_work_is_128_plus_its_number(number: int) -> None:
    channel = new_channel()
    with listening(channel), running_command("send", channel) as sender, member(channel) as other:
        sender.type("one\n")
        assert other.text() == "one"
        sender.signal(number)
        assert sender.wait().code == 128 + number
