"""Small trials with real processes: all promises hold."""

import pytest

from tests.trial.real import trial


def held(code, result, *, survivors):
    assert (result["problems"], result["faults"]) == ([], [])
    assert code == 0
    assert result["held"]
    assert result["survivors"] == survivors
    assert (result["lost"], result["twice"], result["missed"]) == (0, 0, 0)
    assert result["messages"] > 10
    assert result["deliveries"] >= (survivors - 1) * 10


def test_kill():
    code, result = trial("kill", peers=12, kill=4)
    held(code, result, survivors=8)
    assert result["killed"] == 4
    assert result["figures"]["whole_again_s"] > 0


def test_several_peers_in_a_process_and_plain():
    code, result = trial("kill", peers=24, processes=4, kill=12, plain=True)
    held(code, result, survivors=12)
    assert result["security"] == "plain"


def test_freeze():
    code, result = trial("freeze", peers=8, freeze=2, seconds=9.5)
    held(code, result, survivors=8)
    assert result["figures"]["latency_max_ms"] > 5000, "the frozen got it late, but got it"


def test_join_storm():
    code, result = trial("join-storm", peers=12)
    held(code, result, survivors=12)


def test_churn():
    code, result = trial("churn", peers=8, seconds=4, per_min=90)
    held(code, result, survivors=8 + result["figures"]["arrivals"] - result["killed"] - result["left"])


def test_join():
    code, result = trial("join", peers=6, newcomers=2)
    held(code, result, survivors=8)
    assert result["figures"]["newcomer_handshakes"] >= 2
    assert 0 < result["figures"]["newcomer_search_s"] < result["figures"]["newcomer_max_s"]


def test_partition():
    code, result = trial("partition", peers=10, seconds=8)
    if result["skipped"]:
        pytest.skip(result["skipped"])
    held(code, result, survivors=10)
    assert result["figures"]["latency_max_ms"] > 5000, "what one half said reached the other after it healed"


def test_tape(tmp_path):
    pytest.importorskip("pyarrow")
    code, result = trial("join-storm", peers=4, tape=str(tmp_path))
    held(code, result, survivors=4)
    from weft.record import summarize

    (channel,) = summarize(tmp_path)
    assert channel.kinds["delivered"] == result["deliveries"]
    assert len(channel.observers) == 4
