"""Small chaos runs with real processes: all guarantees hold."""

from pathlib import Path
from typing import Any

import pytest

from tests.testing.chaos.real_runs import run_chaos


def assert_passed(code: int, result: dict[str, Any], *, survivors: int) -> None:
    assert (result["problems"], result["errors"]) == ([], [])
    assert code == 0
    assert result["passed"]
    assert result["survivors"] == survivors
    assert (result["lost"], result["delivered_twice"], result["missed"]) == (0, 0, 0)
    assert result["messages"] > 10
    assert result["deliveries"] >= (survivors - 1) * 10


def test_fabric_is_regular_again_after_kill() -> None:
    code, result = run_chaos("kill", peers=12, kill=4)
    assert_passed(code, result, survivors=8)
    assert result["killed"] == 4
    assert result["metrics"]["regular_again_s"] > 0
    assert result["cpu_s"] > 0


def test_several_peers_share_a_process_without_tls() -> None:
    code, result = run_chaos("kill", peers=24, processes=4, kill=12, no_tls=True)
    assert_passed(code, result, survivors=12)
    assert result["security"] == "plain"


@pytest.mark.long
def test_paused_peers_catch_up_after_resume() -> None:
    code, result = run_chaos("pause", peers=8, pause=2, duration=9.5)
    assert_passed(code, result, survivors=8)
    assert result["metrics"]["latency_max_ms"] > 5000, "messages sent during the pause were delivered late"


def test_join_storm_converges() -> None:
    code, result = run_chaos("join-storm", peers=12)
    assert_passed(code, result, survivors=12)


@pytest.mark.long
def test_churn_loses_no_message() -> None:
    code, result = run_chaos("churn", peers=8, duration=4, churn_per_min=90)
    assert_passed(code, result, survivors=8 + result["metrics"]["arrivals"] - result["killed"] - result["left"])


def test_join_reports_phases_of_connect() -> None:
    code, result = run_chaos("join", peers=6, joiners=2)
    assert_passed(code, result, survivors=8)
    assert result["metrics"]["join_handshakes"] >= 2
    assert 0 < result["metrics"]["join_discovery_s"] < result["metrics"]["join_max_s"]


def test_partitioned_halves_merge_after_healing() -> None:
    code, result = run_chaos("partition", peers=10, duration=8)
    if result["skipped"]:
        pytest.skip(result["skipped"])
    assert_passed(code, result, survivors=10)
    assert result["metrics"]["latency_max_ms"] > 5000, "messages of one half reached the other after healing"


def test_tape_has_every_audited_delivery(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    code, result = run_chaos("join-storm", peers=4, tape=str(tmp_path))
    assert_passed(code, result, survivors=4)
    from broadloom.record import summarize

    (channel,) = summarize(tmp_path)
    assert channel.kinds["delivered"] == result["deliveries"]
    assert len(channel.peers) == 4
