"""A forged row is found, and nobody else is accused: neither its peer, nor its author, nor other receivers."""

import random
from datetime import timedelta
from itertools import combinations, pairwise
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broadloom.pipeline.analysis.forged_rows import out_of_line
from broadloom.pipeline.tables import all_tables
from broadloom.record.schema import INT64_MAX
from tests.pipeline.building import build_in_memory
from tests.pipeline.simulated import simulated_history
from tests.pipeline.test_delivery_balances import BEGIN, A, B, C, D, TapeBuilder
from tests.pipeline.without_spark import frame, run_audit

FAR = [4, 50, 5_000, 1 << 31, 1 << 40, INT64_MAX]
"""Numbers of messages that were never sent; the tapes below have up to 3."""


def conversation(*, without: tuple[str, ...] = ()) -> TapeBuilder:
    """A sends three messages, which B, C and D get. Peers in `without` have no tape."""
    peers = [each for each in (A, B, C, D) if each not in without]
    tape = TapeBuilder(*peers)
    for number in (1, 2, 3):
        if A in peers:
            tape.sent(A, number, 10.0 * number)
        for peer in peers:
            if peer != A:
                tape.delivered(peer, A, number, 10.0 * number + 0.1)
    return tape


def ended(tape: TapeBuilder, *peers: str) -> TapeBuilder:
    return tape.alive(*(peers or (A, B, C, D)))


@pytest.mark.parametrize("number", FAR)
def test_delivery_of_a_number_that_its_author_never_used_is_forged(number: int) -> None:
    found = ended(conversation().delivered(B, A, number, 40.0)).audit()
    assert found.findings == {("forged", A, number, B)}
    assert number not in found.messages["sequence"]


@pytest.mark.parametrize("number", FAR)
def test_forged_number_is_found_if_the_author_has_no_tape(number: int) -> None:
    tape = conversation(without=(A,)).delivered(B, A, number, 40.0)
    assert ended(tape, B, C, D).audit().findings == {("forged", A, number, B)}


@pytest.mark.parametrize("number", [*FAR[2:], 2_000])
def test_single_recorder_finds_a_number_that_is_far_off(number: int) -> None:
    tape = conversation(without=(A, C, D)).delivered(B, A, number, 40.0)
    assert ended(tape, B).audit().findings == {("forged", A, number, B)}


@pytest.mark.parametrize("number", [1, 7, INT64_MAX])
def test_delivery_of_unknown_author_is_forged(number: int) -> None:
    tape = conversation().delivered(C, "f" * 16, number, 40.0)
    assert ended(tape).audit().findings == {("forged", "f" * 16, number, C)}


@pytest.mark.parametrize(("settle_s", "with_receipt"), [("2", False), ("60", False), ("2", True)])
@pytest.mark.parametrize("own_runs", [False, True])
def test_delivery_of_unknown_author_is_found_on_a_short_tape(settle_s: str, with_receipt: bool, own_runs: bool) -> None:
    """The history takes 14 s. Without a receipt, a delivery is forged; with one, the other peers vote."""
    rows = frame(simulated_history("kill", 9).rows).with_columns(pl.col("ordinal") * 3)
    rows = rows.with_columns(run_id=pl.col("peer")) if own_runs else rows
    delivered = rows.filter(pl.col("kind") == "delivered").sort("event_time")
    for place in (0.01, 0.2, 0.5, 0.99) if not with_receipt else (0.5,):
        forged = delivered[int(place * delivered.height)].with_columns(
            pl.col("ordinal") + 2, author=pl.lit("f" * 16), sequence=pl.lit(1, pl.Int64)
        )
        neighbor = rows.filter((pl.col("kind") == "link_up") & (pl.col("peer") == forged["peer"][0]))["neighbor"][0]
        receipt = forged.with_columns(pl.col("ordinal") - 1, kind=pl.lit("received"), neighbor=pl.lit(neighbor))
        tape = pl.concat([rows, forged, receipt.head(int(with_receipt))])
        found = build_in_memory(tape.to_arrow(), "audit_findings", settle_s=settle_s)["audit_findings"]
        accused = found.select("finding", "author", "receiver").rows()
        assert accused == [("forged", "f" * 16, forged["peer"][0])], place


@pytest.mark.parametrize("dropped", [1, 2])
def test_dropped_rows_of_the_others_do_not_make_a_forged_message_due(dropped: int) -> None:
    """B, C and D are one run, which lost rows: so many of the three may have it."""
    tape = TapeBuilder(A, B, C, D).joined("e" * 16).delivered("e" * 16, "f" * 16, 1, 30.0)
    tape.add("rows_dropped", None, 1.0, run="run", event_count=dropped, end_time=BEGIN + timedelta(seconds=2))
    rows = frame(ended(tape, A, B, C, D, "e" * 16).table())
    rows = rows.with_columns(run_id=pl.when(pl.col("peer").is_in([B, C, D])).then(pl.lit("run")).otherwise("run_id"))
    assert run_audit(rows.to_arrow()).findings == {("forged", "f" * 16, 1, "e" * 16)}


@pytest.mark.parametrize("number", [4, 5_000, INT64_MAX])
def test_number_that_several_receivers_forge_is_found_by_the_tape_of_the_author(number: int) -> None:
    tape = TapeBuilder(A, B, C, D).sent(A, 1, 10.0)
    for peer in (B, C, D):
        tape.delivered(peer, A, 1, 10.1)
    tape.delivered(B, A, number, 20.0)
    assert ended(tape).audit().findings == {("forged", A, number, B)}


def test_overwritten_number_is_the_only_finding() -> None:
    """The receiver is not accused of the message that the row was about."""
    for number in (1, 3, 5_000):
        tape = TapeBuilder(A, B, C, D)
        for sequence in (1, 2, 3):
            tape.sent(A, sequence, 10.0 * sequence)
            for peer in (B, C, D):
                is_forged = (peer, sequence) == (C, 2)
                tape.delivered(peer, A, number if is_forged else sequence, 10.0 * sequence + 0.1)
        assert ended(tape).audit().findings == {("forged", A, number, C)}, number


def test_delivery_overwritten_with_the_last_number_accuses_none_in_between() -> None:
    tape = TapeBuilder(A, B)
    for number in (1, 2, 3, 4):
        tape.sent(A, number, 10.0 * number).delivered(B, A, 4 if number == 2 else number, 10.0 * number + 0.1)
    assert ended(tape, A, B).audit().findings == {("forged", A, 4, B)}


@pytest.mark.parametrize("number", [1, 3, 4, 5_000, INT64_MAX])
def test_overwritten_sending_is_the_only_finding(number: int) -> None:
    tape = TapeBuilder(A, B, C, D)
    for sequence in (1, 2, 3):
        tape.sent(A, number if sequence == 2 else sequence, 10.0 * sequence)
        for peer in (B, C, D):
            tape.delivered(peer, A, sequence, 10.0 * sequence + 0.1)
    assert ended(tape).audit().findings == {("forged", A, number, A)}


def test_sending_recorded_by_another_peer_is_forged() -> None:
    tape = conversation().add("sent", B, 35.0, author=A, sequence=4, size_bytes=1)
    assert ended(tape).audit().findings == {("forged", A, 4, B)}


def test_last_sending_that_skips_numbers_is_forged_if_no_peer_has_it() -> None:
    assert ended(conversation().sent(A, 77, 40.0)).audit().findings == {("forged", A, 77, A)}


def test_delivery_with_another_size_than_the_author_sent_is_forged() -> None:
    tape = conversation().sent(B, 1, 30.0).add("delivered", C, 31.0, author=B, sequence=1, size_bytes=9, hops=1)
    for peer in (A, C, D):
        tape.delivered(peer, B, 1, 32.0)
    assert ended(tape).audit().findings == {("forged", B, 1, C)}


@pytest.mark.parametrize("other", [4, 5], ids=["another size", "a second copy"])
def test_two_overwritten_receipts_of_a_peer_are_found_on_a_short_tape(other: int) -> None:
    """The peers were not there for long enough to vote. A delivery without a receipt shows an overwritten one."""
    tape = TapeBuilder(A, B)
    overwritten = {2: ("f" * 16, 6), 3: (A, other)}
    sizes = {1: 10, 2: 20, 3: 50, 4: 40, 5: 50}
    for number, size in sizes.items():
        author, sequence = overwritten.get(number, (A, number))
        message: dict[str, Any] = {"author": A, "sequence": number, "size_bytes": size}
        tape.add("sent", A, number, **message)
        receipt = {**message, "author": author, "sequence": sequence}
        tape.add("received", B, number, neighbor=A, hops=1, **receipt)
        tape.add("delivered", B, number, hops=1, **message)
    found = tape.alive(A, B, second=7.0).audit().findings
    assert found == {("forged", "f" * 16, 6, B), ("forged", A, other, B)}


def test_overwritten_receipt_is_found_beside_a_delivery_to_its_own_author() -> None:
    tape = TapeBuilder(A, B)
    tape.sent(B, 1, 0.5).delivered(B, B, 1, 0.6)
    for number in (1, 2, 3):
        author = "f" * 16 if number == 2 else A
        tape.sent(A, number, number)
        tape.add("received", B, number, author=author, sequence=number, size_bytes=1, hops=1, neighbor=A)
        tape.delivered(B, A, number, number)
    found = tape.alive(A, B, second=7.0).audit().findings
    assert found == {("forged", "f" * 16, 2, B), ("delivered_to_author", B, 1, B)}


@pytest.mark.parametrize("number", [50, INT64_MAX - 1])
def test_report_of_missed_messages_beyond_the_last_one_accuses_no_peer(number: int) -> None:
    tape = ended(conversation().add("missed", B, 40.0, author=A, sequence=number, last_sequence=INT64_MAX))
    expected = "reported_missed" if number == 50 else "forged"
    assert tape.audit().findings == {(expected, A, number, B)}


def test_no_table_overflows_with_numbers_near_the_maximum() -> None:
    top = INT64_MAX
    parent = {"parent_author": A, "parent_sequence": top, "member": B, "member_sequence": top}
    columns: dict[str, Any] = {"author": A, "sequence": top, "size_bytes": 1, "hops": 1, **parent}
    tape = conversation().add("delivered", B, 40.0, **columns)
    tape.add("received", C, 41.0, author=A, sequence=top, neighbor=B, size_bytes=1, hops=1)
    tape.add("missed", D, 42.0, author=A, sequence=top, last_sequence=top).sent(A, top, 43.0)
    tables = build_in_memory(ended(tape).table(), *(each.name for each in all_tables()))
    accused = set(tables["audit_findings"].select("finding", "sequence", "receiver").iter_rows())
    assert accused == {("forged", top, peer) for peer in (A, B, C, D)}
    for name, table in tables.items():
        for column in table.select(pl.col(pl.Int64)):
            assert (column.drop_nulls() >= 0).all(), (name, column.name)


@pytest.mark.parametrize("scenario", ["kill-most", "long-partition", "churn"])
def test_incomplete_tapes_are_not_taken_for_forged(scenario: str) -> None:
    """Peers without a tape, and tapes that lost their end."""
    rows = frame(simulated_history(scenario, 20).rows).with_columns(run_id=pl.col("peer"))
    peers = rows["peer"].unique().sort().to_list()
    for seed in range(3):
        draw = random.Random(seed)
        kept = rows.filter(~pl.col("peer").is_in(draw.sample(peers, draw.choice([1, 5, 10, 15]))))
        for peer in draw.sample(peers, 4):
            ordinals = kept.filter(pl.col("peer") == peer)["ordinal"]
            if len(ordinals):
                end = ordinals[int(len(ordinals) * draw.uniform(0.6, 0.95))]
                kept = kept.filter((pl.col("peer") != peer) | (pl.col("ordinal") < end))
        accused = {each for each in run_audit(kept.to_arrow()).findings if each[0] in ("forged", "not_recorded")}
        assert accused == set(), seed


@given(st.lists(st.integers(0, 7), max_size=9))
def test_as_few_numbers_as_possible_are_out_of_line(numbers: list[int]) -> None:
    removed = out_of_line(numbers)
    rest = [number for place, number in enumerate(numbers) if place not in removed]
    assert all(one < other for one, other in pairwise(rest))
    longer = combinations(numbers, len(rest) + 1)
    assert not any(all(one < other for one, other in pairwise(each)) for each in longer)


def test_of_two_swapped_numbers_the_late_one_is_out_of_line() -> None:
    assert out_of_line([1, 2, 4, 3, 5]) == [3]
