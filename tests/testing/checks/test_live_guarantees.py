"""The comparison between peers of a cluster: what is due, late or lost."""

from typing import Any

import pytest

from broadloom.testing.checks import live_guarantees
from broadloom.testing.checks.delivery_log import AuthorHead
from broadloom.testing.checks.guarantees import PeerView
from broadloom.testing.checks.live_guarantees import GuaranteeStatus, LiveGuarantees, statuses
from broadloom.testing.checks.settling import FabricState, Verdict
from broadloom.testing.cluster.metrics import MetricsSampler


def heads(running: dict[int, int], departed: dict[int, int] | None = None) -> list[dict[str, Any]]:
    """The reply of one worker: what its peers have sent, and have of departed authors."""
    return [
        {
            "running": [[peer, sent, 1000 * sent] for peer, sent in running.items()],
            "departed": [[peer, last, 0] for peer, last in (departed or {}).items()],
        }
    ]


def expected(heads: dict[int, AuthorHead]) -> dict[int, int]:
    return {author: head.last_sequence for author, head in heads.items()}


def reply(missing: int) -> list[dict[str, Any]]:
    return [{"missing": ["peer 2 is missing 1#5"] * missing, "missing_count": missing, "pairs": 4}]


def test_messages_of_running_authors_are_due() -> None:
    assert expected(LiveGuarantees().expected(heads({1: 5, 2: 7}))) == {1: 5, 2: 7}


def test_recent_messages_are_not_due_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = LiveGuarantees()
    assert expected(checks.expected_by_now(heads({1: 5}))) == {}
    monkeypatch.setattr(live_guarantees, "DUE_S", 0.0)
    assert expected(checks.expected_by_now(heads({1: 6}))) == {1: 6}


def test_messages_of_crashed_author_are_due_if_any_survivor_has_them() -> None:
    checks = LiveGuarantees()
    checks.expected(heads({1: 5, 2: 7}))
    checks.on_departed(1, left_gracefully=False)
    assert expected(checks.expected(heads({2: 7}, departed={1: 5}))) == {1: 5, 2: 7}
    # Of messages after its last report it is unknown when they were sent, and so to whom they are due.
    assert expected(checks.expected(heads({2: 7}, departed={1: 6}))) == {1: 5, 2: 7}
    # What it reported may have reached no peer.
    assert expected(checks.expected(heads({2: 7}, departed={1: 4}))) == {2: 7}


def test_all_messages_are_due_when_author_left_gracefully() -> None:
    checks = LiveGuarantees()
    checks.on_departed(1, left_gracefully=True, sent_count=9, last_sent_ns=123)
    assert expected(checks.expected(heads({2: 7}, departed={1: 3}))) == {1: 9, 2: 7}


def test_late_messages_are_lost_only_when_the_fabric_is_settled() -> None:
    checks = LiveGuarantees(settle_s=0.0)
    checks.expected_by_now(heads({1: 5}))
    checks.on_compared(reply(2))
    disturbed = FabricState(component_count=2, repairing_s=269.0, settle_s=0.0)
    assert checks.expected_if_settled(disturbed) == {}
    assert completeness(checks, disturbed).verdict is Verdict.UNSETTLED
    assert "wait for the merge of 2 components, repairing for 4 min 29 s" in completeness(checks, disturbed).summary
    settled = FabricState(settle_s=0.0)
    assert expected(checks.expected_if_settled(settled)) == {1: 5}
    checks.on_settled(reply(2))
    assert (checks.missing_count, checks.lost_count) == (2, 2)
    assert completeness(checks, settled).verdict is Verdict.BROKEN
    checks.on_compared(reply(0))
    assert (checks.missing_count, checks.lost_count) == (0, 0)


def test_recent_messages_are_not_lost_in_a_settled_fabric() -> None:
    checks = LiveGuarantees(settle_s=1000.0)
    checks.expected_by_now(heads({1: 5}))
    checks.on_compared(reply(2))
    assert checks.expected_if_settled(FabricState()) == {}
    assert completeness(checks, FabricState()).verdict is Verdict.HELD


@pytest.mark.parametrize("is_partitioned", [True, False])
def test_slow_repair_is_pending_and_not_violated(is_partitioned: bool) -> None:
    neighbors = {1: [2], 2: [1], 3: [4], 4: [3]}
    views = [PeerView(number, number, "connected", 0, others) for number, others in neighbors.items()]
    fabric = FabricState(component_count=2, free_slots=8, repairing_s=269.0)
    found = statuses(LiveGuarantees(), MetricsSampler(), views, fabric, 4, is_partitioned=is_partitioned)
    regular, connected = found[3:]
    assert (regular.verdict, connected.verdict) == (Verdict.UNSETTLED, Verdict.UNSETTLED)
    assert regular.summary == "8 free slots, repairing for 4 min 29 s"
    assert ("partitioned by you" if is_partitioned else "repairing for 4 min 29 s") in connected.summary


def test_pages_and_tapes_describe_a_fabric_in_the_same_words() -> None:
    merging = FabricState(component_count=2, repairing_s=269.0)
    assert merging.waits_for == "the merge of 2 components, repairing for 4 min 29 s"
    assert FabricState(free_slots=3, repairing_s=7.0).waits_for == "the repair of 3 free slots, repairing for 7.0 s"
    assert FabricState(paused_count=2).waits_for == "2 paused peers"
    assert FabricState(repaired_s=12.0).waits_for == "messages delayed by a repair, which was done 12.0 s ago"
    for settled in (FabricState(), FabricState(repaired_s=61.0), FabricState(repaired_s=5.0, settle_s=2.0)):
        assert (settled.is_settled, settled.waits_for) == (True, "")


def completeness(checks: LiveGuarantees, fabric: FabricState) -> GuaranteeStatus:
    return statuses(checks, MetricsSampler(), [], fabric, 4, is_partitioned=False)[1]
