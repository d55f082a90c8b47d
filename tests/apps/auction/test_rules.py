"""The rules of the four kinds, the chain, and what holds for any sequence of entries."""

from datetime import UTC, datetime
from decimal import Context, Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.apps.auction import (
    Bid,
    ClosedError,
    Extended,
    InvalidError,
    Kind,
    Lot,
    NoLotError,
    NotQualifiedError,
    Sold,
    TooLowError,
    Unsold,
)
from broadloom.apps.auction.auctioneer import Auctioneer
from broadloom.apps.auction.ledger import CALLS_RESERVED_MAX, ENTRIES_MAX, LOTS_MAX
from broadloom.apps.auction.lot import CALLS_DOWN_MAX, amount_text, parse_amount
from broadloom.apps.auction.sealed import commitment
from broadloom.apps.auction.statements import Action
from tests.apps.auction.histories import oracle
from tests.apps.auction.ledgers import NOTARIES, SALT, HandLedger, refused

EXAMPLES = 60


def test_english_bids_rise_by_the_step_and_the_highest_one_is_paid() -> None:
    ledger = HandLedger()
    ledger.open("english")
    with pytest.raises(TooLowError, match="at least 10"):
        ledger.bid("anna", "9.99")
    ledger.bid("anna", 10)
    with pytest.raises(TooLowError, match=r"at least 12\.50"):
        ledger.bid("ben", "12.49")
    ledger.bid("ben", "12.50")
    sold = ledger.close()
    assert isinstance(sold, Sold)
    assert (sold.winner, sold.price) == ("ben", Decimal("12.50"))
    with pytest.raises(ClosedError):
        ledger.bid("anna", 100)


def test_bid_after_going_twice_starts_the_calls_again() -> None:
    ledger = HandLedger()
    ledger.open("english")
    ledger.bid("anna", 10)
    ledger.call(Action.GOING)
    ledger.call(Action.GOING)
    looked_at = ledger.number
    assert [type(each) for each in ledger.bid("ben", 20)] == [Bid, Extended]
    with pytest.raises(ClosedError, match="has changed"):
        ledger.call(Action.GONE, after=looked_at)
    with pytest.raises(ClosedError, match="out of turn"):
        ledger.call(Action.GONE)
    assert ledger.close().winner == "ben"  # type: ignore[union-attr]


def test_two_auctioneers_that_call_at_the_same_time_count_as_one() -> None:
    ledger = HandLedger()
    ledger.open("dutch", reserve=1)
    looked_at = ledger.number
    ledger.call(Action.LOWER, after=looked_at)
    with pytest.raises(ClosedError, match="has changed"):
        ledger.call(Action.LOWER, notary="notary-2", after=looked_at)
    assert ledger.sale("lot-1").minimum_bid == Decimal("7.50")


def test_first_dutch_bid_pays_the_price_of_its_place_in_the_order() -> None:
    ledger = HandLedger()
    ledger.open("dutch", reserve=1)
    with pytest.raises(TooLowError):
        ledger.bid("anna", 5)
    ledger.call(Action.LOWER)
    ledger.bid("anna", 9)
    with pytest.raises(ClosedError, match="taken"):
        ledger.bid("ben", 10)
    sold = ledger.call(Action.GONE)[0]
    assert (sold.winner, sold.price) == ("anna", Decimal("7.50"))  # type: ignore[union-attr]


def test_winner_does_not_depend_on_the_precision_that_a_program_has_set() -> None:
    def winner(precision: int) -> str:
        ledger = HandLedger()
        with localcontext(Context(prec=precision)):
            ledger.open("english", start="100000.40", step="0.40")
            ledger.bid("anna", "100000.40")
            refused(ledger, ledger.entry("ben", Action.BID, amount="100000.80"))
            ledger.open("dutch", "lot-2", start="100000.40", step="50000.21")
            ledger.call(Action.LOWER, "lot-2")
            assert ledger.sale("lot-2").minimum_bid == Decimal("50000.19")
            assert ledger.sale("lot-2").lot.calls_down == 2
        return ledger.close().winner  # type: ignore[union-attr]

    assert winner(28) == winner(6) == "ben"


def test_bid_of_nothing_counts_if_the_lot_starts_at_nothing() -> None:
    ledger = HandLedger()
    for kind in ("english", "dutch"):
        ledger.open(kind, kind, start=0)
        ledger.bid("anna", 0, kind)
        assert ledger.close(kind).price == 0  # type: ignore[union-attr]
    ledger.open("sealed", start=0)
    ledger.seal("anna", 0)
    ledger.call(Action.UNSEAL)
    ledger.reveal("anna", 0)
    assert ledger.close().winner == "anna"  # type: ignore[union-attr]


def test_lot_is_judged_alike_by_all_versions_of_python() -> None:
    lot = Lot(id="lot-1", kind=Kind.ENGLISH, start=Decimal(1), end=datetime(2026, 11, 20, tzinfo=UTC))
    for end in ("2026-11-19T24:00:00+00:00", "20261120T000000Z", "2026-11-20T00:00:00Z", "2026-11-20T01:00:00+01:00"):
        ledger = HandLedger()
        terms = {**lot.as_dict(), "end": end}
        assert isinstance(refused(ledger, ledger.entry("sam", Action.OPEN, terms=terms)), InvalidError), end
    new_in_unicode_15, bidirectional = "\U0001fae8", "\u202e"
    assert Lot.parse({**lot.as_dict(), "title": new_in_unicode_15}, "sam").title == new_in_unicode_15
    for unprintable in (bidirectional, "\x1b", "\n", "\ud800", "\u200b"):
        with pytest.raises(ValueError, match="printable"):
            Lot.parse({**lot.as_dict(), "title": f"a{unprintable}b"}, "sam")


def test_dutch_price_stops_at_the_reserve_and_the_lot_is_unsold() -> None:
    ledger = HandLedger()
    ledger.open("dutch", reserve=4)
    assert isinstance(ledger.close(), Unsold)
    assert ledger.sale("lot-1").minimum_bid == Decimal(4)


@pytest.mark.parametrize(("kind", "price"), [("sealed", 30), ("vickrey", 20)])
def test_highest_revealed_bid_wins_and_unrevealed_ones_are_forfeited(kind: str, price: int) -> None:
    ledger = HandLedger()
    ledger.open(kind)
    for name, amount in (("anna", 20), ("ben", 30), ("carl", 90)):
        ledger.seal(name, amount)
    with pytest.raises(ClosedError):
        ledger.reveal("anna", 20)
    ledger.call(Action.UNSEAL)
    with pytest.raises(ClosedError):
        ledger.seal("dora", 99)
    with pytest.raises(InvalidError, match="not the one"):
        ledger.reveal("ben", 31)
    ledger.reveal("ben", 30)
    ledger.reveal("anna", 20)
    sold = ledger.call(Action.GONE)[0]
    assert (sold.winner, sold.price) == ("ben", Decimal(price))  # type: ignore[union-attr]


def test_of_equal_sealed_bids_the_earlier_one_wins_and_pays_the_same() -> None:
    ledger = HandLedger()
    ledger.open("vickrey")
    ledger.seal("ben", 30)
    ledger.seal("anna", 30)
    ledger.call(Action.UNSEAL)
    ledger.reveal("anna", 30)
    ledger.reveal("ben", 30)
    sold = ledger.call(Action.GONE)[0]
    assert (sold.winner, sold.price) == ("ben", Decimal(30))  # type: ignore[union-attr]


def test_lot_below_its_reserve_is_unsold_and_one_winner_pays_at_least_the_reserve() -> None:
    ledger = HandLedger()
    ledger.open("english", reserve=50)
    ledger.bid("anna", 49)
    assert isinstance(ledger.close(), Unsold)
    ledger.open("vickrey", "lot-2", reserve=50)
    ledger.seal("anna", 80, "lot-2")
    ledger.call(Action.UNSEAL, "lot-2")
    ledger.reveal("anna", 80, "lot-2")
    assert ledger.close("lot-2").price == Decimal(50)  # type: ignore[union-attr]


def test_names_without_the_right_to_do_so_can_neither_bid_nor_call_nor_withdraw() -> None:
    ledger = HandLedger()
    ledger.open("english", bidders=("anna",))
    for author in ("ben", "sam", "notary-2"):
        with pytest.raises(NotQualifiedError):
            ledger.bid(author, 20)
    with pytest.raises(NotQualifiedError):
        ledger.call(Action.GOING, notary="anna")
    with pytest.raises(NotQualifiedError):
        ledger.say("anna", Action.WITHDRAW)
    with pytest.raises(NoLotError):
        ledger.bid("anna", 20, "lot-9")
    with pytest.raises(InvalidError):
        ledger.open("english")
    assert isinstance(ledger.say("sam", Action.WITHDRAW)[0], Unsold)


def test_seller_cannot_withdraw_after_the_first_bid() -> None:
    ledger = HandLedger()
    ledger.open("english")
    ledger.bid("anna", 20)
    with pytest.raises(ClosedError):
        ledger.say("sam", Action.WITHDRAW)


def test_next_auctioneer_continues_where_the_last_one_stopped() -> None:
    """It waits from the moment at which it saw the last change, and does not begin again."""
    ledger = HandLedger()
    ledger.open("english", call_s=5, extension_s=30)
    end_s = ledger.sale("lot-1").lot.end_s
    first, second = Auctioneer(ledger), Auctioneer(ledger)
    assert first.due(end_s - 1) == second.due(end_s - 1) == []
    assert calls(first, end_s) == [("lot-1", Action.GOING)]
    ledger.call(Action.GOING)
    assert second.due(end_s + 1) == []
    assert calls(second, end_s + 6) == [("lot-1", Action.GOING)]
    ledger.bid("anna", 20)
    assert second.due(end_s + 7) == []
    assert second.due(end_s + 36) == []
    assert calls(second, end_s + 37) == [("lot-1", Action.GOING)]


def calls(auctioneer: Auctioneer, now_s: float) -> list[tuple[str, Action]]:
    return [(each.lot, each.action) for each in auctioneer.due(now_s)]


def test_call_is_void_if_a_bid_came_after_it_was_decided() -> None:
    """Otherwise a bid that overtakes the call would not be followed by the extension."""
    ledger = HandLedger()
    ledger.open("english", call_s=5, extension_s=30)
    ledger.bid("anna", 20)
    auctioneer, end_s = Auctioneer(ledger), ledger.sale("lot-1").lot.end_s
    auctioneer.due(end_s)
    [call] = auctioneer.due(end_s + 30)
    ledger.bid("ben", 30)
    with pytest.raises(ClosedError, match="has changed"):
        ledger.say("notary-1", call.action, call.lot, after=call.after, chain=call.chain)
    assert auctioneer.due(end_s + 31) == []
    assert calls(auctioneer, end_s + 61) == [("lot-1", Action.GOING)]


AMOUNTS = st.decimals("0.0001", "999999999", allow_nan=False, places=4)


@settings(max_examples=EXAMPLES, deadline=None)
@given(AMOUNTS)
def test_amounts_are_exact(amount: Decimal) -> None:
    assert parse_amount(amount_text(amount)) == amount == parse_amount(amount)


@pytest.mark.parametrize("value", [1.5, True, "1e3", "-1", "NaN", "1.00001", "", "٣", Decimal("Infinity"), 10**14])
def test_inexact_or_impossible_amounts_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="not an amount"):
        parse_amount(value)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.text(), AMOUNTS, AMOUNTS)
def test_commitment_is_bound_to_auction_lot_bidder_and_amount(name: str, amount: Decimal, other: Decimal) -> None:
    name = name.encode(errors="replace").decode()
    seals = [
        commitment(*parts, salt)
        for parts in {("a", "lot-1", name, amount), ("a", "lot-1", name, other), ("b", "lot-1", name, amount)}
        for salt in (SALT, "00" * 32)
    ]
    assert len(set(seals)) == len(seals)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("anna", "ben", "carl", "sam", *NOTARIES)),
        st.sampled_from(list(Action)),
        st.integers(8, 40),
        st.integers(0, 3),
    ),
    max_size=40,
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.sampled_from(list(Kind)), STEPS)
def test_any_sequence_of_entries_follows_the_rules_and_every_replay_gives_the_same(kind: Kind, steps: Any) -> None:
    ledger = HandLedger()
    ledger.open(kind)
    sealed: dict[str, int] = {}
    for author, action, amount, back in steps:
        fields: dict[str, Any] = {}
        if action in (Action.BID, Action.REVEAL):
            fields["amount"] = amount
            if kind.is_sealed and action is Action.BID:
                fields = {"commitment": commitment(ledger.auction, "lot-1", author, Decimal(amount), SALT)}
                sealed.setdefault(author, amount)
            elif action is Action.REVEAL:
                fields = {"amount": sealed.get(author, amount), "salt": SALT}
        elif action.is_call:
            after = max(0, ledger.number - back)
            fields = {"after": after, "chain": ledger.chain_at(after)}
        elif action is Action.OPEN:
            fields = {"terms": ledger.sale("lot-1").lot.as_dict()}
        refused(ledger, ledger.entry(author, action, **fields))
    replays = [HandLedger(), HandLedger()]
    entries: list[Any] = [[], []]
    for found, replay in zip(entries, replays, strict=True):
        for record in ledger.records:
            found += replay.apply(*record)
    assert entries[0] == entries[1]
    assert {each.chain for each in replays} == {ledger.chain}
    assert all(each.results() == ledger.results() for each in replays)
    if ledger.results() and ledger.sale("lot-1").reason != "withdrawn by the seller":
        assert oracle(entries[0]) == ledger.results()["lot-1"]


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(max_size=300))
def test_bytes_that_are_not_a_statement_are_ignored(data: bytes) -> None:
    ledger = HandLedger()
    before = ledger.chain
    assert ledger.add(data) == ledger.add(b"A1\0\0" + bytes(64) + data) == []
    assert ledger.chain != before
    assert not ledger.outcomes


HOSTILE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just("lot-1"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ("id", "kind", "start", "step", "reserve", "end", "call_s", "extension_s", "title", "bidders", "other")


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.sampled_from(FIELDS), HOSTILE)
def test_lot_with_terms_that_make_no_sense_does_no_harm(field: str, value: Any) -> None:
    ledger = HandLedger()
    lot = Lot(id="lot-1", kind=Kind.ENGLISH, start=Decimal(1), end=datetime.now(UTC))
    data = ledger.entry("sam", Action.OPEN, terms={**lot.as_dict(), field: value})
    refused(ledger, data)
    if ledger.sales:
        refused(ledger, ledger.entry("anna", Action.BID, amount=5))
        Auctioneer(ledger).due(0.0)


@pytest.mark.parametrize(
    ("terms", "problem"),
    [
        ({"kind": "english", "call_s": 1e-6}, "call_s must be"),
        ({"kind": "english", "extension_s": float("inf")}, "extension_s must be"),
        ({"kind": "dutch", "start": 10**12, "step": "0.0001"}, "would fall"),
    ],
)
def test_lot_that_would_fill_the_list_with_calls_is_refused(terms: dict[str, Any], problem: str) -> None:
    values: dict[str, Any] = {"id": "lot-1", "start": 10, "end": datetime.now(UTC), **terms}
    with pytest.raises(ValueError, match=problem):
        Lot(**values)


@pytest.mark.parametrize("kind", ["sealed", "vickrey"])
def test_sealed_bids_are_revealed_and_the_lot_is_sold_although_the_list_is_full(kind: str) -> None:
    ledger = HandLedger()
    ledger.open(kind)
    ledger.seal("anna", 40)
    ledger.apply(ENTRIES_MAX, b"not a statement")
    for entry in (ledger.entry("ben", Action.BID, commitment="5a" * 32), ledger.entry("sam", Action.WITHDRAW)):
        assert isinstance(refused(ledger, entry), ClosedError)
    ledger.call(Action.UNSEAL)
    with pytest.raises(InvalidError, match="has no sealed bid"):
        ledger.reveal("ben", 50)
    ledger.reveal("anna", 40)
    sold = ledger.close()
    assert isinstance(sold, Sold)
    assert sold.winner == "anna"


def test_lot_is_opened_only_if_the_list_has_room_for_its_calls() -> None:
    ledger = HandLedger()
    longest: dict[str, Any] = {"start": CALLS_DOWN_MAX, "step": 1, "end": datetime.now(UTC)}
    count = CALLS_RESERVED_MAX // (CALLS_DOWN_MAX + 1)
    for number in range(count):
        ledger.open("dutch", f"lot-{number}", **longest)
    with pytest.raises(ClosedError, match=f"may need {CALLS_DOWN_MAX + 1:,} calls"):
        ledger.open("dutch", "late", **longest)
    ledger.open("english", "short")
    ledger.say("sam", Action.WITHDRAW, "lot-0")
    ledger.open("dutch", "late", **longest)
    ledger.bid("anna", CALLS_DOWN_MAX, "late")
    ledger.close("late")
    ledger.open("dutch", "later", **longest)
    with pytest.raises(ClosedError, match="open it when some of them are sold"):
        ledger.open("dutch", "latest", **longest)
    assert "latest" not in ledger.sales


def test_list_has_room_for_the_calls_of_as_many_english_lots_as_there_can_be() -> None:
    ledger = HandLedger()
    ledger.open("english")
    assert ledger.sale("lot-1").calls_max * LOTS_MAX <= CALLS_RESERVED_MAX
