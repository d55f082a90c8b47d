"""Browser windows in games: none leaves a player behind."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import broadloom
from broadloom.channel import Channel
from broadloom.web.game_client import GameClient, GameWindow
from broadloom.web.own_peer import OwnPeer
from broadloom.web.sources import Sources
from tests.channel.joined import QUICK, connected_channels
from tests.support import TIMEOUT_S, eventually


@asynccontextmanager
async def joined_client(gate: asyncio.Event) -> AsyncIterator[GameClient]:
    """A client with one game, whose channel can be joined when the gate is open."""

    @asynccontextmanager
    async def connect(name: str) -> AsyncIterator[Channel]:
        await gate.wait()
        async with broadloom.connect(name, tls=False, settings=QUICK) as joined:
            yield joined

    async with connected_channels(1) as (channel,):
        client = GameClient(OwnPeer(channel=channel, on_joined=lambda _peer: None), connect)
        client.start_joining()
        await eventually(lambda: client.lobby is not None, "the lobby")
        assert client.lobby is not None
        await client.lobby.register("maze", "gems", 2)
        try:
            yield client
        finally:
            await client.close()


async def test_window_that_is_closed_while_it_enters_a_game_leaves_no_player() -> None:
    gate = asyncio.Event()
    async with joined_client(gate) as client:
        window = GameWindow(client)
        entering = asyncio.create_task(window.enter("maze", "Anna"))
        await asyncio.sleep(0)
        await window.close()
        gate.set()
        assert not await entering
        assert (window.entered, client._open_plays) == (None, {})


async def test_double_click_enters_a_game_once_and_the_monitor_reports_its_player(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broadloom.apps.game.monitor.POLL_S", 0.01)
    gate = asyncio.Event()
    gate.set()
    async with joined_client(gate) as client:
        window = GameWindow(client)
        entered = await asyncio.gather(window.enter("maze", "Anna"), window.enter("maze", "Anna"))
        assert tuple(entered) == (True, False)
        assert list(client._open_plays) == [window.entered]
        lobby = client.lobby
        assert lobby is not None
        players = {"red": "Anna", "blue": ""}
        await eventually(lambda: getattr(lobby.activity("maze"), "players", None) == players, "a report")
        await window.close()
        assert not client._open_plays


async def fail() -> None:
    raise RuntimeError("a fault")


async def test_lobby_and_other_players_are_left_if_one_player_cannot_leave() -> None:
    gate = asyncio.Event()
    gate.set()
    async with joined_client(gate) as client:
        windows = [GameWindow(client) for _ in range(2)]
        plays = []
        for window, player in zip(windows, ("Anna", "Ben"), strict=True):
            await window.enter("maze", player)
            assert window.entered is not None
            plays.append(window.entered.play)
        assert windows[0].entered is not None
        windows[0].entered._stack.push_async_callback(fail)
        left: list[str] = []
        client._stack.callback(left.append, "lobby")
        with pytest.raises(RuntimeError, match="a fault"):
            await client.close()
        assert [each.is_ended for each in plays] == [True, True]
        assert left == ["lobby"]


async def test_own_peer_leaves_after_all_clients_if_one_of_them_cannot_be_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[str] = []
    sources, can_close = Sources(), asyncio.Event()

    async def close_group() -> None:
        await can_close.wait()
        closed.append("group")

    async def close_switch() -> None:
        can_close.set()
        await fail()

    async def close_own_peer() -> None:
        closed.append("own peer")

    monkeypatch.setattr(sources.group_client, "close", close_group)
    monkeypatch.setattr(sources.switch_client, "close", close_switch)
    monkeypatch.setattr(sources.own_peer, "close", close_own_peer)
    with pytest.raises(RuntimeError, match="a fault"):
        await sources.close()
    assert closed == ["group", "own peer"]


async def test_players_of_all_windows_leave_at_once() -> None:
    gate = asyncio.Event()
    gate.set()
    async with joined_client(gate) as client:
        windows = [GameWindow(client) for _ in range(3)]
        everyone = asyncio.Barrier(len(windows))
        for window, player in zip(windows, ("Anna", "Ben", ""), strict=True):
            await window.enter("maze", player)
            assert window.entered is not None
            window.entered._stack.push_async_callback(everyone.wait)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await client.close()
        finally:
            await everyone.abort()  # if they leave one after another
        assert not client._open_plays
