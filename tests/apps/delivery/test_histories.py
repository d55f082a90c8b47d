"""Billed time is true time, whatever happens to subscribers and meters."""

from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from tests.apps.delivery.histories import TOPIC, Delays, history
from tests.pipeline.building import build_in_memory
from tests.pipeline.event_rows import event_table

BILLING = """
currency = "EUR"
default_plan = "visitor"
exempt = ["meter", "end"]
[plans.visitor]
kind = "hour"
hour = 0.60
unit_s = 60
"""
SUBSCRIBERS = 40
EXACT_S = 0.001
"""Times of tapes are in microseconds."""
SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 27))]


def invoices(folder: Path, rows: list[dict], previous: pl.DataFrame | None = None) -> pl.DataFrame:
    (folder / "billing.toml").write_text(BILLING)
    found = build_in_memory(
        event_table(*rows), "invoices", invoices=previous, billing_file=str(folder / "billing.toml")
    )
    return found["invoices"].filter(pl.col("kind").is_in(["invoice", "correction"]))


def billed(rows: pl.DataFrame) -> dict[str, tuple[float, Decimal]]:
    """Seconds and amount of each subscriber."""
    sums = rows.group_by("subscriber").agg(pl.col("connected_ms").sum(), pl.col("amount").sum())
    return {name: (float(ms) / 1000, amount) for name, ms, amount in sums.rows()}


def cost(true_s: float) -> Decimal:
    """A cent for each minute begun."""
    return Decimal(-(-round(true_s * 1e6) // 60_000_000)) / 100


@pytest.mark.parametrize("seed", SEEDS)
def test_billed_time_is_true_time_and_a_second_meter_changes_nothing(seed: int, tmp_path: Path) -> None:
    made = history(seed, SUBSCRIBERS, Delays())
    true_s = made.true_s()
    both = invoices(tmp_path, made.rows())
    found = billed(both)
    assert found.keys() == true_s.keys()
    for name, (seconds, amount) in found.items():
        assert abs(seconds - true_s[name]) < EXACT_S, (seed, name, seconds, true_s[name])
        assert amount == cost(seconds)
    assert both["topic"].unique().to_list() == [TOPIC]
    one = invoices(tmp_path, made.rows(made.meters[0]))
    assert one["invoice_id"].to_list() == both["invoice_id"].to_list()


@pytest.mark.parametrize("seed", SEEDS)
def test_late_tape_is_corrected_and_forged_identifications_are_not_billed(seed: int, tmp_path: Path) -> None:
    made = history(seed, SUBSCRIBERS, Delays(joined_s=0.05, dead_s=1.5, unreachable_s=8.0))
    true_s = made.true_s()
    # The tape of the meter that was always there arrives after the month was billed.
    first = invoices(tmp_path, made.rows(*made.meters[1:]))
    forged = [
        {**row, "author": "f" * 16, "ticket_serial": None, "is_proven": False}
        for row in made.rows(made.meters[0])
        if row["kind"] == "identification"
    ]
    every = invoices(tmp_path, [*made.rows(), *forged], first)
    assert set(first["invoice_id"]) <= set(every["invoice_id"])
    counts = {name: sum(1 + len(each.sleeps) for each in made.connections if each.name == name) for name in true_s}
    for name, (seconds, _) in billed(every).items():
        if name in true_s:
            assert abs(seconds - true_s[name]) <= 8.05 * counts[name], (seed, name, seconds, true_s[name])
    again = invoices(tmp_path, [*made.rows(), *forged], every)
    assert again["invoice_id"].to_list() == every["invoice_id"].to_list()
