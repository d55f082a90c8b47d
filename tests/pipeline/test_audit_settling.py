"""During a partition or a repair, messages are late and not lost: the verdict is not settled yet."""

from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from broadloom.record import read
from broadloom.testing import ClusterConfig, LocalCluster, TrafficRates
from tests.pipeline.building import build_in_memory
from tests.pipeline.simulated import simulated_history
from tests.pipeline.test_delivery_balances import A, B, C, D, TapeBuilder
from tests.pipeline.without_spark import frame
from tests.support import eventually

TIMEOUT_S = 90.0
LIVE_SETTLE_S = 10.0
"""Longer than it takes to notice that a link is dead."""


def verdict(tape: TapeBuilder) -> dict:
    return build_in_memory(tape.table(), "audit_summary")["audit_summary"].row(0, named=True)


def partitioned(until: float) -> TapeBuilder:
    """A and B lose C and D, and both halves go on; audited at `until`."""
    tape = TapeBuilder(A, B, C, D)
    for one, other in ((A, C), (A, D), (B, C), (B, D)):
        tape.link_lost(one, other, 10.0).link_lost(other, one, 10.0)
    return tape.sent(A, 1, 20.0).delivered(B, A, 1, 20.1).alive(A, B, C, D, second=until)


def healed(until: float) -> TapeBuilder:
    tape = partitioned(280.0)
    for one, other in ((A, C), (A, D), (B, C), (B, D)):
        tape.add("link_up", one, 290.0, neighbor=other).add("link_up", other, 290.0, neighbor=one)
    return tape.alive(A, B, C, D, second=until)


def test_messages_wait_for_the_end_of_a_partition() -> None:
    found = verdict(partitioned(279.0))
    assert (found["verdict"], found["unsettled_count"], found["missing_count"]) == ("unsettled", 2, 0)
    assert found["waits_for"] == "2 deliveries wait for the merge of 2 components, repairing for 4 min 29 s"
    assert found["verdict_time"].minute == 4


def test_messages_have_time_to_arrive_after_a_repair() -> None:
    found = verdict(healed(300.0))
    assert (found["verdict"], found["unsettled_count"]) == ("unsettled", 2)
    assert "messages delayed by a repair, which was done 10.0 s ago" in found["waits_for"]


def test_messages_missing_long_after_the_repair_are_lost() -> None:
    found = verdict(healed(400.0))
    assert (found["verdict"], found["unsettled_count"], found["missing_count"]) == ("broken", 0, 2)
    assert found["waits_for"] is None


def test_messages_that_arrive_after_the_repair_settle_the_verdict() -> None:
    tape = healed(300.0).delivered(C, A, 1, 301.0).delivered(D, A, 1, 301.0).alive(A, B, C, D, second=302.0)
    assert verdict(tape)["verdict"] == "held"


def test_gap_is_a_violation_even_during_a_partition() -> None:
    """Messages are delivered in order: the first one cannot arrive any more."""
    tape = partitioned(100.0).sent(A, 2, 30.0).sent(A, 3, 31.0).delivered(B, A, 3, 31.1)
    found = verdict(tape)
    assert (found["verdict"], found["missing_count"]) == ("broken", 1)


def test_crash_of_a_peer_is_no_partition() -> None:
    tape = TapeBuilder(A, B, C).link_lost(A, C, 10.0).link_lost(B, C, 10.0).sent(A, 1, 20.0).delivered(B, A, 1, 20.1)
    assert verdict(tape.alive(A, B))["verdict"] == "held"


@pytest.mark.parametrize("scenario", ["partition", "pause", "kill-half"])
def test_audit_at_any_time_of_a_history_finds_no_violation(scenario: str) -> None:
    rows = frame(simulated_history(scenario, 20).rows)
    start, end = rows.select(pl.col("event_time").min().alias("start"), pl.col("event_time").max().alias("end")).row(0)
    verdicts = []
    for second in range(6, int((end - start).total_seconds()) + 2, 3):
        part = rows.filter(pl.col("event_time") <= start + timedelta(seconds=second))
        found = build_in_memory(part.to_arrow(), "audit_summary", settle_s="8")
        verdicts.append(found["audit_summary"]["verdict"][0])
    assert "broken" not in verdicts
    assert verdicts[-1] == "held"
    if scenario == "partition":
        assert "unsettled" in verdicts


async def test_live_checks_and_audit_agree_during_a_partition(tmp_path: Path) -> None:
    """Real peers, audited from their tapes while they are partitioned and while they merge."""
    config = ClusterConfig(
        peers=6, tape=tmp_path, file_duration_s=1.0, settle_s=LIVE_SETTLE_S, rates=TrafficRates(ticks_per_s=10)
    )
    verdicts = []

    def audit() -> str:
        """The audit, and what the page says at that time."""
        found = build_in_memory(read(tmp_path), "audit_summary", settle_s=str(LIVE_SETTLE_S), clock_tolerance_s="0.05")
        verdicts.append(found["audit_summary"]["verdict"][0])
        assert verdicts[-1] != "broken"
        assert all(each.holds for each in cluster.guarantees()), cluster.guarantees()
        return str(verdicts[-1])

    async with LocalCluster.start(config) as cluster:
        await cluster.wait_until_grown(TIMEOUT_S)
        await cluster.partition()
        await eventually(lambda: cluster.guarantees()[1].is_pending, timeout_s=TIMEOUT_S)
        await eventually(lambda: audit() == "unsettled", timeout_s=TIMEOUT_S)
        await cluster.heal()
        await cluster.wait_until_converged(TIMEOUT_S)
        audit()
        await cluster.wait_until_delivered(TIMEOUT_S)
        await eventually(lambda: audit() == "held", timeout_s=TIMEOUT_S)
