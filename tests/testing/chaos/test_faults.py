"""A chaos run detects bugs and leaves no process behind."""

import os
import signal

import pytest

from broadloom.cli.chaos import chaos
from broadloom.cli.exit_codes import USAGE_ERROR
from tests.support import wait_until
from tests.testing.chaos.real_runs import descendants, is_running, process_state, run, run_chaos, running

DELIVERY_MUTANT = """
from dataclasses import replace
from broadloom.channel.channel import Channel
from broadloom.protocol.events import Batch
deliver = Channel._on_delivery
count = 0
def mutant(channel, batch):
    global count
    for message in batch:
        count += 1
        if count == 8:
            message = replace(message, data=bytes(100))
        if count != 12 and count < 30:
            deliver(channel, Batch.from_message(message))
        if count == 4:
            deliver(channel, Batch.from_message(message))
Channel._on_delivery = mutant
"""


def test_wrong_deliveries_are_detected() -> None:
    """Each process delivers one message twice, one corrupted, one not at all, and nothing after some time."""
    before = "from broadloom.testing.chaos import final_audit\nfinal_audit.DELIVERY_TIMEOUT_S = 1.0"
    code, result = run_chaos("join-storm", before, DELIVERY_MUTANT, peers=3, rate=40)
    assert code == 1
    assert not result["passed"]
    assert result["lost"] > 0
    assert result["delivered_twice"] == 3
    for problem in ("twice", "corrupted", "before", "is missing"):
        assert any(problem in text for text in result["problems"]), problem


def test_unexpected_exit_of_a_process_is_an_error() -> None:
    before = (
        "import os, broadloom.testing.chaos.scenarios as s\n"
        "async def bad(chaos_run):\n"
        "    await chaos_run.grow()\n"
        "    os.kill(chaos_run.pool.workers[1].pid, 9)\n"
        "    await chaos_run.sleep(1)\n"
        "s.SCENARIOS['kill'] = s.ChaosScenario('', bad, s.ChaosConfig(peers=4))"
    )
    code, result = run_chaos("kill", before)
    assert code == 1
    assert "process 1 with peers 1 to 1 exited unexpectedly: killed by SIGKILL" in result["errors"]


def test_uncaught_exception_is_an_error() -> None:
    patch = (
        "from broadloom.protocol.peer import Peer\n"
        "tick = Peer._tick\n"
        "def bad(peer, due_at):\n"
        "    tick(peer, due_at)\n"
        "    raise RuntimeError('a bug')\n"
        "Peer._tick = bad"
    )
    code, result = run_chaos("join-storm", worker_patch=patch, peers=3)
    assert code == 1
    assert any("RuntimeError: a bug" in error for error in result["errors"])


def test_peers_that_cannot_connect_are_a_problem() -> None:
    patch = "from broadloom.protocol.peer import Peer\nPeer.create_channel = lambda peer: None"
    code, result = run_chaos("join-storm", worker_patch=patch, peers=3, repair_timeout=2)
    assert code == 1
    assert any("not connected" in problem for problem in result["problems"])


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)], ids=["Ctrl-C", "SIGKILL"]
)
def test_workers_exit_when_chaos_run_is_interrupted(number: signal.Signals, code: int) -> None:
    with running("from broadloom.cli.chaos import chaos\nraise SystemExit(chaos('kill', peers=12))") as process:
        wait_until(lambda: len(descendants(process.pid)) > 12)
        workers = descendants(process.pid)
        os.kill(process.pid, number)
        process.communicate(timeout=20)
        assert process.returncode == code
        wait_until(lambda: not any(is_running(pid) for pid in workers))


def test_paused_workers_exit_when_chaos_run_is_killed() -> None:
    call = "raise SystemExit(chaos('pause', peers=6, pause=2))"
    with running(f"from broadloom.cli.chaos import chaos\n{call}") as process:
        wait_until(lambda: any(process_state(pid) == "T" for pid in descendants(process.pid)))
        workers = descendants(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: not any(is_running(pid) for pid in workers))


@pytest.mark.parametrize(
    ("scenario", "options", "message"),
    [
        ("no-such", {}, "choose one of kill"),
        ("kill", {"peers": 1}, "at least 2"),
        ("kill", {"peers": 10, "processes": 3}, "evenly"),
        ("kill", {"peers": 20, "processes": 4, "kill": 3}, "multiple"),
        ("kill", {"peers": 10, "kill": 9}, "at least two"),
        ("churn", {"kill": 3}, "--kill applies only to"),
        ("kill", {"pause": 3}, "--pause applies only to"),
        ("churn", {"peers": 10, "processes": 5}, "process of its own"),
        ("kill", {"size": 10}, "at least"),
        ("kill", {"size": 65537}, "at most"),
        ("kill", {"degree": 2}, "degree must be between 3 and 32"),
    ],
)
def test_invalid_options_are_a_usage_error(
    scenario: str, options: dict[str, int], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chaos(scenario, **options) == USAGE_ERROR
    assert message in " ".join(capsys.readouterr().err.split())


def test_list_prints_every_scenario() -> None:
    code, out, _ = run("from broadloom.cli.chaos import chaos\nraise SystemExit(chaos('list'))")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == [
        "kill", "churn", "pause", "load", "join-storm", "join", "partition",
    ]  # fmt: skip
