"""Links are merged from both ends; one end is enough if the other crashed or does not record."""

import polars as pl
import pytest

from broadloom.pipeline.analysis.clock_correction import ClockCorrection
from broadloom.pipeline.analysis.frames import from_rows, in_us
from broadloom.pipeline.tables import membership_intervals as interval_table
from broadloom.pipeline.tables.clock_offsets import COLUMNS as CLOCK_OFFSETS
from broadloom.pipeline.tables.links import links
from broadloom.pipeline.tables.membership_intervals import IDENTITY, membership_intervals
from broadloom.record.arrow_import import pa
from tests.pipeline.building import build_all, rows_of_kill
from tests.pipeline.flooded import START_US, tape_rows
from tests.pipeline.simulated import simulated_history

A, B, C = (f"{peer:016x}" for peer in (0xA, 0xB, 0xC))
ONE_CLOCK = ClockCorrection(from_rows([], CLOCK_OFFSETS))


def signs_of(frame: pl.DataFrame) -> pl.DataFrame:
    span = {"first_time": pl.col("event_time").min(), "last_time": pl.col("event_time").max()}
    own = frame.filter(pl.col("peer").is_not_null()).group_by("channel", "run_id", "peer").agg(**span)
    heard = frame.filter(pl.col("kind") == "received").group_by("channel", "run_id", peer="neighbor").agg(**span)
    return pl.concat([own.with_columns(is_own=pl.lit(True)), heard.with_columns(is_own=pl.lit(False))])


def intervals_and_links(rows: pa.Table, correction: ClockCorrection = ONE_CLOCK) -> tuple[pl.DataFrame, pl.DataFrame]:
    frame = pl.DataFrame(rows)
    changes = frame.filter(pl.col("kind").is_in(interval_table.KINDS)).select(interval_table.EVENT_COLUMNS)
    nothing = changes.clear().with_columns(observer="peer")
    intervals = membership_intervals(changes, signs_of(frame), correction, roster=nothing)
    return intervals, links(changes, intervals, correction)


def rows_from_script(*lines: str) -> pa.Table:
    """Rows from a script: `3 a up b`, `5 b down a connection_lost`, `0 a joined`, `7 a says` (number: second)."""
    kinds = {"up": "link_up", "down": "link_down", "says": "duplicates"}
    rows = []
    for each in lines:
        second, peer, kind, *rest = each.split()
        row = {"event_time": START_US + float(second) * 1e6, "peer": f"{int(peer, 16):016x}"}
        row["kind"] = kinds.get(kind, kind)
        if rest:
            row["neighbor"] = f"{int(rest[0], 16):016x}"
        rows.append(row | ({"reason": rest[1]} if len(rest) > 1 else {}))
    return tape_rows(rows)


def seconds_of(table: pl.DataFrame, *names: str) -> list[tuple]:
    """Rows with times as seconds since the start."""
    times = [name for name in names if table.schema[name] == pl.Datetime]
    shown = in_us(table).with_columns(((pl.col(name) - START_US) / 1e6).round(6) for name in times)
    return shown.select(names).rows()


def test_link_lasts_while_both_ends_have_it():
    rows = rows_from_script(
        "0 a joined", "0 b joined", "1 a up b", "1.5 b up a", "4 a down b rewired", "4.25 b down a rewired", "9 a says"
    )
    _, found = intervals_and_links(rows)
    assert seconds_of(found, "peer_a", "peer_b", "start_time", "end_time", "duration_ms", "evidence") == [
        (A, B, 1.5, 4.0, 2500.0, "both")
    ]
    assert seconds_of(found, "a_reason", "b_reason", "crashed_peer") == [("rewired", "rewired", None)]


def test_link_up_at_end_of_tape_has_no_end():
    _, found = intervals_and_links(
        rows_from_script("0 a joined", "0 b joined", "1 a up b", "1 b up a", "5 a says", "5 b says")
    )
    assert seconds_of(found, "start_time", "end_time", "duration_ms", "evidence") == [(1.0, None, None, "both")]


def test_link_of_crashed_peer_ends_with_its_last_sign_of_life():
    rows = rows_from_script(
        "0 a joined", "0 b joined", "1 a up b", "1 b up a", "3 b says", "7 a down b heartbeat_timeout", "9 a says"
    )
    intervals, found = intervals_and_links(rows)
    assert seconds_of(intervals, "peer", "end_time", "end_status") == [(A, None, "present"), (B, 3.0, "crashed")]
    assert seconds_of(found, "start_time", "end_time", "evidence", "crashed_peer") == [(1.0, 3.0, "both", B)]


def test_peer_with_later_events_has_not_crashed():
    rows = rows_from_script(
        "0 a joined",
        "0 b joined",
        "1 a up b",
        "1 b up a",
        "3 a down b connection_lost",
        "3 b down a connection_lost",
        "9 b says",
    )
    intervals, _ = intervals_and_links(rows)
    assert seconds_of(intervals, "end_status") == [("present",), ("present",)]


def test_unrecorded_peer_is_known_from_its_neighbors():
    rows = rows_from_script("0 a joined", "1 a up c", "6 a down c peer_left", "9 a says")
    intervals, found = intervals_and_links(rows)
    assert seconds_of(intervals, "peer", "is_recorded", "start_time", "end_time", "end_status")[1] == (
        C,
        False,
        1.0,
        6.0,
        "left",
    )
    assert seconds_of(found, "peer_a", "peer_b", "start_time", "end_time", "evidence") == [(A, C, 1.0, 6.0, "one")]


def test_link_unknown_to_recording_end_is_disputed():
    _, found = intervals_and_links(
        rows_from_script("0 a joined", "0 b joined", "1 a up b", "2 a down b connection_lost", "9 a says", "9 b says")
    )
    assert seconds_of(found, "start_time", "end_time", "evidence") == [(1.0, 2.0, "disputed")]


def test_link_after_end_of_other_tape_counts():
    """A killed process loses its unfinished file."""
    rows = rows_from_script(
        "0 a joined", "0 b joined", "1 b says", "4 a up b", "8 a down b connection_lost", "9 a says"
    )
    intervals, found = intervals_and_links(rows)
    assert seconds_of(intervals, "peer", "end_status")[1] == (B, "crashed")
    assert seconds_of(found, "start_time", "evidence") == [(4.0, "one")]


def test_repeated_links_of_a_pair_are_separate():
    first = ["1 a up b", "1.1 b up a", "2 a down b rewired", "2.1 b down a rewired"]
    second = ["3 b up a", "3.1 a up b", "5 b down a rewired", "5.1 a down b rewired"]
    _, found = intervals_and_links(rows_from_script("0 a joined", "0 b joined", *first, *second, "9 a says"))
    assert seconds_of(found, "start_time", "end_time") == [(1.1, 2.0), (3.1, 5.0)]


def test_dropped_row_of_one_end_does_not_shift_other_links():
    first = ["1 a up b", "1.1 b up a", "2 a down b rewired", "2.1 b down a rewired"]
    second = ["3 b up a", "5 b down a rewired"]  # not recorded by a
    third = ["6 a up b", "6.1 b up a", "7 a down b rewired", "7.1 b down a rewired"]
    _, found = intervals_and_links(rows_from_script("0 a joined", "0 b joined", *first, *second, *third, "9 a says"))
    wanted = [(1.1, 2.0, "both"), (3.0, 5.0, "disputed"), (6.1, 7.0, "both")]
    assert seconds_of(found, "start_time", "end_time", "evidence") == wanted


LATENCY_MS_MAX = 60
"""Most that a frame takes in the simulated network, with jitter."""


@pytest.mark.parametrize("scenario", ["kill", "churn"])
def test_every_simulated_link_has_evidence_of_both_ends(scenario):
    history = simulated_history(scenario, 30)
    intervals, found = (in_us(each) for each in intervals_and_links(history.rows))
    ups = history.rows["kind"].to_pylist().count("link_up")
    # Where two dials cross, the end that accepted one may see a link that the other end has given up already.
    crossed = found.filter(pl.col("evidence") != "both")
    assert crossed.height <= found.height / 100
    assert crossed["evidence"].is_in(["disputed"]).all()
    assert (crossed["duration_ms"] < 2 * LATENCY_MS_MAX).all()
    assert found["a_start_time"].count() + found["b_start_time"].count() == ups
    there = set(intervals.filter(pl.col("end_status") == "present")["peer"])
    still = found.filter(pl.col("end_time").is_null())
    assert set(still["peer_a"]) | set(still["peer_b"]) == there


def test_engine_matches_pure_functions():
    intervals, found = intervals_and_links(simulated_history("kill", 30).rows)
    by_spark = build_all()
    assert rows_of_kill(by_spark["links"], "start_time", "peer_a", "peer_b") == found.rows()
    assert rows_of_kill(by_spark["membership_intervals"].drop(IDENTITY), "peer") == intervals.rows()
