"""Games, meetings and auctions: their entries on the tape, one row per round, meeting and lot, and fees for sales."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from broadloom.apps import auction, conference, game
from broadloom.apps.game.games.chain import Chain
from broadloom.record import Tape, read
from tests.apps.auction.saleroom import Saleroom, lot
from tests.channel.joined import connected_channels
from tests.pipeline.building import build_in_memory
from tests.pipeline.event_rows import event_table
from tests.support import eventually

BEGIN = datetime(2027, 1, 15, 12, tzinfo=UTC)
A, B, C = "a" * 16, "b" * 16, "c" * 16
BILLING = 'currency = "EUR"\n[sales]\npercent = {}\nlot_fee = 1\n'


def at(second: float) -> datetime:
    return BEGIN + timedelta(seconds=second)


def entry(second: float, name: str, status: str, number: int, peer: str = A, **columns: Any) -> dict[str, Any]:
    figures = {key: columns.pop(key) for key in list(columns) if key not in ("author", "owner", "reason")}
    usual = {"kind": "app_entry", "event_time": at(second), "peer": peer, "author": A, "sequence": number, "name": name}
    return {**usual, "status": status, "actions": json.dumps(figures), **columns}


def round_entry(second: float, status: str, number: int, **columns: Any) -> dict[str, Any]:
    return entry(second, "game", status, number, **{"game": "chain", "round": 1, **columns})


def test_round_has_its_actions_once_and_the_hash_of_its_end() -> None:
    players = {"red": "Anna", "blue": "Ben"}
    rows = [
        round_entry(0, "sit", 1, owner="Anna", round=0),
        round_entry(1, "started", 1, author=None, players=players),
        round_entry(2, "act", 2),
        round_entry(2.5, "act", 2, peer=B),
        round_entry(3, "act", 1, author=B, peer=B, reason="not your turn"),
        round_entry(4, "stand_in", 3, peer=B),
        round_entry(5, "over", 1, author=None, players=players, winner="red", hash="e1"),
        round_entry(5.5, "over", 1, author=None, peer=B, players=players, winner="red", hash="e1"),
        round_entry(6, "over", 1, author=None, peer=C, players=players, winner="red", hash="f2"),
        round_entry(7, "started", 2, author=None, round=2, players=players),
        round_entry(8, "act", 9, round="many", author=B),
    ]
    first, second = build_in_memory(event_table(*rows), "game_rounds")["game_rounds"].to_dicts()
    assert first == {"channel": "c", "game_name": "chain", "round_number": 1, "status": "over"} | {
        "players": '{"red":"Anna","blue":"Ben"}',
        "action_count": 1,
        "refused_count": 1,
        "stand_in_count": 1,
        "winner": "red",
        "state_hash": "e1",
        "hash_count": 2,
        "peer_count": 3,
        "start_time": at(1),
        "end_time": at(5),
    }
    assert (second["round_number"], second["status"], second["end_time"]) == (2, "running", None)


def test_meeting_counts_each_action_once() -> None:
    rows = [
        entry(0, "meeting", "arrive", 1, owner="Anna", term=0),
        entry(1, "meeting", "arrive", 1, author=B, owner="Ben", term=0),
        entry(2, "meeting", "request", 2, term=1),
        entry(3, "meeting", "view", 2, author=B, reason="not permitted", term=1),
        entry(4, "meeting", "annotate", 3, term=1),
        entry(4.5, "meeting", "annotate", 3, peer=B, term=1),
        entry(5, "meeting", "hand-over", 4, term=2),
        entry(6, "meeting", "poll", 3, author=B, term=2),
        entry(7, "meeting", "vote", 5, term=2),
    ]
    (row,) = build_in_memory(event_table(*rows), "meetings")["meetings"].to_dicts()
    assert (row["participant_count"], row["participants"], row["floor_change_count"]) == (2, "Anna, Ben", 2)
    assert (row["action_count"], row["refused_count"], row["peer_count"]) == (7, 1, 2)
    assert (row["note_count"], row["poll_count"], row["vote_count"], row["part_count"]) == (1, 1, 1, 0)
    assert (row["start_time"], row["end_time"]) == (at(0), at(7))


def sale(name: str, price: str, first: int) -> list[dict[str, Any]]:
    return [
        entry(first, "auction", "opened", first, owner="sam", lot=name, kind="english"),
        entry(first + 1, "auction", "bid", first + 1, owner="anna", lot=name, amount="10"),
        entry(first + 1, "auction", "bid", first + 1, peer=B, owner="anna", lot=name, amount="10"),
        entry(first + 2, "auction", "bid", first + 2, owner="ben", lot=name, amount=price),
        entry(first + 3, "auction", "sold", first + 3, owner="ben", lot=name, amount=price),
    ]


def test_sale_is_invoiced_once_under_the_fees_of_its_first_build(tmp_path: Path) -> None:
    path = tmp_path / "billing.toml"
    path.write_text(BILLING.format("2.5"))
    rows = [*sale("tulips", "12.50", 1), entry(20, "auction", "unsold", 20, lot="roses", reason="no bids")]
    tables = build_in_memory(event_table(*rows), "invoices", billing_file=str(path))
    roses, tulips = tables["auction_lots"].to_dicts()
    assert (roses["status"], roses["reason"], roses["fee"], roses["winner"]) == ("unsold", "no bids", None, None)
    assert tulips == {"channel": "c", "lot": "tulips", "kind": "english", "seller": "sam", "status": "sold"} | {
        "bid_count": 2,
        "bidder_count": 2,
        "revealed_count": 0,
        "winner": "ben",
        "price": Decimal("12.50"),
        "price_count": 1,
        "fee": Decimal("1.31"),
        "currency": "EUR",
        "reason": None,
        "entry_number": 4,
        "peer_count": 2,
        "start_time": at(1),
        "end_time": at(4),
    }
    (invoice,) = tables["invoices"].to_dicts()
    assert (invoice["kind"], invoice["subscriber"], invoice["billing_month"]) == ("sale", "sam", "2027-01")
    assert (invoice["amount"], invoice["currency"], invoice["end_time"]) == (Decimal("1.31"), "EUR", at(4))
    assert json.loads(invoice["terms"])["lot"] == "tulips"

    path.write_text(BILLING.format("10"))
    again = build_in_memory(
        event_table(*rows, *sale("oaks", "200", 30)), "invoices", billing_file=str(path), invoices=tables["invoices"]
    )["invoices"]
    assert again.filter(again["invoice_id"] == invoice["invoice_id"]).to_dicts() == [invoice]
    assert sorted(again["amount"]) == [Decimal("1.31"), Decimal("21.00")]


def test_sale_whose_price_the_tapes_disagree_on_is_not_invoiced(tmp_path: Path) -> None:
    path = tmp_path / "billing.toml"
    path.write_text(BILLING.format("2.5"))
    sold = entry(5, "auction", "sold", 4, peer=B, owner="ben", lot="tulips", amount="12.500")
    rows = [*sale("tulips", "12.50", 1), sold]
    tables = build_in_memory(event_table(*rows), "invoices", billing_file=str(path))
    assert (tables["auction_lots"]["price_count"].to_list(), len(tables["invoices"])) == ([1], 1)
    for amount in ("1", "a lot"):
        other = entry(5, "auction", "sold", 4, peer=C, owner="ben", lot="tulips", amount=amount)
        tables = build_in_memory(event_table(*rows, other), "invoices", billing_file=str(path))
        assert (tables["auction_lots"]["price_count"].to_list(), len(tables["invoices"])) == ([2], 0)


async def test_tape_has_the_rounds_of_a_game_and_the_actions_of_a_meeting(tmp_path: Path) -> None:
    tape = Tape(tmp_path)
    async with (
        connected_channels(2, tape=tape) as channels,
        game.Play(channels[0], Chain(2), name="Anna", role="red") as anna,
        game.Play(channels[1], Chain(2), name="Ben", role="blue") as ben,
        conference.Meeting(channels[0], "Anna") as meeting,
    ):
        await eventually(lambda: anna.table.phase is ben.table.phase is game.Phase.RUNNING)
        mover = anna if anna.state["turn"] == "red" else ben
        await mover.do("place", x=1, y=1)
        await anna.departed()
        await ben.departed()
        await eventually(lambda: anna.table.phase is ben.table.phase is game.Phase.OVER)
        await meeting.annotate("rib-4", "a crack that nobody else may read about")
    tape.close()
    rows = read(tmp_path)
    tables = build_in_memory(rows, "game_rounds", "meetings")
    (played,) = tables["game_rounds"].to_dicts()
    assert (played["game_name"], played["status"], played["action_count"]) == ("chain", "over", 1)
    assert played["peer_count"] == 2
    assert played["hash_count"] == 1
    (met,) = tables["meetings"].to_dicts()
    assert (met["participants"], met["note_count"]) == ("Anna", 1)
    assert "crack" not in str(rows.to_pylist())


async def test_tape_of_one_bidder_has_the_lots_of_the_auction(tmp_path: Path) -> None:
    async with Saleroom(tmp_path) as saleroom:
        await saleroom.notaries()
        tape = Tape(tmp_path / "tape")
        anna = await saleroom.open("anna", tape=tape)
        sam = await saleroom.open("sam")
        await sam.open_lot(lot("english"))
        await anna.bid("lot-1", 25)
        await saleroom.hurry(anna, auction.Sold)
        tape.close()
    (row,) = build_in_memory(read(tmp_path / "tape"), "auction_lots")["auction_lots"].to_dicts()
    assert (row["lot"], row["seller"], row["status"], row["bid_count"]) == ("lot-1", "sam", "sold", 1)
    assert (row["winner"], row["price"], row["fee"]) == ("anna", Decimal(25), None)
