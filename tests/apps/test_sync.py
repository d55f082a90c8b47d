"""Games, meetings and auctions for synchronous programs, and that their twins lack nothing."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import broadloom.sync
from broadloom.apps import auction, conference, game
from broadloom.apps.auction import sync as auctions
from broadloom.apps.conference import sync as conferences
from broadloom.apps.game import sync as games
from broadloom.apps.game.games.chain import Chain
from broadloom.apps.session import AppSession
from broadloom.channel.item_reader import ItemReader
from broadloom.errors import NotConnectedError
from tests.apps.auction.saleroom import ORDER, Saleroom, lot
from tests.channel.joined import QUICK, unique_name
from tests.support import TIMEOUT_S, wait_until

OPTIONS: dict[str, Any] = {"tls": False, "settings": QUICK}
OF_RUNTIMES = {
    "submit",
    "request",
    "tell_member",
    "members",
    "sequencer",
    "emit",
    "wall_time_s",
    "on_applied",
    "on_settled",
    "on_input",
    "on_other_game",
    "close",
}
"""What a session calls itself, or its core calls."""


def test_synchronous_program_plays() -> None:
    name = unique_name()
    with (
        games.join(name, of=Chain(2), name="Anna", role="red", **OPTIONS) as anna,
        games.join(name, of=Chain(2), name="Ben", **OPTIONS) as ben,
    ):
        wait_until(lambda: anna.table.phase is ben.table.phase is game.Phase.RUNNING)
        mover = next(each for each in (anna, ben) if each.role == anna.state["turn"])
        other = ben if mover is anna else anna
        mover.do("place", x=1, y=1)
        with pytest.raises(game.IllegalActionError):
            mover.do("place", x=1, y=1)
        wait_until(lambda: anna.state_hash() == ben.state_hash())
        assert any(isinstance(each, game.Acted) for each in iter(other.receive_nowait, None))
        *_, last = other.latest_round()
        assert other.table_at(last) == other.table
        heard: list[game.Said] = []
        ben.on_event(lambda event: heard.append(event) if isinstance(event, game.Said) else None)
        anna.tell(["Ben"], "well played")
        wait_until(lambda: heard)
        assert (heard[0].name, heard[0].text) == ("Anna", "well played")
    with pytest.raises(NotConnectedError):
        ben.start()


def test_synchronous_program_meets() -> None:
    name = unique_name()
    with (
        conferences.join(name, name="Anna", **OPTIONS) as anna,
        broadloom.sync.connect(name, name="Ben", **OPTIONS) as channel,
        conferences.Meeting(channel) as ben,
    ):
        with anna.floor(timeout_s=TIMEOUT_S) as leading:
            assert leading.is_leader
            for other in (anna, ben):
                with pytest.raises(conference.FloorTimeoutError), other.floor(timeout_s=0.1):
                    pass
            assert leading.is_leader
        anna.annotate("rib-4", "A crack?")
        wait_until(lambda: [each.text for each in ben.state.notes.values()] == ["A crack?"])
        assert any(isinstance(each, conference.Done) for each in iter(ben.receive_nowait, None))
        poll = anna.open_poll("Release it?", ["yes", "no"])
        before = anna.state
        anna.vote(poll, 0)
        anna.annotate("rib-4", "No, dust.")
        anna.request_floor()
        ben.request_floor()
        wait_until(lambda: anna.state.floor.queue)
        assert (len(before.notes), before.polls[poll].counts) == (1, (0, 0)), "a copy, for loops in this thread"
        assert (before.floor.holder, before.floor.queue) == (None, {})
        ben.leave()
        assert channel.is_connected
        wait_until(lambda: [each.name for each in anna.participants()] == ["Anna"])


async def test_synchronous_program_bids(tmp_path: Path) -> None:
    async with Saleroom(tmp_path) as saleroom:
        await saleroom.notaries()
        seller = await saleroom.open("sam")
        await seller.open_lot(lot("english"))

        def bid() -> tuple[int, list[type]]:
            ticket = saleroom.ticket("anna")
            with auctions.join(saleroom.name, ticket=ticket, order_settings=ORDER, settings=QUICK) as room:
                room.wait_until_current()
                before = room.sales, room.entries, room.ledger
                receipt = room.bid("lot-1", 10)
                sales, entries, ledger = before
                assert (len(entries), ledger.number < room.ledger.number) == (1, True), "copies, for this thread"
                assert not sales["lot-1"].bids
                assert not ledger.sales["lot-1"].bids
                assert len(room.sales["lot-1"].bids) == 1
                return receipt.number, [type(room.receive(timeout_s=TIMEOUT_S)) for _ in range(2)]

        number, kinds = await asyncio.to_thread(bid)
        assert kinds == [auction.Opened, auction.Bid]
        assert number == seller.entries[-1].number


@pytest.mark.parametrize(
    ("twin", "counterpart"),
    [(games.Play, game.Play), (conferences.Meeting, conference.Meeting), (auctions.Room, auction.Room)],
)
def test_synchronous_twin_has_all_public_members(twin: type, counterpart: type) -> None:
    inherited = [*counterpart.__mro__[: counterpart.__mro__.index(AppSession) + 1], ItemReader]
    members = {each for kind in inherited for each in vars(kind) if not each.startswith("_")}
    assert members - {"aclose", *OF_RUNTIMES} <= {*dir(twin), "channel"}
