"""Small trials with real processes: all promises hold."""

import pytest

from tests.testing.chaos.real import run_chaos


def assert_passed(code, result, *, survivors):
    assert (result["problems"], result["errors"]) == ([], [])
    assert code == 0
    assert result["passed"]
    assert result["survivors"] == survivors
    assert (result["lost"], result["delivered_twice"], result["missed"]) == (0, 0, 0)
    assert result["messages"] > 10
    assert result["deliveries"] >= (survivors - 1) * 10


def test_kill():
    code, result = run_chaos("kill", peers=12, kill=4)
    assert_passed(code, result, survivors=8)
    assert result["killed"] == 4
    assert result["metrics"]["whole_again_s"] > 0


def test_several_peers_in_a_process_and_plain():
    code, result = run_chaos("kill", peers=24, processes=4, kill=12, no_tls=True)
    assert_passed(code, result, survivors=12)
    assert result["security"] == "plain"


def test_freeze():
    code, result = run_chaos("pause", peers=8, pause=2, duration=9.5)
    assert_passed(code, result, survivors=8)
    assert result["metrics"]["latency_max_ms"] > 5000, "the frozen got it late, but got it"


def test_join_storm():
    code, result = run_chaos("join-storm", peers=12)
    assert_passed(code, result, survivors=12)


def test_churn():
    code, result = run_chaos("churn", peers=8, duration=4, churn_per_min=90)
    assert_passed(code, result, survivors=8 + result["metrics"]["arrivals"] - result["killed"] - result["left"])


def test_join():
    code, result = run_chaos("join", peers=6, joiners=2)
    assert_passed(code, result, survivors=8)
    assert result["metrics"]["newcomer_handshakes"] >= 2
    assert 0 < result["metrics"]["newcomer_search_s"] < result["metrics"]["newcomer_max_s"]


def test_partition():
    code, result = run_chaos("partition", peers=10, duration=8)
    if result["skipped"]:
        pytest.skip(result["skipped"])
    assert_passed(code, result, survivors=10)
    assert result["metrics"]["latency_max_ms"] > 5000, "what one half said reached the other after it healed"


def test_tape(tmp_path):
    pytest.importorskip("pyarrow")
    code, result = run_chaos("join-storm", peers=4, tape=str(tmp_path))
    assert_passed(code, result, survivors=4)
    from broadloom.record import summarize

    (channel,) = summarize(tmp_path)
    assert channel.kinds["delivered"] == result["deliveries"]
    assert len(channel.peers) == 4
