"""Micro-batches as a pure function: however events are split into batches, the live tables are the same."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broadloom.pipeline.analysis.frames import in_us
from broadloom.pipeline.live import sessions
from broadloom.pipeline.live.micro_batch import MicroBatchResult, process_micro_batch
from broadloom.pipeline.live.watermark import WatermarkRules
from broadloom.pipeline.tables import sessions as whole
from broadloom.pipeline.tables.sessions import SessionRule
from broadloom.record.arrow_import import pa, pc
from tests.pipeline.event_rows import event_table
from tests.pipeline.growing import BEGIN_S, Clock, RecordedPeers, on_tape

RULES = WatermarkRules(window_s=10, lateness_s=60)
SESSIONS = SessionRule(interval_s=20, missed_max=0, grace_s=5, tail_s=20, window_s=2)
NOW_US = int((BEGIN_S + 3600) * 1e6)


def run(parts: list[pa.Table], rules: WatermarkRules = RULES) -> tuple[dict[str, pl.DataFrame], MicroBatchResult]:
    """The tables after all these batches, as the store keeps them."""
    final: dict[str, list[pl.DataFrame]] = {}
    current: dict[str, pl.DataFrame] = {}
    result: MicroBatchResult | None = None
    state = None
    for batch, part in enumerate(parts):
        result = process_micro_batch("c", state, part, batch=batch, now_us=NOW_US, rules=rules, sessions=SESSIONS)
        state = result.state
        for name, table in result.tables.items():
            frame = in_us(table)
            final.setdefault(name, []).append(frame.filter("is_final"))
            current[name] = frame.filter(~pl.col("is_final"))
    assert result is not None
    return {name: pl.concat([*frames, current[name]]) for name, frames in final.items()}, result


@pytest.fixture(scope="module")
def tape(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """Five minutes of four peers: messages, links, a leave, and two subscribers that come and go."""
    folder = tmp_path_factory.mktemp("tapes")
    clock = Clock()
    with RecordedPeers(folder, clock, peers=(1, 2, 3, 4)) as recorded:
        recorded.join()
        for one, other in ((1, 2), (2, 3), (3, 4), (4, 1)):
            recorded.link(one, other)
        for number in range(600):
            recorded.send(1 + number % 4, delay_s=0.001 * (1 + number % 50), step_s=0.5)
            if number % 40 == 0 and number < 300:
                recorded.recorders[2].identification("ann", 1)
                recorded.recorders[3].identification("ann", 1)
            if number % 20 == 0:
                recorded.recorders[2].identification("bob", 3)
            if number == 200:
                recorded.unlink(1, 2)
            if number == 300:
                recorded.leave(1)
                recorded.unlink(4, 1)
                recorded.report_missed(2, author=1, first=900, last=903)
    return on_tape(folder).sort_by([("event_time", "ascending"), ("run_id", "ascending"), ("ordinal", "ascending")])


def test_traffic_is_counted_per_window(tape):
    tables, result = run([tape])
    traffic = tables["traffic"]
    assert traffic["event_count"].sum() == tape.num_rows == result.rows
    assert result.excluded_rows == 0
    assert traffic["sent_count"].sum() == 600
    assert traffic["delivered_count"].sum() == 1800
    assert traffic["missed_count"].sum() == 4
    first = traffic.sort("start_time").row(0, named=True)
    assert (first["sent_count"], first["sent_bytes"], first["author_count"], first["peer_count"]) == (20, 80, 4, 4)


def test_live_latency_is_accurate_to_one_percent(tape):
    tables, _ = run([tape])
    frame = in_us(pl.DataFrame(tape))
    sent = frame.filter(pl.col("kind") == "sent").select("author", "sequence", sent="event_time")
    deliveries = frame.filter(pl.col("kind") == "delivered").join(sent, on=["author", "sequence"])
    deliveries = deliveries.with_columns(
        ms=(pl.col("event_time") - pl.col("sent")) / 1000, start_time=pl.col("event_time") // 10_000_000 * 10_000_000
    )
    for row in tables["latency"].iter_rows(named=True):
        mine = deliveries.filter(pl.col("start_time") == row["start_time"])["ms"]
        assert row["delivery_count"] == len(mine)
        assert row["untimed_count"] == row["negative_count"] == 0
        assert row["latency_max_ms"] == pytest.approx(mine.max())
        assert row["latency_mean_ms"] == pytest.approx(mine.mean())
        for name, share in (("latency_p50_ms", 0.5), ("latency_p90_ms", 0.9), ("latency_p99_ms", 0.99)):
            exact = mine.quantile(share, interpolation="higher")
            lower = mine.quantile(share, interpolation="lower")
            assert exact is not None
            assert lower is not None
            assert lower * 0.989 <= row[name] <= exact * 1.011


def test_live_sessions_match_batch_table(tape):
    tables, _ = run([tape])
    rows = in_us(pl.DataFrame(tape))
    spans = whole.spans(sessions.signs(rows), SESSIONS).with_columns(ticket_serial=pl.lit(None, pl.String))
    expected = in_us(whole.sessions(spans, rows["event_time"].max(), SESSIONS))  # type: ignore[arg-type]
    columns = ["subscriber", "start_time", "end_time", "identification_count", "peer_count", "end_status"]
    assert _rows(tables["sessions"], columns) == _rows(expected, columns)
    assert sorted(set(tables["sessions"]["subscriber"])) == ["ann", "bob"]


def test_live_session_ends_when_a_recorder_sees_the_member_leave():
    begin = datetime.fromtimestamp(BEGIN_S, UTC)
    kinds = {0: "member_joined", 5: "identification", 9: "member_lost", 10: "member_joined", 12: "member_left"}
    seen = {"peer": 16 * "a", "author": 16 * "b", "name": "ann"}
    rows = [{"kind": kind, "event_time": begin + timedelta(seconds=after_s), **seen} for after_s, kind in kinds.items()]
    tables, result = run([event_table(*rows)])
    assert result.excluded_rows == 0
    (row,) = tables["sessions"].select("subscriber", "start_time", "end_time", "end_status").rows()
    start_us = int(begin.timestamp() * 1_000_000)
    assert row == ("ann", start_us, start_us + 12_000_000, "left")


def test_live_snapshots_follow_changes_of_the_fabric(tape):
    tables, _ = run([tape])
    fabric = tables["fabric_snapshots"].sort("start_time")
    figures = fabric.select(
        "peer_count", "link_count", "degree_min", "degree_max", "component_count", "diameter"
    ).rows()
    # A ring of four; one link less makes it a line; then peer 1 leaves, and three remain in a line.
    assert figures == [(4, 4, 2, 2, 1, 2), (4, 3, 1, 2, 1, 3), (3, 2, 1, 2, 1, 2)]


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, 2600), max_size=6), mixed=st.randoms(use_true_random=False))
def test_live_tables_do_not_depend_on_batch_boundaries(tape, cuts, mixed):
    """Within the lateness, the order does not matter either: adjacent batches are mixed."""
    ends = sorted({min(cut, tape.num_rows) for cut in cuts} | {0, tape.num_rows})
    parts = [list(range(first, last)) for first, last in pairwise(ends)]
    for one, other in pairwise(parts):
        # 40 rows are some 5 s here, well within the lateness.
        swapped = one[-40:] + other[:40]
        mixed.shuffle(swapped)
        one[-40:], other[:40] = swapped[: len(one[-40:])], swapped[len(one[-40:]) :]
    tables, result = run([tape.take(part) for part in parts if part])
    expected, _ = run([tape])
    assert result.excluded_rows >= 0
    assert tables["excluded_events"].height == 0
    for name, frame in expected.items():
        columns = [column for column in frame.columns if column != "is_final"]
        assert _rows(tables[name], columns) == _rows(frame, columns), name


def test_late_events_are_counted_and_change_nothing(tape):
    early = tape.slice(0, 300)
    expected, before = run([tape.slice(300)])
    tables, after = run([tape.slice(300), early])
    assert after.excluded_rows == after.rows == 300
    assert tables["excluded_events"]["event_count"].sum() == 300
    assert set(tables["excluded_events"]["reason"]) == {"late"}
    for name in ("traffic", "latency", "sessions", "fabric_snapshots"):
        assert _rows(tables[name], tables[name].columns) == _rows(expected[name], expected[name].columns)
    assert after.watermark_us == before.watermark_us


def test_clock_that_is_behind_shows_in_the_counts(tape):
    is_own = pc.equal(tape["peer"], tape["peer"][0])
    delivered = pc.sum(pc.and_(is_own, pc.equal(tape["kind"], "delivered"))).as_py()
    tables, result = run([_behind(tape, is_own, 1)])
    assert result.excluded_rows == 0
    assert tables["latency"]["negative_count"].sum() == delivered
    wrong = _behind(tape, is_own, RULES.lateness_s + 300)
    tables, result = run([wrong.filter(pc.invert(is_own)), wrong.filter(is_own)])
    assert result.excluded_rows == tables["excluded_events"]["event_count"].sum() == pc.sum(is_own).as_py()
    assert tables["traffic"]["event_count"].sum() == tape.num_rows - result.excluded_rows


def _behind(tape: pa.Table, is_own: pa.ChunkedArray, seconds: float) -> pa.Table:
    """With these rows by a clock that is behind."""
    field, times = tape.schema.field("event_time"), tape["event_time"].cast(pa.int64())
    times = pc.if_else(is_own, pc.subtract(times, round(seconds * 1e6)), times).cast(field.type)
    return tape.set_column(tape.schema.names.index("event_time"), field, times)


def test_future_events_do_not_move_the_watermark(tape):
    times = pa.array([NOW_US + 400_000_000] * 5, pa.int64()).cast(tape.schema.field("event_time").type)
    place = tape.schema.names.index("event_time")
    ahead = tape.slice(0, 5).set_column(place, tape.schema.field("event_time"), times)
    tables, result = run([ahead, tape])
    assert tables["excluded_events"].select("reason", "event_count").group_by("reason").sum().rows() == [("future", 5)]
    assert tables["traffic"]["event_count"].sum() == tape.num_rows
    _, free = run([ahead, tape], WatermarkRules(window_s=10, lateness_s=60, future_s=None))
    assert free.excluded_rows == tape.num_rows
    assert result.rows == tape.num_rows


def test_delivery_waits_for_its_sending(tape):
    kinds = tape["kind"].to_pylist()
    sent = tape.take([place for place, kind in enumerate(kinds) if kind == "sent"])
    others = tape.take([place for place, kind in enumerate(kinds) if kind != "sent"])
    wide = WatermarkRules(window_s=10, lateness_s=1000)
    tables, _ = run([others, sent], wide)
    assert tables["latency"]["delivery_count"].sum() == 1800
    assert tables["latency"]["untimed_count"].sum() == 0
    without_sent, _ = run([others], wide)
    assert without_sent["latency"]["untimed_count"].sum() == 1800
    assert without_sent["latency"]["delivery_count"].sum() == 0


def _rows(frame: pl.DataFrame, columns: list[str]) -> list[Any]:
    rounded = frame.select(columns).with_columns(pl.selectors.float().round(9))
    return sorted(rounded.rows(), key=repr)


def test_live_state_does_not_grow_over_time(tmp_path: Path):
    clock = Clock()
    sizes: list[int] = []
    state = None
    for _ in range(4):
        folder = tmp_path / str(len(sizes))
        with RecordedPeers(folder, clock, peers=(1, 2)) as recorded:
            for _ in range(400):
                recorded.send(1, delay_s=0.01, step_s=1.0)
        result = process_micro_batch(
            "c", state, on_tape(folder), batch=0, now_us=NOW_US, rules=RULES, sessions=SESSIONS
        )
        state = result.state
        sizes.append(len(state))
    assert max(sizes[1:]) < 1.3 * sizes[0]
