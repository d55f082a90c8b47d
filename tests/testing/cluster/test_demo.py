"""`broadloom demo` as its users run it, and the verdict of its summary."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from broadloom.cli.exit_codes import VERDICT_CODES
from broadloom.record import read
from broadloom.testing.checks.settling import Verdict
from broadloom.testing.cluster.demo_run import DemoSummary
from tests.cli.harness import run as run_command
from tests.cli.harness import running_command

CLEAN: dict[str, Any] = {
    "verdict": "held",
    "waits_for": None,
    "due_count": 100,
    "delivered_count": 100,
    "missing_count": 0,
    "duplicate_count": 0,
    "out_of_order_count": 0,
    "reply_before_parent_count": 0,
    "receiver_not_member_count": 0,
    "delivered_to_author_count": 0,
    "forged_count": 0,
    "not_recorded_count": 0,
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


def test_summary_passes_when_audit_is_clean() -> None:
    summary = audited()
    assert summary.passed
    assert ("Spark audit", "100 deliveries due, 0 missing") in summary.rows()


@pytest.mark.parametrize(
    ("audit", "problem"),
    [
        ({"verdict": "broken", "missing_count": 2}, "the audit found 2 deliveries missing"),
        ({"reported_missed_count": 1}, "the audit found 1 deliveries reported missed"),
        ({"verdict": "broken"}, "the audit found a broken guarantee"),
        ({"dropped_row_count": 3}, "rows dropped by recorders: 3"),
        ({"quarantined_file_count": 1}, "quarantined files: 1"),
    ],
)
def test_summary_fails_when_audit_has_a_finding(audit: dict[str, Any], problem: str) -> None:
    summary = audited(**audit)
    assert not summary.passed
    assert summary.problems == [problem]


def test_summary_is_unsettled_when_audit_waits_for_a_repair() -> None:
    text = "1,631 deliveries wait for the merge of 2 components, repairing for 4 min 29 s"
    summary = audited(verdict="unsettled", waits_for=text)
    assert (summary.verdict, summary.problems, summary.waits_for) == (Verdict.UNSETTLED, [], [text])
    assert VERDICT_CODES[summary.verdict] == 3


def test_summary_is_unjudged_when_nothing_was_due() -> None:
    for summary in (DemoSummary(8), audited(verdict="unjudged", due_count=0)):
        assert (summary.verdict, summary.problems, summary.passed) == (Verdict.UNJUDGED, [], False)
        assert VERDICT_CODES[summary.verdict] == 3


def test_invalid_options_are_a_usage_error() -> None:
    for options, message in (
        (["--peers", "1"], "a cluster has 2 to 1000 peers, not 1"),
        (["--headless", "--peers", "8", "--kill", "7"], "of 8 peers, 0 to 6 can be killed, not 7"),
        (["--ticks", "-1"], "--ticks is -1: use 0 to 10,000 messages per second"),
    ):
        ended = run_command("demo", *options)
        assert (ended.code, ended.err.strip()) == (2, f"broadloom demo: {message}")


def test_headless_demo_passes_without_spark(tmp_path: Path) -> None:
    options = ["--headless", "--no-spark", "--peers", "8", "--duration", "4", "--kill", "2", "--json"]
    ended = run(*options, "--dir", str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout)
    assert summary["passed"]
    assert (summary["killed"], summary["left"], summary["missed"], summary["problems"]) == (2, 2, 0, [])
    assert summary["deliveries"] > summary["messages"] > 10
    assert len(summary["recoveries"]) >= 3
    rows = read(tmp_path / "tapes")
    assert 0.8 * summary["deliveries"] < rows["kind"].to_pylist().count("delivered") <= summary["deliveries"]


def test_demo_serves_pages_until_ctrl_c() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    options = ["--no-spark", "--no-browser", "--peers", "3", "--port", str(port)]
    with running_command("demo", *options) as command:
        command.wait_for_output("Broadloom is ready")
        address = next(word for word in command.out.split() if word.startswith(f"http://127.0.0.1:{port}/?token="))
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(address, timeout=30) as page:
            assert page.status == 200
        with opener.open(f"http://127.0.0.1:{port}/topics", timeout=30) as page:
            assert b"do-sign-in-ann" in page.read(), "the news service"
        command.signal(signal.SIGINT)
        ended = command.wait()
    assert (ended.code, ended.err) == (0, "")


@pytest.mark.long
def test_headless_demo_is_audited_by_spark() -> None:
    ended = run("--headless", "--peers", "8", "--duration", "8", "--json", timeout_s=280)
    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout)
    assert summary["audited_by"] == "Spark, over the tapes"
    # A killed process loses the last rows of its tape; apart from that, tape and cluster agree.
    assert 0.8 * summary["deliveries"] < summary["audit"]["delivered_count"] <= summary["deliveries"]
    assert summary["audit"]["due_count"] <= summary["audit"]["delivered_count"]
    bill = {(row["subscriber"], row["topic"], row["plan_name"], row["currency"]) for row in summary["bill"]}
    assert ("ben", "sports/nfl/scores", "visitor", "EUR") in bill
    assert all(row["connected_s"] > 0 and float(row["amount"]) > 0 for row in summary["bill"])


@pytest.mark.long
@pytest.mark.timeout(900)
def test_headless_demo_survives_kill_of_40_of_200_peers() -> None:
    options = ["--headless", "--no-spark", "--peers", "200", "--kill", "40", "--duration", "20", "--json"]
    ended = run(*options, timeout_s=850)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    summary = json.loads(ended.stdout)
    assert (summary["killed"], summary["missed"], summary["problems"]) == (40, 0, [])
