"""Who is owed what, case by case, in stories of a few lines: nobody is accused of what may be innocent."""

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from broadloom.pipeline.quarantine import FileReport, QuarantineReason, quarantine
from broadloom.protocol.events import LinkDownReason
from broadloom.record.arrow_import import pa
from broadloom.record.reader import TABLE_SCHEMA
from broadloom.record.schema import EventKind
from tests.pipeline.without_spark import AuditResult, run_audit

BEGIN = datetime(2026, 1, 5, 12, tzinfo=UTC)
A, B, C, D = "a" * 16, "b" * 16, "c" * 16, "d" * 16
LONG = 100.0
"""Long after anything here: it settles everything."""


class TapeBuilder:
    """Rows as peers would note them, each in its own run unless told; a second of the story is one of the clock."""

    def __init__(self, *peers: str, one_run: bool = False) -> None:
        self._rows: list[dict[str, Any]] = []
        self._one_run = one_run
        for peer in peers:
            self.joined(peer)
        for peer in peers:
            for other in peers:
                if other != peer:
                    self.add("link_up", peer, 0.0, neighbour=other)

    def add(self, kind: str, peer: str | None, second: float, run: str = "", **columns: Any) -> "TapeBuilder":
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

    def joined(self, peer: str, second: float = 0.0) -> "TapeBuilder":
        return self.add("joined", peer, second)

    def sent(self, author: str, sequence: int, second: float) -> "TapeBuilder":
        return self.add("sent", author, second, author=author, sequence=sequence, size=1)

    def delivered(self, peer: str, author: str, sequence: int, second: float) -> "TapeBuilder":
        return self.add("delivered", peer, second, author=author, sequence=sequence, size=1, hops=1)

    def link_lost(self, peer: str, other: str, second: float) -> "TapeBuilder":
        return self.add("link_down", peer, second, neighbour=other, why=LinkDownReason.CONNECTION_LOST.value)

    def alive(self, *peers: str, second: float = LONG) -> "TapeBuilder":
        for peer in peers:
            self.add("duplicates", peer, second, count=1)
        return self

    def table(self) -> pa.Table:
        return pa.Table.from_pylist(self._rows, schema=TABLE_SCHEMA)

    def audit(self) -> AuditResult:
        return run_audit(self.table())


def total(found: AuditResult, name: str) -> int:
    return int(found.delivery_balances[name].sum())


def test_what_a_member_lacks_at_the_end_is_missing() -> None:
    found = TapeBuilder(A, B, C).sent(A, 1, 1.0).delivered(B, A, 1, 1.1).alive(A, B, C).audit()
    assert found.findings == {("missing", A, 1, C)}
    assert total(found, "owed") == 2


def test_what_was_sent_just_before_the_end_may_be_on_its_way() -> None:
    found = TapeBuilder(A, B, C).sent(A, 1, 1.0).delivered(B, A, 1, 1.1).alive(A, B, C, second=5.0).audit()
    assert found.findings == set()
    assert total(found, "unjudged_end") == 1


def test_but_not_if_a_later_one_came() -> None:
    story = (
        TapeBuilder(A, B)
        .sent(A, 1, 1.0)
        .sent(A, 2, 1.1)
        .sent(A, 3, 1.2)
        .delivered(B, A, 1, 1.1)
        .delivered(B, A, 3, 1.3)
    )
    assert story.alive(A, B, second=2.0).audit().findings == {("missing", A, 2, B)}


def test_what_was_said_before_somebody_joined_is_not_owed() -> None:
    story = (
        TapeBuilder(A, B).sent(A, 1, 1.0).delivered(B, A, 1, 1.1).joined(C, 10.0).add("link_up", C, 10.0, neighbour=A)
    )
    story.add("link_up", A, 10.0, neighbour=C).sent(A, 2, 20.0).delivered(B, A, 2, 20.1)
    assert story.delivered(C, A, 2, 20.1).alive(A, B, C).audit().findings == set()


@pytest.mark.parametrize(("after_s", "one_run", "guilty"), [(0.2, False, False), (2.0, False, True), (0.2, True, True)])
def test_what_was_said_as_somebody_joined(after_s: float, one_run: bool, guilty: bool) -> None:
    """By clocks of two machines it cannot be told which was first; in one run it can."""
    story = TapeBuilder(A, B, one_run=one_run).joined(C, 10.0).add("link_up", C, 10.0, neighbour=A)
    story.add("link_up", A, 10.0, neighbour=C).sent(A, 1, 10.0 + after_s).delivered(B, A, 1, 10.0 + after_s)
    found = story.sent(A, 2, 20.0).delivered(B, A, 2, 20.1).delivered(C, A, 2, 20.1).alive(A, B, C).audit()
    assert found.findings == ({("missing", A, 1, C)} if guilty else set())
    assert total(found, "unjudged_clock") == (0 if guilty else 1)


def test_the_last_words_of_the_dead_that_nobody_living_heard() -> None:
    story = TapeBuilder(A, B, C, D).sent(A, 1, 1.0).delivered(D, A, 1, 1.1)
    for gone in (A, D):
        for peer in (B, C):
            story.link_lost(peer, gone, 1.2)
    found = story.alive(B, C).audit()
    assert found.findings == set()
    assert dict(found.recorded_peers.select("peer", "ending").iter_rows()) == {
        A: "gone",
        B: "present",
        C: "present",
        D: "gone",
    }


def test_the_last_words_of_the_dead_that_one_of_the_living_heard() -> None:
    story = (
        TapeBuilder(A, B, C)
        .sent(A, 1, 1.0)
        .delivered(B, A, 1, 1.1)
        .link_lost(B, A, 1.2)
        .link_lost(C, A, 1.2)
        .alive(B, C)
    )
    assert story.audit().findings == {("missing", A, 1, C)}


def test_an_author_that_did_not_record() -> None:
    story = TapeBuilder(B, C).delivered(B, A, 1, 1.1).delivered(B, A, 2, 20.0).delivered(C, A, 1, 1.1).alive(B, C)
    assert story.audit().findings == {("missing", A, 2, C)}


def test_a_single_recorder_sees_its_own_gaps() -> None:
    story = TapeBuilder(B).add("link_up", B, 0.0, neighbour=A).delivered(B, A, 4, 1.0).delivered(B, A, 6, 1.1).alive(B)
    assert story.audit().findings == {("missing", A, 5, B)}


def test_the_dead_are_owed_no_more_but_had_no_gaps() -> None:
    story = TapeBuilder(A, B, C).sent(A, 1, 1.0).sent(A, 2, 2.0).sent(A, 3, 3.0).sent(A, 4, 4.0)
    for sequence in range(1, 5):
        story.delivered(B, A, sequence, sequence + 0.1)
    story.delivered(C, A, 1, 1.1).delivered(C, A, 3, 3.1).add("duplicates", C, 60.0, count=1).link_lost(
        A, C, 60.1
    ).link_lost(B, C, 60.1)
    assert story.alive(A, B).audit().findings == {("missing", A, 2, C)}


def test_whoever_left_in_peace_had_everything_in_time() -> None:
    def story(second: float) -> TapeBuilder:
        told = TapeBuilder(A, B, C).sent(A, 1, second).delivered(B, A, 1, second + 0.1)
        return told.add("leaving", C, 30.0).add("left", C, 31.0).alive(A, B)

    assert story(1.0).audit().findings == {("missing", A, 1, C)}
    assert story(29.0).audit().findings == set()
    assert story(1.0).link_lost(A, B, 25.0).add("link_up", A, 26.0, neighbour=B).audit().findings == set()


def test_what_comes_after_leaving_has_begun_is_fine_but_not_after_its_end() -> None:
    story = TapeBuilder(A, B, C).sent(A, 1, 1.0).delivered(B, A, 1, 1.1).add("leaving", C, 1.05).delivered(C, A, 1, 1.1)
    story.add("left", C, 1.2).sent(A, 2, 2.0).delivered(B, A, 2, 2.1)
    assert story.audit().findings == set()
    assert story.delivered(C, A, 2, 2.1).alive(A, B).audit().findings == {("not_present", A, 2, C)}


def test_a_newcomer_may_be_given_something_as_soon_as_it_has_a_link() -> None:
    story = TapeBuilder(A, B).add("link_up", C, 5.0, neighbour=A).add("link_up", A, 5.0, neighbour=C)
    story.sent(A, 1, 5.1).delivered(B, A, 1, 5.2).delivered(C, A, 1, 5.2).joined(C, 6.0).alive(A, B, C)
    assert story.audit().findings == set()


def test_rows_that_the_recorder_lost_excuse_what_may_be_in_them() -> None:
    def story(begin: float, until: float) -> AuditResult:
        told = TapeBuilder(A, B).sent(A, 1, 1.0).sent(A, 2, 2.0).sent(A, 3, 3.0).delivered(B, A, 1, 1.1)
        end = BEGIN + timedelta(seconds=until)
        told.add(EventKind.ROWS_DROPPED.value, None, begin, run=f"run-{B}", until=end, count=5).delivered(B, A, 3, 3.1)
        return told.alive(A, B).audit()

    excused = story(1.5, 2.5)
    assert excused.findings == set()
    assert total(excused, "unjudged_gap") == 1
    assert story(3.5, 4.0).findings == {("missing", A, 2, B)}


def test_files_that_were_set_aside_excuse_their_run() -> None:
    story = TapeBuilder(A, B, C).sent(A, 1, 1.0).sent(A, 2, 2.0).sent(A, 3, 3.0)
    for peer in (B, C):
        story.delivered(peer, A, 1, 1.1).delivered(peer, A, 3, 3.1)
    aside = quarantine([FileReport("x", 1, channel="c" * 16, run=f"run-{B}", reason=QuarantineReason.UNREADABLE)])
    assert run_audit(story.alive(A, B, C).table(), aside).findings == {("missing", A, 2, C)}


def test_a_report_is_no_fault_but_delivering_after_it_is() -> None:
    story = TapeBuilder(A, B).sent(A, 1, 1.0).sent(A, 2, 2.0).add("missed", B, 3.0, author=A, sequence=1, last=1)
    story.delivered(B, A, 2, 3.1).alive(A, B)
    found = story.audit()
    assert found.findings == {("missed_reported", A, 1, B)}
    assert found.violations == set()
    assert story.delivered(B, A, 1, 4.0).audit().findings == {("out_of_order", A, 1, B)}


def test_a_report_of_a_senseless_range_costs_nothing() -> None:
    story = (
        TapeBuilder(A, B).sent(A, 1, 1.0).add("missed", B, 3.0, author=A, sequence=1, last=(1 << 63) - 1).alive(A, B)
    )
    assert story.audit().findings == {("missed_reported", A, 1, B)}


def test_own_messages_and_those_that_were_never_sent() -> None:
    story = TapeBuilder(A, B).sent(A, 1, 1.0).sent(A, 3, 3.0).delivered(A, A, 1, 1.1)
    for sequence in (1, 2, 3):
        story.delivered(B, A, sequence, sequence + 0.1)
    assert story.alive(A, B).audit().findings == {("own", A, 1, A), ("never_sent", A, 2, B)}


def test_whoever_joined_before_the_tapes_begin_is_not_accused() -> None:
    story = TapeBuilder(A).sent(A, 1, 1.0).sent(A, 2, 2.0).add("link_up", A, 0.0, neighbour=B)
    found = story.delivered(B, A, 2, 2.1).alive(A, B).audit()
    assert found.findings == set()
    assert found.recorded_peers.filter(pl.col("peer") == B)["joined"].to_list() == [None]


def test_of_two_parts_the_one_that_was_heard_of_last_is_judged() -> None:
    """Most died at once, and told of no broken links; those that live on did."""
    story = TapeBuilder(A, B, C, D)
    for peer in (A, B):
        for other in (C, D):
            story.link_lost(peer, other, 1.0)
    found = story.sent(A, 1, 2.0).alive(A, B).audit()
    assert found.findings == {("missing", A, 1, B)}
    assert set(found.recorded_peers.filter(pl.col("ending") == "gone")["peer"]) == {C, D}
