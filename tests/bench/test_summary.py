"""The numbers of the tables: quantiles, what counts as undisturbed, medians and ratios."""

import pytest

from bench.summary import best_first, quantile, quantiles, summarize, undisturbed


def make_row(system, rate, *, foreign=0.0, lost=0, **more):
    case = {"workload": "throughput", "receivers": 8, "size_bytes": 100, "encrypted": False, "kind": "peers"}
    numbers = {"deliveries_per_s": rate, "foreign_share": foreign, "lost": lost, "duplicates": 0, "wanted": 100}
    return {**case, "system": system, **numbers, **more}


def test_quantiles_are_values_that_were_measured():
    ordered = [1.0, 2.0, 3.0, 4.0]
    assert [quantile(ordered, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1.0, 3.0, 4.0, 4.0]
    assert quantiles(ordered, 5) == [1.0, 2.0, 3.0, 4.0, 4.0]
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)


def test_disturbed_measurements_count_only_if_there_are_too_few_others():
    calm = [make_row("broadloom", rate, foreign=0.05) for rate in range(4)]
    busy = [make_row("broadloom", rate, foreign=0.5) for rate in range(4)]
    assert undisturbed(busy + calm) == calm
    assert len(undisturbed(busy + calm[:1])) == 3


def test_medians_ratios_and_the_worst_loss():
    rows = [
        make_row("nats", 100.0),
        *(make_row("broadloom", rate, lost=lost) for rate, lost in ((300.0, 0), (200.0, 7), (250.0, 0))),
    ]
    by_system = {row["system"]: row for row in summarize(rows)}
    broadloom = by_system["broadloom"]
    assert broadloom["deliveries_per_s"] == 250.0
    assert broadloom["to_nats"] == 2.5
    assert "to_floor" not in broadloom
    assert broadloom["lost"] == 7
    assert broadloom["spread"] == pytest.approx(0.4)
    assert broadloom["receivers"] == 8


def test_failed_system_is_listed_last():
    failed = make_row("redis", None) | {"error": "not installed"}
    summaries = best_first(summarize([failed, make_row("broadloom", 5.0), make_row("nats", 9.0)]))
    assert [row["system"] for row in summaries] == ["nats", "broadloom", "redis"]
    assert summaries[-1]["error"] == "not installed"


def test_one_failure_among_measurements_is_counted_and_does_not_hide_them():
    failed = make_row("broadloom", None) | {"error": "ended"}
    (summary,) = summarize([failed, make_row("broadloom", 5.0)])
    assert summary["deliveries_per_s"] == 5.0
    assert summary["failed"] == 1
