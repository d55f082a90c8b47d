"""Who is owed what, case by case, in stories of a few lines: nobody is accused of what may be innocent."""

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from tests.pipeline.without_spark import Judged, judged
from weft.pipeline.quarantine import Examined, Reason, quarantine
from weft.record.arrow import pa
from weft.record.read import TABLE_SCHEMA

BEGIN = datetime(2026, 1, 5, 12, tzinfo=UTC)
A, B, C, D = "a" * 16, "b" * 16, "c" * 16, "d" * 16
LONG = 100.0
"""Long after anything here: it settles everything."""


class Story:
    """Rows as peers would note them, each in its own run unless told; a second of the story is one of the clock."""

    def __init__(self, *peers: str, one_run: bool = False) -> None:
        self._rows: list[dict[str, Any]] = []
        self._one_run = one_run
        for peer in peers:
            self.joined(peer)
        for peer in peers:
            for other in peers:
                if other != peer:
                    self.note("link_up", peer, 0.0, neighbour=other)

    def note(self, kind: str, peer: str | None, second: float, run: str = "", **columns: Any) -> "Story":
        self._rows.append(
            {
                "kind": kind,
                "observer": peer,
                "time": BEGIN + timedelta(seconds=second),
                "run": run or ("run" if self._one_run else f"run-{peer}"),
                "ordinal": len(self._rows),
                "channel": "c" * 16,
                "day": BEGIN.date(),
                **columns,
            }
        )
        return self

    def joined(self, peer: str, second: float = 0.0) -> "Story":
        return self.note("joined", peer, second)

    def sent(self, author: str, sequence: int, second: float) -> "Story":
        return self.note("sent", author, second, author=author, sequence=sequence, size=1)

    def got(self, peer: str, author: str, sequence: int, second: float) -> "Story":
        return self.note("delivered", peer, second, author=author, sequence=sequence, size=1, hops=1)

    def lost(self, peer: str, other: str, second: float) -> "Story":
        return self.note("link_down", peer, second, neighbour=other, why="lost")

    def alive(self, *peers: str, second: float = LONG) -> "Story":
        for peer in peers:
            self.note("duplicates", peer, second, count=1)
        return self

    def table(self) -> pa.Table:
        return pa.Table.from_pylist(self._rows, schema=TABLE_SCHEMA)

    def judged(self) -> Judged:
        return judged(self.table())


def total(found: Judged, name: str) -> int:
    return int(found.accounts[name].sum())


def test_what_a_member_lacks_at_the_end_is_missing() -> None:
    found = Story(A, B, C).sent(A, 1, 1.0).got(B, A, 1, 1.1).alive(A, B, C).judged()
    assert found.findings == {("missing", A, 1, C)}
    assert total(found, "owed") == 2


def test_what_was_sent_just_before_the_end_may_be_on_its_way() -> None:
    found = Story(A, B, C).sent(A, 1, 1.0).got(B, A, 1, 1.1).alive(A, B, C, second=5.0).judged()
    assert found.findings == set()
    assert total(found, "unjudged_end") == 1


def test_but_not_if_a_later_one_came() -> None:
    story = Story(A, B).sent(A, 1, 1.0).sent(A, 2, 1.1).sent(A, 3, 1.2).got(B, A, 1, 1.1).got(B, A, 3, 1.3)
    assert story.alive(A, B, second=2.0).judged().findings == {("missing", A, 2, B)}


def test_what_was_said_before_somebody_joined_is_not_owed() -> None:
    story = Story(A, B).sent(A, 1, 1.0).got(B, A, 1, 1.1).joined(C, 10.0).note("link_up", C, 10.0, neighbour=A)
    story.note("link_up", A, 10.0, neighbour=C).sent(A, 2, 20.0).got(B, A, 2, 20.1)
    assert story.got(C, A, 2, 20.1).alive(A, B, C).judged().findings == set()


@pytest.mark.parametrize(("after_s", "one_run", "guilty"), [(0.2, False, False), (2.0, False, True), (0.2, True, True)])
def test_what_was_said_as_somebody_joined(after_s: float, one_run: bool, guilty: bool) -> None:
    """By clocks of two machines it cannot be told which was first; in one run it can."""
    story = Story(A, B, one_run=one_run).joined(C, 10.0).note("link_up", C, 10.0, neighbour=A)
    story.note("link_up", A, 10.0, neighbour=C).sent(A, 1, 10.0 + after_s).got(B, A, 1, 10.0 + after_s)
    found = story.sent(A, 2, 20.0).got(B, A, 2, 20.1).got(C, A, 2, 20.1).alive(A, B, C).judged()
    assert found.findings == ({("missing", A, 1, C)} if guilty else set())
    assert total(found, "unjudged_clock") == (0 if guilty else 1)


def test_the_last_words_of_the_dead_that_nobody_living_heard() -> None:
    story = Story(A, B, C, D).sent(A, 1, 1.0).got(D, A, 1, 1.1)
    for gone in (A, D):
        for peer in (B, C):
            story.lost(peer, gone, 1.2)
    found = story.alive(B, C).judged()
    assert found.findings == set()
    assert dict(found.members.select("peer", "ending").iter_rows()) == {
        A: "gone",
        B: "present",
        C: "present",
        D: "gone",
    }


def test_the_last_words_of_the_dead_that_one_of_the_living_heard() -> None:
    story = Story(A, B, C).sent(A, 1, 1.0).got(B, A, 1, 1.1).lost(B, A, 1.2).lost(C, A, 1.2).alive(B, C)
    assert story.judged().findings == {("missing", A, 1, C)}


def test_an_author_that_did_not_record() -> None:
    story = Story(B, C).got(B, A, 1, 1.1).got(B, A, 2, 20.0).got(C, A, 1, 1.1).alive(B, C)
    assert story.judged().findings == {("missing", A, 2, C)}


def test_a_single_recorder_sees_its_own_gaps() -> None:
    story = Story(B).note("link_up", B, 0.0, neighbour=A).got(B, A, 4, 1.0).got(B, A, 6, 1.1).alive(B)
    assert story.judged().findings == {("missing", A, 5, B)}


def test_the_dead_are_owed_no_more_but_had_no_gaps() -> None:
    story = Story(A, B, C).sent(A, 1, 1.0).sent(A, 2, 2.0).sent(A, 3, 3.0).sent(A, 4, 4.0)
    for sequence in range(1, 5):
        story.got(B, A, sequence, sequence + 0.1)
    story.got(C, A, 1, 1.1).got(C, A, 3, 3.1).note("duplicates", C, 60.0, count=1).lost(A, C, 60.1).lost(B, C, 60.1)
    assert story.alive(A, B).judged().findings == {("missing", A, 2, C)}


def test_whoever_left_in_peace_had_everything_in_time() -> None:
    def story(second: float) -> Story:
        told = Story(A, B, C).sent(A, 1, second).got(B, A, 1, second + 0.1)
        return told.note("leaving", C, 30.0).note("left", C, 31.0).alive(A, B)

    assert story(1.0).judged().findings == {("missing", A, 1, C)}
    assert story(29.0).judged().findings == set()
    assert story(1.0).lost(A, B, 25.0).note("link_up", A, 26.0, neighbour=B).judged().findings == set()


def test_what_comes_after_leaving_has_begun_is_fine_but_not_after_its_end() -> None:
    story = Story(A, B, C).sent(A, 1, 1.0).got(B, A, 1, 1.1).note("leaving", C, 1.05).got(C, A, 1, 1.1)
    story.note("left", C, 1.2).sent(A, 2, 2.0).got(B, A, 2, 2.1)
    assert story.judged().findings == set()
    assert story.got(C, A, 2, 2.1).alive(A, B).judged().findings == {("not_present", A, 2, C)}


def test_a_newcomer_may_be_given_something_as_soon_as_it_has_a_link() -> None:
    story = Story(A, B).note("link_up", C, 5.0, neighbour=A).note("link_up", A, 5.0, neighbour=C)
    story.sent(A, 1, 5.1).got(B, A, 1, 5.2).got(C, A, 1, 5.2).joined(C, 6.0).alive(A, B, C)
    assert story.judged().findings == set()


def test_rows_that_the_recorder_lost_excuse_what_may_be_in_them() -> None:
    def story(begin: float, until: float) -> Judged:
        told = Story(A, B).sent(A, 1, 1.0).sent(A, 2, 2.0).sent(A, 3, 3.0).got(B, A, 1, 1.1)
        end = BEGIN + timedelta(seconds=until)
        told.note("gap", None, begin, run=f"run-{B}", until=end, count=5).got(B, A, 3, 3.1)
        return told.alive(A, B).judged()

    excused = story(1.5, 2.5)
    assert excused.findings == set()
    assert total(excused, "unjudged_gap") == 1
    assert story(3.5, 4.0).findings == {("missing", A, 2, B)}


def test_files_that_were_set_aside_excuse_their_run() -> None:
    story = Story(A, B, C).sent(A, 1, 1.0).sent(A, 2, 2.0).sent(A, 3, 3.0)
    for peer in (B, C):
        story.got(peer, A, 1, 1.1).got(peer, A, 3, 3.1)
    aside = quarantine([Examined("x", 1, channel="c" * 16, run=f"run-{B}", reason=Reason.UNREADABLE)])
    assert judged(story.alive(A, B, C).table(), aside).findings == {("missing", A, 2, C)}


def test_a_report_is_no_fault_but_delivering_after_it_is() -> None:
    story = Story(A, B).sent(A, 1, 1.0).sent(A, 2, 2.0).note("missed", B, 3.0, author=A, sequence=1, last=1)
    story.got(B, A, 2, 3.1).alive(A, B)
    found = story.judged()
    assert found.findings == {("missed_reported", A, 1, B)}
    assert found.guilty == set()
    assert story.got(B, A, 1, 4.0).judged().findings == {("out_of_order", A, 1, B)}


def test_a_report_of_a_senseless_range_costs_nothing() -> None:
    story = Story(A, B).sent(A, 1, 1.0).note("missed", B, 3.0, author=A, sequence=1, last=(1 << 63) - 1).alive(A, B)
    assert story.judged().findings == {("missed_reported", A, 1, B)}


def test_own_messages_and_those_that_were_never_sent() -> None:
    story = Story(A, B).sent(A, 1, 1.0).sent(A, 3, 3.0).got(A, A, 1, 1.1)
    for sequence in (1, 2, 3):
        story.got(B, A, sequence, sequence + 0.1)
    assert story.alive(A, B).judged().findings == {("own", A, 1, A), ("never_sent", A, 2, B)}


def test_whoever_joined_before_the_tapes_begin_is_not_accused() -> None:
    story = Story(A).sent(A, 1, 1.0).sent(A, 2, 2.0).note("link_up", A, 0.0, neighbour=B)
    found = story.got(B, A, 2, 2.1).alive(A, B).judged()
    assert found.findings == set()
    assert found.members.filter(pl.col("peer") == B)["joined"].to_list() == [None]


def test_of_two_parts_the_one_that_was_heard_of_last_is_judged() -> None:
    """Most died at once, and told of no broken links; those that live on did."""
    story = Story(A, B, C, D)
    for peer in (A, B):
        for other in (C, D):
            story.lost(peer, other, 1.0)
    found = story.sent(A, 1, 2.0).alive(A, B).judged()
    assert found.findings == {("missing", A, 1, B)}
    assert set(found.members.filter(pl.col("ending") == "gone")["peer"]) == {C, D}
