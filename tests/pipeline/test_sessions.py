"""Sessions: compared with a naive implementation, and from tapes through Spark."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.pipeline.table import TableSettingError
from broadloom.pipeline.tables import sessions as table
from broadloom.pipeline.tables.sessions import SECOND_US, SPAN_COLUMNS, SessionRule, sessions, spans
from tests.pipeline.building import build_in_memory
from tests.pipeline.event_rows import event_table

EPOCH = datetime(2027, 1, 15, 12, tzinfo=UTC)
HOURLY = SessionRule(interval_s=3600, missed_max=0, grace_s=300, tail_s=3600, window_s=60)
QUICK = SessionRule(interval_s=10, missed_max=1, grace_s=2, tail_s=5, window_s=3)
"""Small numbers, so that random signs fall on both sides of every limit."""


class Sign(NamedTuple):
    channel: str
    peer: str
    subscriber: str | None
    sign: str
    at_s: int


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def signs_table(signs: list[Sign]) -> pl.DataFrame:
    rows = [
        {**each._asdict(), "first_time": at(each.at_s), "last_time": at(each.at_s)}
        for each in sorted(signs, key=lambda s: s.at_s)
    ]
    texts = dict.fromkeys(("channel", "peer", "subscriber", "sign"), pl.String())
    times = dict.fromkeys(("first_time", "last_time"), pl.Datetime("us", "UTC"))
    return pl.DataFrame(rows, schema={**texts, **times})


def sessions_of(signs: list[Sign], rule: SessionRule, until_s: int = 10**6) -> list[tuple]:
    found = spans(signs_table(signs), rule).with_columns(ticket_serial=pl.lit(None, pl.String))
    return as_tuples(sessions(found, int(at(until_s).timestamp()) * SECOND_US, rule))


def as_tuples(table: pl.DataFrame) -> list[tuple]:
    """Channel, subscriber, start and end in seconds, identifications, peers, end status."""
    return sorted(
        (
            row["channel"],
            row["subscriber"],
            (row["start_time"] - EPOCH).total_seconds(),
            (row["end_time"] - EPOCH).total_seconds(),
            row["identification_count"],
            row["peer_count"],
            row["end_status"],
        )
        for row in table.to_dicts()
    )


def identifications(*at_s: int, name: str = "ann", peer: str = "p1", channel: str = "c") -> list[Sign]:
    return [Sign(channel, peer, name, "identification", each) for each in at_s]


def reference_sessions(signs: list[Sign], rule: SessionRule, until_s: int) -> list[tuple]:
    """A naive implementation: peer by peer, sign by sign."""
    timeout_s, tail_s, window_s = rule.timeout_us // SECOND_US, int(rule.tail_s), int(rule.window_s)
    pieces: dict[tuple[str, str], list[dict]] = {}
    for channel, subscriber, peer in sorted({(s.channel, s.subscriber, s.peer) for s in signs if s.subscriber}):
        own = [s for s in signs if (s.channel, s.peer) == (channel, peer)]
        left = min((s.at_s for s in own if s.sign == "left"), default=None)
        signs_of_life: list[tuple[int, int]] = []
        before: int | None = None
        for at_s in sorted(s.at_s for s in own if s.subscriber == subscriber):
            signs_of_life.append((at_s, int(before is None or at_s - before > window_s)))
            before = at_s
        signs_of_life += [(s.at_s, 0) for s in own if s.sign == "joined"]
        signs_of_life = sorted((at_s if left is None else min(at_s, left), is_new) for at_s, is_new in signs_of_life)
        groups: list[list[tuple[int, int]]] = []
        for life in signs_of_life:
            if groups and life[0] - groups[-1][-1][0] <= timeout_s:
                groups[-1].append(life)
            else:
                groups.append([life])
        for group in groups:
            last = group[-1][0]
            gone = left is not None and left - last <= timeout_s
            pieces.setdefault((channel, subscriber), []).append(
                {
                    "start": group[0][0],
                    "end": left if gone else max(last, min(last + tail_s, until_s)),
                    "gone": gone,
                    "open": not gone and last + timeout_s >= until_s,
                    "count": sum(is_new for _, is_new in group),
                    "peer": peer,
                }
            )
    result = []
    for (channel, subscriber), own_pieces in pieces.items():
        while own_pieces:
            group_of = [own_pieces.pop(0)]
            grown = True
            while grown:  # every piece that touches the group belongs to it
                grown = False
                for piece in list(own_pieces):
                    if any(piece["start"] <= one["end"] and one["start"] <= piece["end"] for one in group_of):
                        group_of.append(piece)
                        own_pieces.remove(piece)
                        grown = True
            end = max(one["end"] for one in group_of)
            ended = "timed_out"
            if any(one["open"] for one in group_of):
                ended = "open"
            elif any(one["gone"] and one["end"] == end for one in group_of):
                ended = "left"
            count, peers = sum(one["count"] for one in group_of), len({one["peer"] for one in group_of})
            result.append((channel, subscriber, min(one["start"] for one in group_of), end, count, peers, ended))
    return sorted(result)


SOME_SIGNS = st.lists(
    st.builds(
        Sign,
        channel=st.sampled_from(["c", "d"]),
        peer=st.sampled_from(["p1", "p2", "p3"]),
        subscriber=st.none(),
        sign=st.sampled_from(["joined", "left"]),
        at_s=st.integers(0, 150),
    ),
    max_size=4,
)
SOME_IDENTIFICATIONS = st.lists(
    st.builds(
        Sign,
        channel=st.sampled_from(["c", "d"]),
        peer=st.sampled_from(["p1", "p2", "p3"]),
        subscriber=st.sampled_from(["ann", "bob"]),
        sign=st.just("identification"),
        at_s=st.integers(0, 150),
    ),
    max_size=30,
)


@settings(max_examples=300, deadline=None)
@given(identified=SOME_IDENTIFICATIONS, bounds=SOME_SIGNS, until_s=st.integers(150, 200))
def test_sessions_match_naive_implementation(identified: list[Sign], bounds: list[Sign], until_s: int) -> None:
    assert sessions_of(identified + bounds, QUICK, until_s) == reference_sessions(identified + bounds, QUICK, until_s)


@settings(max_examples=50, deadline=None)
@given(identified=SOME_IDENTIFICATIONS, again=st.randoms(use_true_random=False))
def test_sessions_do_not_depend_on_order_or_duplicates(identified: list[Sign], again) -> None:
    more = identified + again.sample(identified, len(identified) // 2)
    again.shuffle(more)
    assert sessions_of(more, QUICK) == sessions_of(identified, QUICK)


def test_missed_identification_ends_session() -> None:
    hour = 3600
    assert sessions_of(identifications(0, hour, 2 * hour, 4 * hour), HOURLY) == [
        ("c", "ann", 0, 3 * hour, 3, 1, "timed_out"),
        ("c", "ann", 4 * hour, 5 * hour, 1, 1, "timed_out"),
    ]


def test_identification_may_be_late_by_grace_only() -> None:
    assert len(sessions_of(identifications(0, 3900), HOURLY)) == 1
    assert len(sessions_of(identifications(0, 3901), SessionRule(3600, 0, 300, 0, 60))) == 2


def test_late_row_merges_two_sessions() -> None:
    hour = 3600
    with_break = identifications(0, 2 * hour + 600)
    assert len(sessions_of(with_break, HOURLY)) == 2
    assert sessions_of(with_break + identifications(hour + 300), HOURLY) == [
        ("c", "ann", 0, 3 * hour + 600, 3, 1, "timed_out")
    ]


def test_repeated_sightings_count_as_one_identification() -> None:
    assert sessions_of(identifications(0, 1, 2, 5, 30, 3600, 3601, 3640), HOURLY) == [
        ("c", "ann", 0, 3640 + 3600, 2, 1, "timed_out")
    ]


def test_joined_and_left_give_exact_session_bounds() -> None:
    bounds = [Sign("c", "p1", None, "joined", 10), Sign("c", "p1", None, "left", 4000)]
    # The last identification is received after its author left.
    assert sessions_of([*bounds, *identifications(20, 3620, 4003)], HOURLY) == [("c", "ann", 10, 4000, 3, 1, "left")]


def test_peer_without_identification_has_no_session() -> None:
    assert sessions_of([Sign("c", "p1", None, "joined", 10), Sign("c", "p1", None, "left", 20)], HOURLY) == []


def test_overlapping_devices_form_one_session() -> None:
    assert sessions_of(identifications(0, 3600) + identifications(1800, 5400, peer="p2"), HOURLY) == [
        ("c", "ann", 0, 9000, 4, 2, "timed_out")
    ]


def test_session_at_end_of_tape_is_open_and_ends_there() -> None:
    assert sessions_of(identifications(0, 3600), HOURLY, until_s=4000) == [("c", "ann", 0, 4000, 2, 1, "open")]


def test_empty_signs_give_no_sessions() -> None:
    assert spans(signs_table([]), HOURLY).shape == (0, len(SPAN_COLUMNS))
    assert sessions_of([], HOURLY) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"interval_s": 0},
        {"missed_max": -1},
        {"grace_s": -1},
        {"tail_s": -1},
        {"tail_s": 4000},
        {"window_s": 0},
        {"window_s": 3600},
    ],
)
def test_session_rule_rejects_invalid_settings(wrong: dict) -> None:
    with pytest.raises(TableSettingError):
        SessionRule(**{"interval_s": 3600, "missed_max": 0, "grace_s": 300, "tail_s": 3600, "window_s": 60, **wrong})


def test_sessions_are_built_from_tapes() -> None:
    hour = 3600
    rows = [
        # Two sightings of each, over midnights and the end of the month.
        {"kind": "identification", "event_time": at(n * hour + late), "peer": f"o{late}", "author": "p1", "name": "ann"}
        for n in range(400)
        for late in (0, 2)
    ]
    rows += [
        {"kind": "identification", "event_time": at(7), "peer": "o0", "author": "p9"},
        {"kind": "joined", "event_time": at(100), "peer": "p2", "name": "bob"},
        {"kind": "identification", "event_time": at(105), "peer": "o0", "author": "p2", "name": "bob"},
        {"kind": "leaving", "event_time": at(500), "peer": "p2"},
        {"kind": "left", "event_time": at(501), "peer": "p2"},
        {"kind": "identification", "event_time": at(10), "peer": "o0", "author": "p1", "name": "ann", "channel": "d"},
        {"kind": "identification", "event_time": at(3600), "peer": "o0", "author": "p7", "name": "eve", "channel": "d"},
    ]
    found = build_in_memory(event_table(*rows), "sessions")["sessions"]
    assert found.columns == [each.name for each in table.TABLE.columns]
    assert as_tuples(found) == [
        ("c", "ann", 0, 399 * hour + 2, 400, 1, "open"),
        ("c", "bob", 100, 500, 1, 1, "left"),
        ("c", "p9", 7, hour + 7, 1, 1, "timed_out"),
        ("d", "ann", 10, 3600, 1, 1, "open"),
        ("d", "eve", 3600, 3600, 1, 1, "open"),
    ]


def test_sessions_without_identifications_rest_on_membership() -> None:
    neighbors = {"peer": "p1", "neighbor": "p3"}
    rows = [
        {"kind": "joined", "event_time": at(0), "peer": "p1"},
        {"kind": "joined", "event_time": at(100), "peer": "p2", "name": "bob"},
        {"kind": "leaving", "event_time": at(500), "peer": "p2"},
        {"kind": "left", "event_time": at(501), "peer": "p2"},
        # Reconnects before its first peer has left: one session.
        {"kind": "joined", "event_time": at(400), "peer": "p4", "name": "bob"},
        {"kind": "leaving", "event_time": at(900), "peer": "p4"},
        # Crashes.
        {"kind": "joined", "event_time": at(200), "peer": "p3", "name": "cid"},
        {"kind": "link_up", "event_time": at(200), **neighbors},
        {"kind": "link_up", "event_time": at(200), "peer": "p3", "neighbor": "p1"},
        {"kind": "link_down", "event_time": at(300), **neighbors, "reason": "heartbeat_timeout"},
        # Identified: membership only completes its session.
        {"kind": "joined", "event_time": at(10), "peer": "p5", "name": "ann"},
        {"kind": "identification", "event_time": at(20), "peer": "p1", "author": "p5", "name": "ann"},
        {"kind": "sent", "event_time": at(1000), "peer": "p1", "author": "p1", "sequence": 1},
    ]
    found = build_in_memory(event_table(*rows), "invoices")
    shown = dict(zip(as_tuples(found["sessions"]), found["sessions"].sort("subscriber")["evidence"], strict=True))
    crash_s = next(each[3] for each in shown if each[1] == "cid")
    assert 200 <= crash_s <= 300
    assert shown == {
        ("c", "ann", 10, 1000, 1, 1, "open"): "identifications",
        ("c", "bob", 100, 900, 0, 2, "left"): "membership",
        ("c", "cid", 200, crash_s, 0, 1, "crashed"): "membership",
        ("c", "p1", 0, 1000, 0, 1, "open"): "membership",
    }
    # Only identifications are billed.
    assert set(found["invoices"]["subscriber"]) <= {"ann"}
