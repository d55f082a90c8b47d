"""`broadloom demo --headless`, as its users run it; and what its summary makes of an audit."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from broadloom.web.demo_summary import DemoSummary
from tests.cli.harness import running_command

CLEAN: dict[str, Any] = {
    "has_passed": True,
    "due_count": 100,
    "delivered_count": 100,
    "missing_count": 0,
    "duplicate_count": 0,
    "out_of_order_count": 0,
    "reply_before_parent_count": 0,
    "receiver_not_member_count": 0,
    "delivered_to_author_count": 0,
    "never_sent_count": 0,
    "reported_missed_count": 0,
    "dropped_row_count": 0,
    "quarantined_file_count": 0,
    "notes": None,
}


def run(*arguments: str, timeout_s: float = 100.0) -> subprocess.CompletedProcess[str]:
    broadloom = Path(sys.executable).with_name("broadloom")
    return subprocess.run(
        [broadloom, "demo", *arguments], capture_output=True, text=True, timeout=timeout_s, check=False
    )


def audited(**audit: Any) -> DemoSummary:
    summary = DemoSummary(8, deliveries=100)
    summary.apply_audit(CLEAN | audit, [])
    return summary


def test_a_clean_audit_holds() -> None:
    summary = audited()
    assert summary.passed
    assert ("audit by Spark", "100 deliveries due, 0 missing") in summary.rows()


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        ({"has_passed": False, "missing_count": 2}, "the audit found 2 deliveries missing"),
        ({"reported_missed_count": 1}, "the audit found 1 deliveries reported missed"),
        ({"has_passed": False}, "the audit is not clean"),
        ({"due_count": 0}, "the audit found nothing that was owed, so nothing is proved"),
        ({"dropped_row_count": 3}, "3 rows were dropped by recorders"),
        ({"quarantined_file_count": 1}, "1 files are quarantined"),
    ],
)
def test_whatever_the_audit_lacks_is_told(verdict: dict[str, Any], told: str) -> None:
    summary = audited(**verdict)
    assert not summary.passed
    assert summary.problems == [told]


def test_nothing_delivered_proves_nothing() -> None:
    assert not DemoSummary(8).passed


def test_a_mistake_is_told_in_a_sentence() -> None:
    for words, told in (
        (["--peers", "1"], "a lab has 2 to 1000 peers, not 1"),
        (["--headless", "--peers", "8", "--kill", "7"], "of 8 peers 0 to 6 can be killed, not 7"),
        (["--ticks", "-1"], "ticks_per_s is -1: give 0 to 10,000 messages a second"),
    ):
        ended = run(*words)
        assert (ended.returncode, ended.stderr.strip()) == (2, f"broadloom demo: {told}")


def test_once_without_spark() -> None:
    ended = run("--headless", "--no-spark", "--peers", "8", "--duration", "4", "--kill", "2", "--json")
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["passed"]
    assert (told["killed"], told["left"], told["missed"], told["problems"]) == (2, 2, 0, [])
    assert told["deliveries"] > told["messages"] > 10
    assert len(told["recoveries"]) >= 3


def test_the_page_comes_and_ctrl_c_ends_it_all() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    words = ["--no-spark", "--no-browser", "--peers", "3", "--port", str(port)]
    with running_command("demo", *words) as made:
        made.wait_for_output("Broadloom is here")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as page:
            assert page.status == 200
        made.signal(signal.SIGINT)
        ended = made.wait()
    assert (ended.code, ended.err) == (0, "")


@pytest.mark.long
def test_once_audited_by_spark() -> None:
    ended = run("--headless", "--peers", "8", "--duration", "8", "--json", timeout_s=280)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["audited_by"] == "Spark, over the tapes"
    # A process that is killed takes the last rows of its tape along; apart from that, tape and lab agree.
    assert 0.8 * told["deliveries"] < told["audit"]["delivered"] <= told["deliveries"]
    assert told["audit"]["owed"] <= told["audit"]["delivered"]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_hundred_peers_lose_forty() -> None:
    words = ["--headless", "--no-spark", "--peers", "200", "--kill", "40", "--duration", "20", "--json"]
    ended = run(*words, timeout_s=850)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert (told["killed"], told["missed"], told["problems"]) == (40, 0, [])
