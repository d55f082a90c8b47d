"""A micro-batch of the live tables, as the pure function that it is: however events are split into batches, the tables
are those of all events at once."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broadloom.pipeline.arrow import sessions as whole
from broadloom.pipeline.arrow.frames import to_polars
from broadloom.pipeline.arrow.sessions import SessionRule
from broadloom.pipeline.live import sessions
from broadloom.pipeline.live.micro_batch import MicroBatchResult, process_micro_batch
from broadloom.pipeline.live.watermark import WatermarkRules
from broadloom.record.arrow_import import pa
from tests.pipeline.growing import BEGIN_S, Clock, RecordedPeers, on_tape

RULES = WatermarkRules(window_s=10, lateness_s=60)
SESSIONS = SessionRule(interval_s=20, missed_max=0, grace_s=5, tail_s=20, window_s=2)
NOW_US = int((BEGIN_S + 3600) * 1e6)


def run(parts: list[pa.Table], rules: WatermarkRules = RULES) -> tuple[dict[str, pl.DataFrame], MicroBatchResult]:
    """The tables after all these batches, kept as the store keeps them."""
    final: dict[str, list[pl.DataFrame]] = {}
    going: dict[str, pl.DataFrame] = {}
    result: MicroBatchResult | None = None
    state = None
    for batch, part in enumerate(parts):
        result = process_micro_batch("c", state, part, batch=batch, now_us=NOW_US, rules=rules, sessions=SESSIONS)
        state = result.state
        for name, table in result.tables.items():
            frame = to_polars(table)
            final.setdefault(name, []).append(frame.filter("final"))
            going[name] = frame.filter(~pl.col("final"))
    assert result is not None
    return {name: pl.concat([*frames, going[name]]) for name, frames in final.items()}, result


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """Five minutes of four peers: messages, links, losses, and two subscribers that come and go."""
    folder = tmp_path_factory.mktemp("tapes")
    clock = Clock()
    with RecordedPeers(folder, clock, peers=(1, 2, 3, 4)) as stage:
        stage.join()
        for one, other in ((1, 2), (2, 3), (3, 4), (4, 1)):
            stage.link(one, other)
        for number in range(600):
            stage.send(1 + number % 4, delay_s=0.001 * (1 + number % 50), step_s=0.5)
            if number % 40 == 0 and number < 300:
                stage.recorders[2].identification("ann", 1)
                stage.recorders[3].identification("ann", 1)
            if number % 20 == 0:
                stage.recorders[2].identification("bob", 3)
            if number == 200:
                stage.unlink(1, 2)
            if number == 300:
                stage.leave(1)
                stage.unlink(4, 1)
                stage.report_missed(2, author=1, first=900, last=903)
    return on_tape(folder).sort_by([("time", "ascending"), ("run", "ascending"), ("ordinal", "ascending")])


def test_rates_are_counted_by_window(played):
    tables, result = run([played])
    rates = tables["rates"]
    assert rates["rows"].sum() == played.num_rows == result.rows
    assert result.excluded_rows == 0
    assert rates["sent"].sum() == 600
    assert rates["delivered"].sum() == 1800
    assert rates["missed"].sum() == 4
    first = rates.sort("start").row(0, named=True)
    assert (first["sent"], first["sent_bytes"], first["authors"], first["observers"]) == (20, 80, 4, 4)


def test_latency_is_right_to_a_hundredth(played):
    tables, _ = run([played])
    frame = to_polars(played)
    sent = frame.filter(pl.col("kind") == "sent").select("author", "sequence", sent="time")
    delays = frame.filter(pl.col("kind") == "delivered").join(sent, on=["author", "sequence"])
    delays = delays.with_columns(
        ms=(pl.col("time") - pl.col("sent")) / 1000, start=pl.col("time") // 10_000_000 * 10_000_000
    )
    for told in tables["latency"].iter_rows(named=True):
        mine = delays.filter(pl.col("start") == told["start"])["ms"]
        assert told["deliveries"] == len(mine)
        assert told["unmatched"] == told["backward"] == 0
        assert told["max_ms"] == pytest.approx(mine.max())
        assert told["mean_ms"] == pytest.approx(mine.mean())
        for name, share in (("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99)):
            exact = mine.quantile(share, interpolation="higher")
            lower = mine.quantile(share, interpolation="lower")
            assert exact is not None
            assert lower is not None
            assert lower * 0.989 <= told[name] <= exact * 1.011


def test_sessions_are_those_of_the_batch_table(played):
    tables, _ = run([played])
    signs = sessions.signs(to_polars(played.select(["kind", "time", "observer", "author", "name", "channel"])))
    as_times = signs.with_columns(pl.col("first", "last").cast(pl.Datetime("us", "UTC"))).to_arrow()
    spans = whole.spans(as_times, SESSIONS)
    newest = to_polars(played)["time"].max()
    until = pa.array([newest] * spans.num_rows, pa.int64()).cast(pa.timestamp("us", "UTC"))
    expected = to_polars(whole.sessions(spans.append_column("until", until), SESSIONS))
    columns = ["subscriber", "start", "end", "identifications", "peers", "ended"]
    assert _rows(tables["sessions"], columns) == _rows(expected, columns)
    assert sorted(set(tables["sessions"]["subscriber"])) == ["ann", "bob"]


def test_the_fabric_is_told_when_it_changes(played):
    tables, _ = run([played])
    fabric = tables["fabric"].sort("start")
    figures = fabric.select("peers", "links", "degree_min", "degree_max", "components", "diameter").rows()
    # A ring of four; a link less makes it a line; then peer 1 goes, and three are left in a line.
    assert figures == [(4, 4, 2, 2, 1, 2), (4, 3, 1, 2, 1, 3), (3, 2, 1, 2, 1, 2)]


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, 2600), max_size=6), mixed=st.randoms(use_true_random=False))
def test_it_does_not_matter_how_events_are_split(played, cuts, mixed):
    """Within the lateness, not even their order matters: neighbouring batches are mixed."""
    ends = sorted({min(cut, played.num_rows) for cut in cuts} | {0, played.num_rows})
    parts = [list(range(first, last)) for first, last in pairwise(ends)]
    for one, other in pairwise(parts):
        # 40 rows are some 5 s here, well within the lateness.
        swapped = one[-40:] + other[:40]
        mixed.shuffle(swapped)
        one[-40:], other[:40] = swapped[: len(one[-40:])], swapped[len(one[-40:]) :]
    tables, result = run([played.take(part) for part in parts if part])
    expected, _ = run([played])
    assert result.excluded_rows >= 0
    assert tables["aside"].height == 0
    for name, frame in expected.items():
        columns = [column for column in frame.columns if column != "final"]
        assert _rows(tables[name], columns) == _rows(frame, columns), name


def test_late_rows_are_counted_and_change_nothing(played):
    early = played.slice(0, 300)
    expected, before = run([played.slice(300)])
    tables, after = run([played.slice(300), early])
    assert after.excluded_rows == after.rows == 300
    assert tables["aside"]["rows"].sum() == 300
    assert set(tables["aside"]["why"]) == {"late"}
    for name in ("rates", "latency", "sessions", "fabric"):
        assert _rows(tables[name], tables[name].columns) == _rows(expected[name], expected[name].columns)
    assert after.watermark_us == before.watermark_us


def test_a_clock_in_the_future_moves_no_watermark(played):
    times = pa.array([NOW_US + 400_000_000] * 5, pa.int64()).cast(played.schema.field("time").type)
    place = played.schema.names.index("time")
    ahead = played.slice(0, 5).set_column(place, played.schema.field("time"), times)
    tables, result = run([ahead, played])
    assert tables["aside"].select("why", "rows").group_by("why").sum().rows() == [("future", 5)]
    assert tables["rates"]["rows"].sum() == played.num_rows
    _, free = run([ahead, played], WatermarkRules(window_s=10, lateness_s=60, future_s=None))
    assert free.excluded_rows == played.num_rows
    assert result.rows == played.num_rows


def test_a_delivery_waits_for_its_sending(played):
    kinds = played["kind"].to_pylist()
    sent = played.take([place for place, kind in enumerate(kinds) if kind == "sent"])
    others = played.take([place for place, kind in enumerate(kinds) if kind != "sent"])
    wide = WatermarkRules(window_s=10, lateness_s=1000)
    tables, _ = run([others, sent], wide)
    assert tables["latency"]["deliveries"].sum() == 1800
    assert tables["latency"]["unmatched"].sum() == 0
    lacking, _ = run([others], wide)
    assert lacking["latency"]["unmatched"].sum() == 1800
    assert lacking["latency"]["deliveries"].sum() == 0


def _rows(frame: pl.DataFrame, columns: list[str]) -> list[Any]:
    rounded = frame.select(columns).with_columns(pl.selectors.float().round(9))
    return sorted(rounded.rows(), key=repr)


def test_state_does_not_grow_with_time(tmp_path: Path):
    clock = Clock()
    sizes: list[int] = []
    state = None
    for _ in range(4):
        folder = tmp_path / str(len(sizes))
        with RecordedPeers(folder, clock, peers=(1, 2)) as stage:
            for _ in range(400):
                stage.send(1, delay_s=0.01, step_s=1.0)
        result = process_micro_batch(
            "c", state, on_tape(folder), batch=0, now_us=NOW_US, rules=RULES, sessions=SESSIONS
        )
        state = result.state
        sizes.append(len(state))
    assert max(sizes[1:]) < 1.3 * sizes[0]
