"""A trial sees what goes wrong, and leaves nothing behind."""

import os
import signal

import pytest

from tests.testing.chaos.real import children, is_running, popen, run, run_chaos, wait_until

MUTANT = """
import broadloom.testing.checks.final_audit
from broadloom.channel.channel import Channel
from broadloom.protocol.events import Batch
broadloom.testing.checks.final_audit.DELIVERY_TIMEOUT_S = 1.0
take = Channel._on_delivery
count = 0
def mutant(channel, batch):
    global count
    for message in batch:
        count += 1
        if count == 8:
            message = message._replace(data=bytes(100))
        if count != 12 and count < 30:
            take(channel, Batch.from_message(message))
        if count == 4:
            take(channel, Batch.from_message(message))
Channel._on_delivery = mutant
"""


def test_faults_in_the_channel_are_found():
    """Each process delivers one message twice, one altered, one not at all, and in the end nothing any more."""
    code, result = run_chaos("join-storm", MUTANT, peers=3, rate=40)
    assert code == 1
    assert not result["passed"]
    assert result["lost"] > 0
    assert result["delivered_twice"] == 3
    for complaint in ("twice", "altered", "before", "has not got"):
        assert any(complaint in problem for problem in result["problems"]), complaint


def test_a_process_that_ends_by_itself_is_a_fault():
    before = (
        "import os, broadloom.testing.chaos.scenarios as s\n"
        "def bad(trial):\n"
        "    trial.grow()\n"
        "    os.kill(trial.pool.processes[1].pid, 9)\n"
        "    trial.run(1)\n"
        "s.SCENARIOS['kill'] = s.ChaosScenario('', bad, s.ChaosConfig(peers=4))"
    )
    code, result = run_chaos("kill", before)
    assert code == 1
    assert "process 1 with peers 1 to 1 was killed by SIGKILL, and nobody had told it to" in result["errors"]


def test_an_exception_that_nobody_caught_is_a_fault():
    before = (
        "from broadloom.protocol.peer import Peer\n"
        "tick = Peer._tick\n"
        "def bad(peer):\n"
        "    tick(peer)\n"
        "    raise RuntimeError('a bug')\n"
        "Peer._tick = bad"
    )
    code, result = run_chaos("join-storm", before, peers=3)
    assert code == 1
    assert any("RuntimeError: a bug" in fault for fault in result["errors"])


def test_nobody_can_connect_in_time():
    before = "from broadloom.protocol.peer import Peer\nPeer.found_channel = lambda peer: None"
    code, result = run_chaos("join-storm", before, peers=3, repair_timeout=2)
    assert code == 1
    assert any("not connected" in problem for problem in result["problems"])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_nothing_is_left_behind(number, code):
    """Ctrl-C, and worse."""
    with popen("from broadloom.cli.chaos import chaos\nraise SystemExit(chaos('kill', peers=12))") as process:
        try:
            wait_until(lambda: len(children(process.pid)) >= 12)
            found = children(process.pid)
            os.kill(process.pid, number)
            process.communicate(timeout=10)
            assert process.returncode == code
            wait_until(lambda: not any(is_running(pid) for pid in found))
        finally:
            process.kill()


def test_frozen_ones_are_not_left_behind_either():
    with popen("from broadloom.cli.chaos import chaos\nraise SystemExit(chaos('pause', peers=6, pause=2))") as process:
        try:
            wait_until(lambda: any(_is_stopped(pid) for pid in children(process.pid)))
            found = children(process.pid)
            os.kill(process.pid, signal.SIGKILL)
            wait_until(lambda: not any(is_running(pid) for pid in found))
        finally:
            process.kill()


def _is_stopped(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("'no-such'", "choose one of kill"),
        ("'kill', peers=1", "fewer than two"),
        ("'kill', peers=10, processes=3", "evenly"),
        ("'kill', peers=20, processes=4, kill=3", "multiple"),
        ("'kill', peers=10, kill=9", "at least two"),
        ("'churn', kill=3", "--kill applies only"),
        ("'kill', pause=3", "--pause applies only"),
        ("'churn', peers=10, processes=5", "process of its own"),
        ("'kill', size=10", "at least"),
        ("'kill', size=65537", "at most"),
        ("'kill', degree=2", "degree 2"),
    ],
)
def test_wrong_use(words, complaint, capsys):
    from broadloom.cli.chaos import chaos
    from broadloom.cli.exit_codes import USAGE_ERROR

    code = eval(f"trial({words})", {"trial": chaos})
    assert code == USAGE_ERROR
    assert complaint in " ".join(capsys.readouterr().err.split())


def test_list():
    code, out, _ = run("from broadloom.cli.chaos import chaos\nraise SystemExit(chaos('list'))")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == [
        "kill", "churn", "pause", "load", "join-storm", "join", "partition",
    ]  # fmt: skip
