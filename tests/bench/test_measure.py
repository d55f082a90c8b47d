"""Real measurements, as small as can be: two receivers, some hundred messages."""

import asyncio
import socket
from dataclasses import replace

import pytest

from bench.machine import free_ports
from bench.plan import QUICK, Case
from bench.systems import SYSTEMS
from bench.workloads import measure

PLAN = replace(QUICK, repeats=2, calm_s=0.0, settle_s=0.0)


@pytest.mark.parametrize("name", ["floor", "broadloom"])
def test_two_receivers_get_everything_once(name):
    rows = asyncio.run(measure(SYSTEMS[name], Case("throughput", 2, 100, 300), PLAN))
    assert len(rows) == 2
    for row in rows:
        assert row.get("error") is None
        assert (row["delivered"], row["lost"], row["duplicates"]) == (600, 0, 0)
        assert row["deliveries_per_s"] > 0
        assert row["wire_bytes"] > 600 * 100


def test_latencies_are_kept_as_a_curve():
    (row,) = asyncio.run(measure(SYSTEMS["floor"], Case("latency", 2, 100, 50, 500), PLAN))
    assert row["p50_ms"] <= row["p99_ms"] <= row["max_ms"] == pytest.approx(row["curve_ms"][-1], abs=1e-3)
    assert row["curve_ms"] == sorted(row["curve_ms"])


def test_missing_or_failing_system_is_a_row_with_the_reason():
    case = Case("throughput", 2, 100, 300)
    missing = replace(SYSTEMS["floor"], modules=("no_such_module_anywhere",))
    (row,) = asyncio.run(measure(missing, case, PLAN))
    assert "no_such_module_anywhere" in row["error"]
    broken = replace(SYSTEMS["floor"], name="no_such_adapter")
    (row,) = asyncio.run(measure(broken, case, PLAN))
    assert "ended" in row["error"]


@pytest.mark.parametrize("workload", ["request", "switch", "mailbox"])
def test_requests_of_two_clients_are_answered(workload):
    plan = replace(PLAN, latency_s=0.2)
    rows = asyncio.run(measure(SYSTEMS["broadloom"], Case(workload, 2, 100, 80, 100), plan))
    assert len(rows) == 2
    for row in rows:
        assert row.get("error") is None
        assert row["lost"] == row["failures"] == 0
        assert 0 < row["p50_ms"] <= row["p99_ms"] <= row["max_ms"]
        assert row["requests_per_s"] > 0


def test_messages_on_many_topics_reach_the_subscriptions_of_two_receivers():
    rows = asyncio.run(measure(SYSTEMS["broadloom"], Case("topics", 2, 100, 300, topics=50), PLAN))
    for row in rows:
        assert row.get("error") is None
        assert (row["delivered"], row["lost"], row["duplicates"]) == (600, 0, 0)


def test_another_version_is_imported_from_its_checkout(tmp_path):
    package = tmp_path / "src" / "broadloom"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('the older version')")
    plan = replace(PLAN, before=tmp_path)
    (row,) = asyncio.run(measure(SYSTEMS["broadloom:before"], Case("throughput", 2, 100, 300), plan))
    assert "the older version" in row["error"]


def test_port_that_was_taken_meanwhile_is_replaced(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        offered = [[taken.getsockname()[1]] * 4, free_ports(4), free_ports(4)]
        monkeypatch.setattr("bench.group.free_ports", lambda count: offered.pop(0)[:count])
        (row, *_) = asyncio.run(measure(SYSTEMS["broadloom"], Case("throughput", 2, 100, 300), PLAN))
    assert row.get("error") is None
    assert len(offered) < 2
