"""Auctions over real connections: the four kinds, receipts, and the death of the auctioneer."""

import asyncio
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import broadloom
from broadloom import Authority, Role
from broadloom.apps import auction
from broadloom.apps.auction.room import in_turn
from broadloom.errors import OrderTimeoutError, QuotaExceededError
from broadloom.order import Entry, Epoch
from broadloom.wire import PeerId
from tests.apps.auction.saleroom import TICKETS_END, Saleroom, lot
from tests.channel.joined import QUICK, unique_name
from tests.support import eventually


async def test_highest_bid_of_an_english_auction_wins_with_receipts_and_late_bids_extend_it(tmp_path: Path) -> None:
    async with Saleroom(tmp_path) as saleroom:
        await saleroom.notaries()
        anna, ben, seller = [await saleroom.open(name) for name in ("anna", "ben", "seller")]
        await seller.open_lot(lot("english"))
        receipt = await anna.bid("lot-1", "10.50")
        assert (receipt.bidder, receipt.amount, receipt.lot) == ("anna", "10.50", "lot-1")
        for number in (1, 10**9):
            with pytest.raises(auction.InvalidError, match=f"entry {number} of .* is not an accepted bid"):
                await anna.receipt(number)
        for wrong, kind in ((0, ValueError), (-1, ValueError), ("x", TypeError), (None, TypeError)):
            with pytest.raises(kind, match="number"):
                await anna.receipt(wrong)  # type: ignore[arg-type]
        with pytest.raises(auction.TooLowError, match=r"bid at least 15\.50"):
            await ben.bid("lot-1", 11)
        await saleroom.hurry(ben, auction.Going)
        await ben.bid("lot-1", Decimal("15.50"))
        sold = await saleroom.hurry(anna, auction.Sold)
        assert (sold.winner, sold.price) == ("ben", Decimal("15.50"))
        assert any(isinstance(each, auction.Extended) for each in anna.entries)
        with pytest.raises(auction.ClosedError, match="takes no more bids"):
            await anna.bid("lot-1", 100)
        await seller.open_lot(lot("english", "lot-2"))
        with pytest.raises(auction.NotQualifiedError, match="sells"):
            await seller.bid("lot-2", 100)
        anna.export(tmp_path / "anna.log")
        ben.export(tmp_path / "ben.log")
        ledgers = [
            auction.read_log(str(tmp_path / name), saleroom.authority.certificate)[0]
            for name in ("anna.log", "ben.log")
        ]
        assert [each.results() for each in ledgers] == [{"lot-1": ("ben", Decimal("15.50"))}] * 2
        receipt.check(ledgers[1])


async def test_program_with_a_wrong_clock_does_not_fill_the_list(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Saleroom(tmp_path) as saleroom:
        notaries = await saleroom.notaries()
        anna, seller = [await saleroom.open(name) for name in ("anna", "seller")]
        await seller.open_lot(lot("english"))
        await anna.wait_until_current()
        auctioneer = next(each for each in notaries if each.is_auctioneer)
        for room in (auctioneer, anna):
            room._wall_clock = lambda: TICKETS_END.timestamp() + 1e4
        with pytest.raises(auction.NotQualifiedError, match=r"ticket of anna is not valid now .* set the clock"):
            await anna.bid("lot-1", 10)
        await eventually(lambda: "is not valid now" in caplog.text, "the auctioneer warns")
        assert seller.ledger.number == 1


async def test_auction_continues_after_the_auctioneer_is_killed_and_stops_without_a_majority(tmp_path: Path) -> None:
    async with Saleroom(tmp_path) as saleroom:
        notaries = await saleroom.notaries()
        anna, ben, seller = [await saleroom.open(name) for name in ("anna", "ben", "seller")]
        carl = await saleroom.open("carl", sealed_bids=tmp_path / "carl.bids")
        await seller.open_lot(lot("vickrey", "sealed", extension_s=100_000.0))
        await seller.open_lot(lot("dutch", "tulips", start="30"))
        with pytest.raises(auction.TooLowError, match="the lowest bid for sealed is 10"):
            await carl.bid("sealed", 9)
        await carl.bid("sealed", 40)
        receipt = await anna.bid("sealed", "25.50")
        assert receipt.amount == ""
        with pytest.raises(auction.InvalidError, match="already bid"):
            await anna.bid("sealed", 60)
        await carl.__aexit__(None, None, None)
        carl.channel.abort()
        auctioneer = next(each for each in notaries if each.is_auctioneer)
        auctioneer.channel.abort()
        submit, failures = anna._order.submit, [QuotaExceededError("later")]

        async def submit_later(data: bytes, **options: Any) -> Any:
            if b'"action":"reveal"' in data and failures:
                raise failures.pop()
            return await submit(data, **options)

        anna._order.submit = submit_later  # type: ignore[method-assign]
        assert (await ben.bid("sealed", 20)).auctioneer != auctioneer.name
        await saleroom.open("carl", sealed_bids=tmp_path / "carl.bids")
        lowered = await saleroom.hurry(ben, auction.Lowered, lot_id="tulips")
        await ben.bid("tulips", lowered.price)
        tulips = await saleroom.hurry(ben, auction.Sold, lot_id="tulips")
        assert (tulips.winner, tulips.price) == ("ben", Decimal(25))
        sealed = await saleroom.hurry(anna, auction.Sold, lot_id="sealed")
        assert (sealed.winner, sealed.price) == ("carl", Decimal("25.50"))
        assert not failures, "the reveal was tried again"
        receipt.check(ben.ledger)
        await seller.open_lot(lot("english", "late"))
        await eventually(lambda: "late" in anna.sales)
        assert not anna.stalled
        next(each for each in notaries if each is not auctioneer).channel.abort()
        with pytest.raises(OrderTimeoutError, match="look before you repeat it"):
            await anna.bid("late", 10, timeout_s=2.0)
        await eventually(lambda: anna.stalled == "1 of 3 notaries are here, and 2 are needed")
        assert not anna.sales["late"].bids


async def test_stalled_call_does_not_hold_up_other_lots_and_a_wrong_answer_leads_to_the_next_notary(
    tmp_path: Path,
) -> None:
    async with Saleroom(tmp_path) as saleroom:
        notaries = await saleroom.notaries()
        seller, anna = await saleroom.open("seller"), await saleroom.open("anna")
        await seller.open_lot(lot("dutch", "first", start="30"))
        await seller.open_lot(lot("dutch", "second", start="30"))
        auctioneer = next(each for each in notaries if each.is_auctioneer)
        submit, is_stalled = auctioneer._order.submit, asyncio.Event()

        async def stall_first(data: bytes, **options: Any) -> Any:
            if b'"lot":"first"' in data:
                is_stalled.set()
                await asyncio.Event().wait()
            return await submit(data, **options)

        auctioneer._order.submit = stall_first  # type: ignore[method-assign]
        await saleroom.hurry(anna, auction.Lowered, lot_id="second")
        assert is_stalled.is_set()
        assert not any(isinstance(each, auction.Lowered) and each.lot == "first" for each in anna.entries)

        first = in_turn(anna._notaries_here(), anna.channel.peer_id)[0]
        liar = next(each for each in notaries if each.channel.peer_id == first)
        liar._layer.on_request(lambda _request: b"{}")
        receipt = await anna.bid("second", 30)
        assert receipt.auctioneer != liar.name


def test_every_notary_is_the_first_that_a_part_of_the_members_asks() -> None:
    notaries = [PeerId(each) for each in (70, 50, 90)]
    orders = [in_turn(notaries, me) for me in range(1000, 1300)]
    assert {tuple(sorted(each)) for each in orders} == {(50, 70, 90)}
    assert Counter(each[0] for each in orders) == dict.fromkeys(notaries, 100)
    assert in_turn([], 7) == []


async def test_notary_that_does_not_answer_is_not_asked_first_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broadloom.apps.auction.room.ANSWER_S", 1.0)
    async with Saleroom(tmp_path) as saleroom:
        notaries = await saleroom.notaries()
        anna, seller = [await saleroom.open(name) for name in ("anna", "seller")]
        await seller.open_lot(lot("english"))
        first = in_turn(anna._notaries_here(), anna.channel.peer_id)[0]
        silent = next(each for each in notaries if each.channel.peer_id == first)
        asked = []

        async def ignore(request: Any) -> None:
            asked.append(request.json())
            await asyncio.Event().wait()

        silent._layer.on_request(ignore)
        for amount in (10, 20, 30):
            receipt = await anna.bid("lot-1", amount)
            assert receipt.auctioneer != silent.name
        assert len(asked) < 3


async def test_room_whose_reader_has_failed_ends_with_the_reason() -> None:
    name = unique_name()
    ticket = Authority.generate().issue_ticket("anna", Role.PRODUCER, TICKETS_END)
    channel = await broadloom.connect(name, ticket=ticket, settings=QUICK)
    try:
        async with auction.Room(channel) as room:

            def fail(*_arguments: Any) -> Any:
                raise RuntimeError("a fault")

            room.ledger.apply = fail  # type: ignore[method-assign, assignment]
            room._order._deliver(Entry(1, Epoch(1, channel.peer_id), channel.peer_id, b"", is_final=True))
            with pytest.raises(auction.AuctionError, match="a fault"):
                async for _ in room:
                    pass
            with pytest.raises(auction.AuctionError, match="a fault"):
                await room.wait_until_current()
    finally:
        channel.abort()


async def test_every_notary_knows_when_its_list_is_current_the_auctioneer_too(tmp_path: Path) -> None:
    async with Saleroom(tmp_path) as saleroom:
        notaries = await saleroom.notaries()
        await asyncio.gather(*(each.wait_until_current() for each in notaries))
        seller = await saleroom.open("seller")
        await seller.open_lot(lot("english"))
        await asyncio.gather(*(each.wait_until_current() for each in notaries))
        assert all("lot-1" in each.sales for each in notaries if not each.is_auctioneer)


async def test_time_for_a_bid_includes_the_wait_for_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given_s: list[float] = []

    async def submit(_data: bytes, *, timeout_s: float, **_options: object) -> None:
        given_s.append(timeout_s)
        raise OrderTimeoutError("too late")

    async with Saleroom(tmp_path) as saleroom:
        anna = await saleroom.open("anna")
        with pytest.raises(OrderTimeoutError, match=r"no auctioneer answered within 0\.3 s.*The bid was not sent"):
            await anna.bid("lot-1", 10, timeout_s=0.3)
        with pytest.raises(auction.NoReceiptError, match=r"no auctioneer answered within 0\.1 s"):
            await anna.receipt(1, timeout_s=0.1)
        loop = asyncio.get_running_loop()

        async def wait_until_current(_timeout_s: float) -> None:
            started_at = loop.time()
            await eventually(lambda: loop.time() > started_at + 0.1)
            anna.sales["lot-1"] = auction.Sale(anna.channel.name, lot("english"), 1)

        monkeypatch.setattr(anna, "wait_until_current", wait_until_current)
        monkeypatch.setattr(anna._order, "submit", submit)
        with pytest.raises(OrderTimeoutError, match="too late"):
            await anna.bid("lot-1", 10, timeout_s=20)
    assert given_s[0] < 19.95


async def test_entries_are_read_once_from_the_list_of_the_room(tmp_path: Path) -> None:
    async with Saleroom(tmp_path) as saleroom:
        await saleroom.notaries()
        seller = await saleroom.open("seller")
        for number in range(3):
            await seller.open_lot(lot("english", f"lot-{number}"))
        assert (seller.unread_count, len(seller._events)) == (3, 0)
        assert [(await seller.receive()).lot for _ in range(3)] == ["lot-0", "lot-1", "lot-2"]
        assert (seller.unread_count, seller.receive_nowait(), len(seller.entries)) == (0, None, 3)
