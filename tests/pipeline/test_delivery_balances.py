"""Which messages are due, case by case: the audit reports no violation that it cannot prove."""

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
"""Long after everything else, so that all messages are due."""


class TapeBuilder:
    """Builds the rows that peers would record, by default each in its own run."""

    def __init__(self, *peers: str, one_run: bool = False) -> None:
        self._rows: list[dict[str, Any]] = []
        self._one_run = one_run
        for peer in peers:
            self.joined(peer)
        for peer in peers:
            for other in peers:
                if other != peer:
                    self.add("link_up", peer, 0.0, neighbor=other)

    def add(self, kind: str, peer: str | None, second: float, run: str = "", **columns: Any) -> "TapeBuilder":
        self._rows.append(
            {
                "kind": kind,
                "peer": peer,
                "event_time": BEGIN + timedelta(seconds=second),
                "run_id": run or ("run" if self._one_run else f"run-{peer}"),
                "ordinal": len(self._rows),
                "channel": "c" * 16,
                "event_date": BEGIN.date(),
                **columns,
            }
        )
        return self

    def joined(self, peer: str, second: float = 0.0) -> "TapeBuilder":
        return self.add("joined", peer, second)

    def sent(self, author: str, sequence: int, second: float) -> "TapeBuilder":
        return self.add("sent", author, second, author=author, sequence=sequence, size_bytes=1)

    def delivered(self, peer: str, author: str, sequence: int, second: float) -> "TapeBuilder":
        return self.add("delivered", peer, second, author=author, sequence=sequence, size_bytes=1, hops=1)

    def link_lost(self, peer: str, other: str, second: float) -> "TapeBuilder":
        return self.add("link_down", peer, second, neighbor=other, reason=LinkDownReason.CONNECTION_LOST.value)

    def alive(self, *peers: str, second: float = LONG) -> "TapeBuilder":
        for peer in peers:
            self.add("duplicates", peer, second, event_count=1)
        return self

    def table(self) -> pa.Table:
        return pa.Table.from_pylist(self._rows, schema=TABLE_SCHEMA)

    def audit(self) -> AuditResult:
        return run_audit(self.table())


def total(found: AuditResult, name: str) -> int:
    return int(found.delivery_balances[name].sum())


def test_undelivered_message_is_missing_when_receiver_stays_to_the_end() -> None:
    found = TapeBuilder(A, B, C).sent(A, 1, 1.0).delivered(B, A, 1, 1.1).alive(A, B, C).audit()
    assert found.findings == {("missing", A, 1, C)}
    assert total(found, "due_count") == 2


def test_message_sent_just_before_the_end_counts_as_pending() -> None:
    found = TapeBuilder(A, B, C).sent(A, 1, 1.0).delivered(B, A, 1, 1.1).alive(A, B, C, second=5.0).audit()
    assert found.findings == set()
    assert total(found, "pending_at_end_count") == 1


def test_undelivered_message_is_missing_when_a_later_one_arrived() -> None:
    tape = (
        TapeBuilder(A, B)
        .sent(A, 1, 1.0)
        .sent(A, 2, 1.1)
        .sent(A, 3, 1.2)
        .delivered(B, A, 1, 1.1)
        .delivered(B, A, 3, 1.3)
    )
    assert tape.alive(A, B, second=2.0).audit().findings == {("missing", A, 2, B)}


def test_message_sent_before_join_is_not_due() -> None:
    tape = TapeBuilder(A, B).sent(A, 1, 1.0).delivered(B, A, 1, 1.1).joined(C, 10.0).add("link_up", C, 10.0, neighbor=A)
    tape.add("link_up", A, 10.0, neighbor=C).sent(A, 2, 20.0).delivered(B, A, 2, 20.1)
    assert tape.delivered(C, A, 2, 20.1).alive(A, B, C).audit().findings == set()


@pytest.mark.parametrize(
    ("after_s", "one_run", "is_violation"), [(0.2, False, False), (2.0, False, True), (0.2, True, True)]
)
def test_message_sent_during_join_is_due_if_order_is_certain(after_s: float, one_run: bool, is_violation: bool) -> None:
    """The clocks of two machines cannot order the two events; within one run the order is known."""
    tape = TapeBuilder(A, B, one_run=one_run).joined(C, 10.0).add("link_up", C, 10.0, neighbor=A)
    tape.add("link_up", A, 10.0, neighbor=C).sent(A, 1, 10.0 + after_s).delivered(B, A, 1, 10.0 + after_s)
    found = tape.sent(A, 2, 20.0).delivered(B, A, 2, 20.1).delivered(C, A, 2, 20.1).alive(A, B, C).audit()
    assert found.findings == ({("missing", A, 1, C)} if is_violation else set())
    assert total(found, "unknown_clock_count") == (0 if is_violation else 1)


def test_messages_of_crashed_author_are_not_due_if_no_survivor_has_them() -> None:
    tape = TapeBuilder(A, B, C, D).sent(A, 1, 1.0).delivered(D, A, 1, 1.1)
    for gone in (A, D):
        for peer in (B, C):
            tape.link_lost(peer, gone, 1.2)
    found = tape.alive(B, C).audit()
    assert found.findings == set()
    assert dict(found.recorded_peers.select("peer", "end_status").iter_rows()) == {
        A: "crashed",
        B: "present",
        C: "present",
        D: "crashed",
    }


def test_messages_of_crashed_author_are_due_if_any_survivor_has_them() -> None:
    tape = (
        TapeBuilder(A, B, C)
        .sent(A, 1, 1.0)
        .delivered(B, A, 1, 1.1)
        .link_lost(B, A, 1.2)
        .link_lost(C, A, 1.2)
        .alive(B, C)
    )
    assert tape.audit().findings == {("missing", A, 1, C)}


def test_messages_of_unrecorded_author_are_audited() -> None:
    tape = TapeBuilder(B, C).delivered(B, A, 1, 1.1).delivered(B, A, 2, 20.0).delivered(C, A, 1, 1.1).alive(B, C)
    assert tape.audit().findings == {("missing", A, 2, C)}


def test_single_recorder_finds_gaps_in_its_own_deliveries() -> None:
    tape = TapeBuilder(B).add("link_up", B, 0.0, neighbor=A).delivered(B, A, 4, 1.0).delivered(B, A, 6, 1.1).alive(B)
    assert tape.audit().findings == {("missing", A, 5, B)}


def test_crashed_receiver_is_due_everything_before_its_last_message() -> None:
    tape = TapeBuilder(A, B, C).sent(A, 1, 1.0).sent(A, 2, 2.0).sent(A, 3, 3.0).sent(A, 4, 4.0)
    for sequence in range(1, 5):
        tape.delivered(B, A, sequence, sequence + 0.1)
    tape.delivered(C, A, 1, 1.1).delivered(C, A, 3, 3.1).add("duplicates", C, 60.0, event_count=1).link_lost(
        A, C, 60.1
    ).link_lost(B, C, 60.1)
    assert tape.alive(A, B).audit().findings == {("missing", A, 2, C)}


def test_receiver_that_left_undisturbed_is_due_settled_messages() -> None:
    def tape_sent_at(second: float) -> TapeBuilder:
        tape = TapeBuilder(A, B, C).sent(A, 1, second).delivered(B, A, 1, second + 0.1)
        return tape.add("leaving", C, 90.0).add("left", C, 91.0).alive(A, B)

    assert tape_sent_at(1.0).audit().findings == {("missing", A, 1, C)}
    assert tape_sent_at(89.0).audit().findings == set()
    assert tape_sent_at(1.0).link_lost(A, B, 85.0).add("link_up", A, 86.0, neighbor=B).audit().findings == set()


def test_delivery_is_allowed_while_leaving_but_not_after_left() -> None:
    tape = TapeBuilder(A, B, C).sent(A, 1, 1.0).delivered(B, A, 1, 1.1).add("leaving", C, 1.05).delivered(C, A, 1, 1.1)
    tape.add("left", C, 1.2).sent(A, 2, 2.0).delivered(B, A, 2, 2.1)
    assert tape.audit().findings == set()
    assert tape.delivered(C, A, 2, 2.1).alive(A, B).audit().findings == {("receiver_not_member", A, 2, C)}


def test_delivery_is_allowed_as_soon_as_joiner_has_a_link() -> None:
    tape = TapeBuilder(A, B).add("link_up", C, 5.0, neighbor=A).add("link_up", A, 5.0, neighbor=C)
    tape.sent(A, 1, 5.1).delivered(B, A, 1, 5.2).delivered(C, A, 1, 5.2).joined(C, 6.0).alive(A, B, C)
    assert tape.audit().findings == set()


def test_dropped_rows_excuse_deliveries_they_may_contain() -> None:
    def audit_with_gap(begin: float, until: float) -> AuditResult:
        tape = TapeBuilder(A, B).sent(A, 1, 1.0).sent(A, 2, 2.0).sent(A, 3, 3.0).delivered(B, A, 1, 1.1)
        end = BEGIN + timedelta(seconds=until)
        tape.add(EventKind.ROWS_DROPPED.value, None, begin, run=f"run-{B}", end_time=end, event_count=5).delivered(
            B, A, 3, 3.1
        )
        return tape.alive(A, B).audit()

    excused = audit_with_gap(1.5, 2.5)
    assert excused.findings == set()
    assert total(excused, "unknown_dropped_rows_count") == 1
    assert audit_with_gap(3.5, 4.0).findings == {("missing", A, 2, B)}


def with_dropped_rows(count: int, *, one_run: bool) -> AuditResult:
    """B got the first of nine messages, and C the first and the last; rows were dropped in the meantime."""
    tape = TapeBuilder(A, B, C, D, one_run=one_run)
    for number in range(1, 10):
        tape.sent(A, number, 10.0 * number).delivered(D, A, number, 10.0 * number + 0.1)
    tape.delivered(B, A, 1, 11.0).delivered(C, A, 1, 11.0).delivered(C, A, 9, 95.0)
    for run in ("run",) if one_run else (f"run-{B}", f"run-{C}"):
        end = BEGIN + timedelta(seconds=45)
        tape.add(EventKind.ROWS_DROPPED.value, None, 20.0, run=run, end_time=end, event_count=count)
    return tape.alive(A, B, C, D, second=200.0).audit()


def test_dropped_rows_excuse_no_more_deliveries_than_they_are() -> None:
    for count in (0, 1, 2, 3):
        found = with_dropped_rows(count, one_run=False)
        assert total(found, "unknown_dropped_rows_count") == 2 * count
        assert len(found.findings) == 8 + 7 - 2 * count
        # The two peers of one run share its dropped rows.
        assert total(with_dropped_rows(count, one_run=True), "unknown_dropped_rows_count") == count


def test_dropped_rows_excuse_no_delivery_of_a_message_that_was_sent_later() -> None:
    found = with_dropped_rows(1_000, one_run=False)
    assert {each[2] for each in found.findings} == {5, 6, 7, 8, 9}
    assert total(found, "unknown_dropped_rows_count") == 6


def test_quarantined_files_excuse_their_run() -> None:
    tape = TapeBuilder(A, B, C).sent(A, 1, 1.0).sent(A, 2, 2.0).sent(A, 3, 3.0)
    for peer in (B, C):
        tape.delivered(peer, A, 1, 1.1).delivered(peer, A, 3, 3.1)
    excluded = quarantine([FileReport("x", 1, channel="c" * 16, run_id=f"run-{B}", reason=QuarantineReason.UNREADABLE)])
    assert run_audit(tape.alive(A, B, C).table(), excluded).findings == {("missing", A, 2, C)}


def test_missed_report_is_no_violation_but_delivery_after_it_is() -> None:
    tape = (
        TapeBuilder(A, B).sent(A, 1, 1.0).sent(A, 2, 2.0).add("missed", B, 3.0, author=A, sequence=1, last_sequence=1)
    )
    tape.delivered(B, A, 2, 3.1).alive(A, B)
    found = tape.audit()
    assert found.findings == {("reported_missed", A, 1, B)}
    assert found.violations == set()
    assert tape.delivered(B, A, 1, 4.0).audit().findings == {("out_of_order", A, 1, B)}


def test_missed_report_with_huge_range_is_bounded() -> None:
    tape = (
        TapeBuilder(A, B)
        .sent(A, 1, 1.0)
        .add("missed", B, 3.0, author=A, sequence=1, last_sequence=(1 << 63) - 1)
        .alive(A, B)
    )
    assert tape.audit().findings == {("reported_missed", A, 1, B)}


def test_audit_finds_messages_delivered_to_author_and_not_recorded_by_it() -> None:
    """The numbers show that the author sent the second message, so its receiver is not to blame."""
    tape = TapeBuilder(A, B).sent(A, 1, 1.0).sent(A, 3, 3.0).delivered(A, A, 1, 1.1)
    for sequence in (1, 2, 3):
        tape.delivered(B, A, sequence, sequence + 0.1)
    assert tape.alive(A, B).audit().findings == {("delivered_to_author", A, 1, A), ("not_recorded", A, 2, A)}


def test_peer_that_joined_before_the_tapes_has_no_violation() -> None:
    tape = TapeBuilder(A).sent(A, 1, 1.0).sent(A, 2, 2.0).add("link_up", A, 0.0, neighbor=B)
    found = tape.delivered(B, A, 2, 2.1).alive(A, B).audit()
    assert found.findings == set()
    assert found.recorded_peers.filter(pl.col("peer") == B)["joined_time"].to_list() == [None]


def test_component_with_latest_event_counts_as_surviving() -> None:
    """Two peers crash at once and record no broken links; the survivors do."""
    tape = TapeBuilder(A, B, C, D)
    for peer in (A, B):
        for other in (C, D):
            tape.link_lost(peer, other, 1.0)
    found = tape.sent(A, 1, 2.0).alive(A, B).audit()
    assert found.findings == {("missing", A, 1, B)}
    assert set(found.recorded_peers.filter(pl.col("end_status") == "crashed")["peer"]) == {C, D}
