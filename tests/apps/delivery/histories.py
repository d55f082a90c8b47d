"""Random histories of subscribers and meters: what truly happened, and the rows that the meters record of it.

Subscribers connect, leave, are killed, sleep and come back, use two devices at once, and are split from a meter. Meters
are killed and restarted, and lose what they had not written yet. Identifications are those of the real schedule.

As a program: `python -m tests.apps.delivery.histories SEEDS`.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

import polars as pl

from broadloom.apps.delivery.identification import Schedule
from broadloom.protocol.roster.member import Member
from tests.histories import main
from tests.pipeline.building import build_in_memory
from tests.pipeline.event_rows import event_table

BEGIN = datetime(2027, 1, 10, tzinfo=UTC)
LENGTH_S = 36 * 3600
INTERVAL_S = 3600.0
TIMEOUT_S = 3900.0
"""Silence that ends a session: an interval and its grace period."""
UNWRITTEN_S = 60.0
"""A meter that is killed loses the rows of this time."""
TOPIC = "sports/nfl"
UNIT_S = 60
BILLING = f"""
currency = "EUR"
default_plan = "visitor"
exempt = ["meter", "end"]
[plans.visitor]
kind = "hour"
hour = 0.60
unit_s = {UNIT_S}
"""
SUBSCRIBERS = 40
EXACT_S = 0.001
"""Times of tapes are in microseconds."""


@dataclass
class Delays:
    """How late meters notice things."""

    joined_s: float = 0.0
    dead_s: float = 0.0
    unreachable_s: float = 0.0


@dataclass
class Connection:
    peer: str
    name: str
    begin: float
    end: float
    is_killed: bool
    sleeps: list[tuple[float, float]]

    def awake(self) -> list[tuple[float, float]]:
        edges = [self.begin, *(edge for sleep in self.sleeps for edge in sleep), self.end]
        return [(edges[at], edges[at + 1]) for at in range(0, len(edges), 2)]


@dataclass
class Meter:
    peer: str
    begin: float
    end: float
    is_killed: bool
    splits: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """When connections cannot be seen from here."""


@dataclass
class History:
    connections: list[Connection]
    meters: list[Meter]
    delays: Delays

    def rows(self, *meters: Meter) -> list[dict[str, Any]]:
        found = [row for meter in meters or self.meters for row in self._rows_of(meter)]
        # A recorder that saw nobody: the month is over for long.
        return [*found, _row("sent", 24 * 3600 * 40, "end", "end", sequence=1)]

    def true_s(self, timeout_s: float = TIMEOUT_S) -> dict[str, float]:
        """Time connected, on any device. A short sleep counts: a bad network looks the same."""
        by_name: dict[str, list[tuple[float, float]]] = {}
        for each in self.connections:
            spans = [each.awake()[0]]
            for start, end in each.awake()[1:]:
                if start - spans[-1][1] <= timeout_s:
                    spans[-1] = (spans[-1][0], end)
                else:
                    spans.append((start, end))
            by_name.setdefault(each.name, []).extend(spans)
        return {name: _union(spans) for name, spans in by_name.items()}

    def _rows_of(self, meter: Meter) -> list[dict[str, Any]]:
        rows = [_row("joined", meter.begin, meter.peer, meter.peer, name="meter", run=meter.peer)]
        for each in self.connections:
            rows += self._rows_about(each, meter)
        last = meter.end - UNWRITTEN_S if meter.is_killed else meter.end
        rows.append(_row("sent", last, meter.peer, meter.peer, sequence=1, run=meter.peer))
        return [row for row in rows if row["event_time"] <= BEGIN + timedelta(seconds=last)]

    def _rows_about(self, each: Connection, meter: Meter) -> list[dict[str, Any]]:
        rows = []
        seen = _without(each.awake(), meter.splits.get(each.peer, []))
        schedule = Schedule(0, (TOPIC,), "", INTERVAL_S)
        for start, end in seen:
            start, stop = max(start, meter.begin), min(end, meter.end)
            if start >= stop:
                continue
            rows.append(self._about("member_joined", start + self.delays.joined_s, each, meter))
            now = start
            while now < stop:
                _, due = schedule.due(now, [cast("Member", SimpleNamespace(peer_id=1))], 0.5)
                if due or now == start:
                    rows.append(self._about("identification", now + self.delays.joined_s, each, meter, topic=TOPIC))
                    schedule.informed(cast("Any", 1))
                now = max(now + 1.0, schedule._due_at)
            if end > meter.end:
                continue
            if end < each.end:
                at, kind, reason = end + self.delays.unreachable_s, "member_lost", "unreachable"
            elif each.is_killed:
                at, kind, reason = end + self.delays.dead_s, "member_lost", "dead"
            else:
                at, kind, reason = end, "member_left", None
                rows.append(self._about("identification", end, each, meter, topic=TOPIC))
            rows.append(self._about(kind, at, each, meter, reason=reason))
        return rows

    def _about(self, kind: str, at_s: float, each: Connection, meter: Meter, **more: Any) -> dict[str, Any]:
        ticket = {"name": each.name, "ticket_serial": f"serial {each.name}", "is_proven": True}
        return _row(kind, at_s, meter.peer, each.peer, run=meter.peer, **ticket, **more)


def history(seed: int, subscribers: int, delays: Delays) -> History:
    rng = random.Random(seed)
    connections: list[Connection] = []
    for number in range(subscribers):
        for device in range(rng.choice([1, 1, 2])):
            at = rng.uniform(0, 6 * 3600)
            while at < LENGTH_S - 3600:
                end = min(at + rng.choice([30, 900, 4 * 3600, 12 * 3600]) * rng.uniform(0.5, 1.5), LENGTH_S)
                name = f"subscriber {number}"
                peer = f"{seed:04x}{number:04x}{device:02x}{len(connections):06x}"
                sleeps = _sleeps(rng, at, end)
                connections.append(Connection(peer, name, at, end, rng.random() < 0.5, sleeps))
                at = end + rng.uniform(10, 3 * 3600)
    # The first meter is always there; the second is killed and restarted, and split from some.
    meters = [Meter("first", -10, LENGTH_S + 60, False)]
    at = -10.0
    while at < LENGTH_S:
        end = at + rng.uniform(3600, 8 * 3600)
        meter = Meter(f"second {len(meters)}", at, min(end, LENGTH_S + 60), end < LENGTH_S)
        for each in connections:
            if rng.random() < 0.3 and each.end - each.begin > 200:
                start = rng.uniform(each.begin, each.end - 100)
                meter.splits[each.peer] = [(start, rng.uniform(start + 50, each.end))]
        meters.append(meter)
        at = end + rng.uniform(10, 1800)
    return History(connections, meters, delays)


def _sleeps(rng: random.Random, begin: float, end: float) -> list[tuple[float, float]]:
    if end - begin < 1800 or rng.random() < 0.6:
        return []
    start = rng.uniform(begin + 60, end - 600)
    return [(start, rng.uniform(start + 30, end - 60))]


def _without(spans: list[tuple[float, float]], gaps: list[tuple[float, float]]) -> list[tuple[float, float]]:
    for low, high in gaps:
        spans = [
            (start, end)
            for old in spans
            for start, end in ((old[0], min(old[1], low)), (max(old[0], high), old[1]))
            if start < end
        ]
    return spans


def _union(spans: list[tuple[float, float]]) -> float:
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _row(kind: str, at_s: float, peer: str, author: str, *, run: str = "end", **columns: Any) -> dict[str, Any]:
    at = BEGIN + timedelta(seconds=round(at_s, 6))
    return {"kind": kind, "event_time": at, "peer": peer, "author": author, "run_id": run, **columns}


# -- what must hold


def invoices(folder: Path, rows: list[dict[str, Any]], previous: pl.DataFrame | None = None) -> pl.DataFrame:
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


def check_billed_time(seed: int, folder: Path) -> None:
    """Billed time is true time, and a second meter changes nothing."""
    made = history(seed, SUBSCRIBERS, Delays())
    true_s = made.true_s()
    both = invoices(folder, made.rows())
    found = billed(both)
    assert found.keys() == true_s.keys()
    for name, (seconds, amount) in found.items():
        assert abs(seconds - true_s[name]) < EXACT_S, (seed, name, seconds, true_s[name])
        assert amount == cost(seconds)
    assert both["topic"].unique().to_list() == [TOPIC]
    one = invoices(folder, made.rows(made.meters[0]))
    assert one["invoice_id"].to_list() == both["invoice_id"].to_list()


def check_late_tape(seed: int, folder: Path) -> None:
    """A late tape is corrected, and forged identifications are not billed."""
    made = history(seed, SUBSCRIBERS, Delays(joined_s=0.05, dead_s=1.5, unreachable_s=8.0))
    true_s = made.true_s()
    # To the meters, a sleep is shorter: they notice its beginning late.
    longest_s = made.true_s(TIMEOUT_S + made.delays.unreachable_s)
    # The tape of the meter that was always there arrives after the month was billed.
    first = invoices(folder, made.rows(*made.meters[1:]))
    forged = [
        {**row, "author": "f" * 16, "ticket_serial": None, "is_proven": False}
        for row in made.rows(made.meters[0])
        if row["kind"] == "identification"
    ]
    rows = [*made.rows(), *forged]
    at_once, every = invoices(folder, rows), invoices(folder, rows, first)
    assert set(first["invoice_id"]) <= set(every["invoice_id"])
    counts = {name: sum(1 + len(each.sleeps) for each in made.connections if each.name == name) for name in true_s}
    expected = billed(at_once)
    for name, (seconds, amount) in expected.items():
        assert amount == cost(seconds)
        if name in true_s:
            slack_s = 8.05 * counts[name]
            assert true_s[name] - slack_s <= seconds <= longest_s[name] + slack_s, (seed, name, seconds, true_s[name])
    # There are no corrections of time that costs nothing.
    corrected = billed(every)
    assert corrected.keys() == expected.keys()
    for name, (seconds, amount) in corrected.items():
        assert amount == expected[name][1], (seed, name, amount, expected[name])
        assert abs(seconds - expected[name][0]) < UNIT_S, (seed, name, seconds, expected[name])
    again = invoices(folder, rows, every)
    assert again["invoice_id"].to_list() == every["invoice_id"].to_list()


def run_seed(seed: int) -> Counter[str]:
    for check in (check_billed_time, check_late_tape):
        with TemporaryDirectory() as folder:
            check(seed, Path(folder))
    return Counter(subscribers=SUBSCRIBERS)


if __name__ == "__main__":
    main(run_seed)
