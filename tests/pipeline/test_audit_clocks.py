"""The audit accuses no innocent peer, whatever the clocks of the machines show and whenever it is made."""

import random

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broadloom.record.arrow_import import pa
from tests.pipeline.building import build_in_memory
from tests.pipeline.shifted import on_machines
from tests.pipeline.simulated import simulated_history
from tests.pipeline.test_delivery_balances import A, B, C, TapeBuilder
from tests.pipeline.without_spark import frame, run_audit

HOUR_S = 3600.0
HISTORIES = ("churn", "kill-half", "long-partition", "partition", "pause", "random-faults")
SETTLE_S = 10.0
"""Longer than it takes to notice a crash, and short enough for simulated histories of less than a minute."""


@pytest.mark.parametrize("scenario", ["churn", "random-faults"])
@pytest.mark.parametrize("offsets_s", [[0.0, -HOUR_S, 5.0], [0.0, HOUR_S, HOUR_S / 2, -900.0]])
def test_clocks_an_hour_off_lead_to_no_violation(scenario: str, offsets_s: list[float]) -> None:
    rows = simulated_history(scenario, 20).rows
    drifts_ppm = [30.0 * (-1) ** number for number in range(len(offsets_s))]
    found = run_audit(on_machines(rows, offsets_s, drifts_ppm))
    assert found.violations == set()
    truth = run_audit(rows).delivery_balances
    judged = found.delivery_balances.select(pl.col("due_count", "unknown_clock_count").sum()).row(0)
    assert judged[0] == truth["due_count"].sum()
    assert judged[1] < judged[0] / 100


def shift(tape: TapeBuilder, peer: str, seconds: float) -> pa.Table:
    moved = pl.when(pl.col("peer") == peer).then(pl.duration(seconds=seconds)).otherwise(pl.duration(seconds=0))
    return frame(tape.table()).with_columns(pl.col("event_time") + moved).to_arrow()


@pytest.mark.parametrize("seconds", [-HOUR_S, HOUR_S])
def test_links_relate_clocks_where_messages_do_not(seconds: float) -> None:
    """No row shows over which link a message came. Both ends of a link recorded its start."""
    tape = TapeBuilder(A, B).sent(A, 1, 1.0).delivered(B, A, 1, 1.1).joined(C, 100.0)
    tape.add("link_up", C, 100.0, neighbor=A).add("link_up", A, 100.0, neighbor=C)
    tape.sent(A, 2, 200.0).delivered(B, A, 2, 200.1).delivered(C, A, 2, 200.1).alive(A, B, C, second=300.0)
    assert run_audit(shift(tape, C, seconds)).findings == set()
    tape.sent(A, 3, 210.0).delivered(B, A, 3, 210.1).alive(A, B, C, second=400.0)
    assert run_audit(shift(tape, C, seconds)).findings == {("missing", A, 3, C)}


def test_message_of_author_without_tape_was_sent_when_the_first_run_saw_it() -> None:
    """B is an hour behind and got the message late; C, which joined in between, is not due it."""
    tape = TapeBuilder(A, B).delivered(A, "e" * 16, 1, 1.0).joined(C, 100.0)
    tape.add("link_up", C, 100.0, neighbor=A).add("link_up", A, 100.0, neighbor=C).delivered(B, "e" * 16, 1, 200.0)
    tape.delivered(C, "e" * 16, 2, 200.1)
    for peer in (A, B):
        tape.delivered(peer, "e" * 16, 2, 200.1)
    tape.alive(A, B, C, second=300.0)
    assert run_audit(shift(tape, B, -HOUR_S)).findings == set()


@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1 << 32))
def test_random_histories_with_wrong_clocks_accuse_only_the_planted_fault(seed: int) -> None:
    """Crashes, partitions, pauses and churn; cut off at any time; some peers without a tape; clocks up to an hour off
    that drift by 30 ppm. One delivery is removed, and only that one is missing."""
    rng = random.Random(seed)
    rows = frame(simulated_history(rng.choice(HISTORIES), 20).rows)
    times = rows["event_time"].sort()
    rows = rows.filter(pl.col("event_time") <= times[int(rng.uniform(0.3, 1.0) * (len(times) - 1))])
    peers = sorted(rows["peer"].drop_nulls().unique())
    rows = rows.filter(~pl.col("peer").is_in(rng.sample(peers, rng.choice([0, 0, 1, 4, 8]))))
    rows, planted = _without_a_delivery(rows, rng)
    machines = rng.choice([1, 2, 3, 6, 20])
    offsets_s = [rng.choice([0.0, rng.uniform(-5, 5), rng.uniform(-HOUR_S, HOUR_S)]) for _ in range(machines)]
    drifts_ppm = [rng.uniform(-30, 30) for _ in range(machines)]
    table = on_machines(rows.to_arrow(), offsets_s, drifts_ppm, seed)
    found = build_in_memory(table, "audit_summary", settle_s=str(SETTLE_S))
    accused = found["audit_findings"].filter("is_violation").select("finding", "author", "sequence", "receiver")
    assert set(accused.iter_rows()) == planted
    (summary,) = found["audit_summary"].to_dicts()
    assert summary["verdict"] == ("broken" if planted else "unsettled" if summary["unsettled_count"] else "held")


def _without_a_delivery(rows: pl.DataFrame, rng: random.Random) -> tuple[pl.DataFrame, set[tuple[str, str, int, str]]]:
    """Remove one delivery between two others of the same author to the same receiver; in half of the cases, none."""
    pair = ["author", "peer"]
    delivered = rows.with_row_index("row").filter(pl.col("kind") == "delivered").sort("ordinal")
    place, count = pl.int_range(pl.len()).over(pair), pl.len().over(pair).cast(pl.Int64)
    inner = delivered.filter((place > 0) & (place < count - 1)).sort("row")
    if rng.random() < 0.5 or not inner.height:
        return rows, set()
    chosen = inner.row(rng.randrange(inner.height), named=True)
    kept = rows.with_row_index("row").filter(pl.col("row") != chosen["row"]).drop("row")
    return kept, {("missing", chosen["author"], chosen["sequence"], chosen["peer"])}
