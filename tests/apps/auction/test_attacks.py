"""Attacks on an auction: forged and copied bids, early looks at sealed bids, altered logs, bidders without a ticket."""

import base64
import json
from collections.abc import Callable
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import broadloom
from broadloom import Authority, Role
from broadloom.apps import auction
from broadloom.apps.auction import AlteredLogError, Phase
from broadloom.apps.auction.log_file import read_log, verifier, write_log
from broadloom.apps.auction.receipt import Receipt
from broadloom.apps.auction.room import _parse_number
from broadloom.apps.auction.sealed import commitment
from broadloom.apps.auction.statements import Action, Statement, signed
from broadloom.errors import ConnectError, NotPermittedError
from broadloom.protocol import ChannelName
from broadloom.security import PeerCredentials
from broadloom.security.post_signer import PostSigner
from tests.apps.auction.ledgers import AT_MS, SALT, HandLedger
from tests.apps.auction.saleroom import TICKETS_END, Saleroom, lot
from tests.channel.joined import QUICK, unique_name

NAME = "auction/attacked"
CHANNEL = ChannelName.parse(NAME)
AUTHORITY = Authority.generate(CHANNEL.id)


def signer(name: str, authority: Authority = AUTHORITY, role: Role = Role.PRODUCER) -> PostSigner:
    credentials = PeerCredentials.from_ticket(CHANNEL, authority.issue_ticket(name, role, TICKETS_END))
    assert credentials.post_signer is not None
    return credentials.post_signer


def new_ledger() -> HandLedger:
    return HandLedger(NAME, verifier(AUTHORITY.certificate, NAME))


def sold_ledger() -> tuple[HandLedger, Receipt]:
    """Anna was outbid by Ben; and the receipt for Anna's bid."""
    ledger = new_ledger()
    notary = signer("notary-1")
    ledger.open("english", seller=signer("sam"))
    ledger.bid(signer("anna"), 20)
    receipt = Receipt.of(ledger, ledger.number, notary, AT_MS)
    ledger.bid(signer("ben"), 30)
    ledger.close(notary=notary)
    return ledger, receipt


class Impostor:
    """Signs with its own key, and presents the certificate of another member."""

    def __init__(self, own: PostSigner, victim: PostSigner) -> None:
        self.name, self.credential, self.sign = victim.name, victim.credential, own.sign


@pytest.mark.parametrize(
    "author",
    [
        Impostor(signer("mallory"), signer("anna")),
        signer("anna", Authority.generate(CHANNEL.id)),
        signer("anna", role=Role.CONSUMER),
    ],
    ids=["the certificate of another member", "a ticket of another authority", "a ticket that may not send"],
)
def test_bid_that_its_bidder_has_not_signed_with_a_ticket_of_the_channel_is_ignored(author: Any) -> None:
    ledger = new_ledger()
    ledger.open("english", seller=signer("sam"))
    assert ledger.bid(author, 20) == []
    assert not ledger.sale("lot-1").bids


def test_statement_for_another_auction_is_ignored() -> None:
    ledger = new_ledger()
    ledger.open("english", seller=signer("sam"))
    other = ChannelName.parse("auction/other")
    ticket = AUTHORITY.issue_ticket("anna", Role.PRODUCER, TICKETS_END)
    certificate = ticket.issue_certificate()
    elsewhere = PostSigner(other.id, certificate, None, "anna")  # type: ignore[arg-type]
    assert ledger.bid(elsewhere, 20) == []


def test_copied_bid_counts_once_also_if_it_was_refused_before() -> None:
    ledger = new_ledger()
    early = ledger.entry(signer("anna"), Action.BID, amount=20)
    with pytest.raises(auction.NoLotError):
        ledger.add(early)
    ledger.open("english", seller=signer("sam"))
    assert ledger.add(early) == []
    bid = ledger.entry(signer("anna"), Action.BID, amount=30)
    assert len(ledger.add(bid)) == 1
    assert ledger.add(bid) == []
    assert [each.amount for each in ledger.sale("lot-1").bids.values()] == [Decimal(30)]


@pytest.mark.parametrize("levels", [40, 100_000])
def test_statement_and_answer_that_are_nested_too_deeply_are_refused(levels: int) -> None:
    deep = b"[" * levels + b"]" * levels
    valid = Statement(action=Action.WITHDRAW, id="ab" * 16, at_ms=AT_MS, lot="lot-1").encode()
    with pytest.raises(ValueError, match=r"nested|recursion"):
        Statement.decode(valid[:-1] + b',"terms":{"x":%s}}' % deep)
    with pytest.raises(ValueError, match="not a number"):
        _parse_number(deep)


def test_sealed_bid_is_unreadable_before_the_reveal() -> None:
    ledger = new_ledger()
    ledger.open("vickrey", seller=signer("sam"))
    anna = signer("anna")
    entries = [
        signed(
            Statement(
                action=Action.BID,
                id=f"{number:032x}",
                at_ms=AT_MS,
                lot="lot-1",
                commitment=commitment(NAME, "lot-1", "anna", Decimal(1234), salt),
            ),
            anna,
        )
        for number, salt in enumerate((SALT, "00" * 32), 1)
    ]
    assert all(
        b"1234" not in each.split(anna.credential)[1][64:].replace(b'"at_ms":%d' % AT_MS, b"") for each in entries
    )
    # An attacker that tries all amounts needs the salt, and the same amount with another salt looks different.
    first, second = [json.loads(each.split(anna.credential)[1][64:]) for each in entries]

    def guesses(salt: str) -> list[int]:
        return [
            guess
            for guess in range(1200, 1300)
            if commitment(NAME, "lot-1", "anna", Decimal(guess), salt) == first["commitment"]
        ]

    assert guesses(SALT) == [1234]
    public = [str(value) for value in (*first.values(), *second.values())]
    assert not any(guesses(each) for each in ("", "00" * 32, *public))
    ledger.add(entries[0])
    placed = ledger.sale("lot-1").bids[ledger.number]
    assert (placed.amount, ledger.sale("lot-1").leader) == (None, None)


def test_copied_commitment_cannot_be_revealed_by_the_copier() -> None:
    ledger = HandLedger()
    ledger.open("sealed")
    ledger.seal("anna", 30)
    seal = ledger.sale("lot-1").bids[ledger.number].commitment
    ledger.say("mallory", Action.BID, commitment=seal)
    ledger.call(Action.UNSEAL)
    ledger.reveal("anna", 30)
    with pytest.raises(auction.InvalidError):
        ledger.reveal("mallory", 30)


Lines = list[dict[str, Any]]


def _without(number: int) -> Callable[[Lines], Lines]:
    return lambda lines: [each for each in lines if each.get("number") != number]


def _renumbered(lines: Lines) -> Lines:
    """Without the bid of Ben, so that Anna wins, and without the gap that it leaves."""
    kept = _without(3)(lines)
    return [kept[0], *({**each, "number": number} for number, each in enumerate(kept[1:], 1))]


def _swapped(lines: Lines) -> Lines:
    second, third = lines[2], lines[3]
    return [*lines[:2], {**third, "number": 2}, {**second, "number": 3}, *lines[4:]]


def _changed(lines: Lines) -> Lines:
    data = base64.b64decode(lines[3]["entry"]).replace(b'"amount":"30"', b'"amount":"21"')
    return [*lines[:3], {**lines[3], "entry": base64.b64encode(data).decode()}, *lines[4:]]


def _inserted(lines: Lines) -> Lines:
    """A bid that Carl has really signed, for a place at which it was not ordered."""
    late = HandLedger(NAME).entry(signer("carl"), Action.BID, amount=99)
    rest = [{**each, "number": each["number"] + 1} for each in lines[4:]]
    return [*lines[:4], {"number": 4, "entry": base64.b64encode(late).decode()}, *rest]


def _other_notaries(lines: Lines) -> Lines:
    return [{**lines[0], "notaries": ["notary-1", "mallory", "notary-3"]}, *lines[1:]]


def _without_notaries(lines: Lines) -> Lines:
    """None of the calls counts."""
    return [{**lines[0], "notaries": "abc"}, *lines[1:]]


@pytest.mark.parametrize(
    "alter", [_without(2), _without(3), _renumbered, _swapped, _changed, _inserted, _other_notaries, _without_notaries]
)
def test_altered_log_is_found(alter: Callable[[Lines], Lines], tmp_path: Path) -> None:
    path = tmp_path / "auction.log"
    ledger, _ = sold_ledger()
    write_log(path, ledger, AUTHORITY.certificate)
    found, _ = read_log(path, AUTHORITY.certificate)
    assert found.results() == {"lot-1": ("ben", Decimal(30))}
    assert found.signed_up_to == found.number - 1
    lines = alter([json.loads(line) for line in path.read_text().splitlines()])
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    with pytest.raises(AlteredLogError):
        read_log(path, AUTHORITY.certificate)


@pytest.mark.parametrize("text", ["", "{}\n", "[1]\n", "not json\n", "\xff", '{"version": 1, "auction": 5}\n'])
def test_file_that_is_no_log_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "auction.log"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(AlteredLogError):
        read_log(path)


def test_log_of_another_authority_is_refused(tmp_path: Path) -> None:
    """Everything in it can be invented, by someone who makes an authority of the same name."""
    path = tmp_path / "auction.log"
    write_log(path, sold_ledger()[0], AUTHORITY.certificate)
    with pytest.raises(AlteredLogError, match="not of the authority"):
        read_log(path, Authority.generate(CHANNEL.id).certificate)


def test_receipt_proves_that_a_shortened_log_leaves_out_a_bid(tmp_path: Path) -> None:
    path = tmp_path / "auction.log"
    ledger, receipt = sold_ledger()
    assert Receipt.decode(receipt.encode()) == receipt
    receipt.check(ledger)
    short = new_ledger()
    short.apply(*ledger.records[0])
    write_log(path, short, AUTHORITY.certificate)
    found, _ = read_log(path, AUTHORITY.certificate)
    with pytest.raises(AlteredLogError, match="does not have the bid of anna"):
        receipt.check(found)


@pytest.mark.parametrize("author", ["mallory", "notary-3"])
def test_call_that_names_another_list_does_not_count_as_a_signature_of_this_one(author: str) -> None:
    ledger, _ = sold_ledger()
    signed_up_to = ledger.signed_up_to
    with pytest.raises(auction.AuctionError):
        ledger.say(signer(author), Action.GOING, after=10**9, chain="ab" * 32)
    assert ledger.signed_up_to == signed_up_to


def test_log_with_the_lie_of_one_notary_is_good_once_another_notary_has_signed_it(tmp_path: Path) -> None:
    path = tmp_path / "auction.log"
    ledger = new_ledger()
    ledger.open("english", seller=signer("sam"))
    ledger.bid(signer("anna"), 20)
    with pytest.raises(auction.InvalidError, match="signed another list"):
        ledger.say(signer("notary-2"), Action.GOING, after=1, chain="ab" * 32)
    for liar in ("notary-2", "notary-1"):
        write_log(path, ledger, AUTHORITY.certificate)
        with pytest.raises(AlteredLogError, match="notary-2 has signed another list"):
            read_log(path, AUTHORITY.certificate)
        ledger.call(Action.GOING, notary=signer(liar))
    ledger.close(notary=signer("notary-1"))
    write_log(path, ledger, AUTHORITY.certificate)
    found, _ = read_log(path, AUTHORITY.certificate)
    assert found.results() == {"lot-1": ("anna", Decimal(20))}
    assert found.contradictions == [3]


@pytest.mark.parametrize("untrue", [{"amount": "25"}, {"bidder": "mallory"}, {"lot": "lot-2"}, {"number": 1}])
def test_receipt_of_a_notary_for_a_bid_that_was_not_made_is_refused(untrue: dict[str, Any]) -> None:
    ledger, receipt = sold_ledger()
    values = {**asdict(receipt), **untrue}
    values["chain"] = ledger.chain_at(values["number"])
    notary = signer("notary-1")
    proof = {"signature": notary.sign(Receipt(**values)._signed_data()), "credential": notary.credential}
    forged = Receipt(**{**values, **{name: base64.b64encode(each).decode() for name, each in proof.items()}})
    with pytest.raises(AlteredLogError, match="not true"):
        forged.check(ledger)


def test_receipt_that_no_notary_has_signed_is_refused() -> None:
    ledger, receipt = sold_ledger()
    by_mallory = Receipt.of(ledger, receipt.number, signer("mallory"), AT_MS)
    values = {**json.loads(receipt.encode()), "amount": "25"}
    for forged in (by_mallory, Receipt(**values)):
        with pytest.raises(AlteredLogError, match="not signed by a notary"):
            forged.check(ledger)


async def test_peer_without_a_ticket_can_neither_join_nor_bid(tmp_path: Path) -> None:
    async with Saleroom(tmp_path) as saleroom:
        notaries = await saleroom.notaries()
        with pytest.raises(ConnectError):
            await broadloom.connect(saleroom.name, settings=QUICK, timeout_s=2.0)
        seller, mallory = await saleroom.open("seller"), await saleroom.open("mallory")
        await seller.open_lot(lot("english"))
        await mallory.wait_until_current()
        statement = Statement(action=Action.BID, id="ab" * 16, at_ms=AT_MS, lot="lot-1", amount=Decimal(50))
        forged = signed(statement, Impostor(mallory._signer, seller._signer))
        placed = await mallory._order.submit(forged)
        await mallory._wait_until(lambda: mallory.ledger.number >= placed.index)
        assert mallory.sales["lot-1"].phase is Phase.OPEN
        assert not mallory.sales["lot-1"].bids
        with pytest.raises(auction.NotQualifiedError):
            await notaries[0].bid("lot-1", 50)
        consumer = await broadloom.connect(saleroom.name, ticket=saleroom.ticket("carl", Role.CONSUMER), settings=QUICK)
        try:
            async with auction.Room(consumer) as room:
                with pytest.raises(NotPermittedError):
                    await room.bid("lot-1", 50)
        finally:
            consumer.abort()


async def test_channel_without_tickets_has_no_auctions() -> None:
    async with broadloom.connect(unique_name(), settings=QUICK) as channel:
        with pytest.raises(auction.NotQualifiedError, match="needs tickets"):
            auction.Room(channel)
