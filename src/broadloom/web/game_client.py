"""Games for the pages: the lobby and its monitor on the server's own peer, and a peer of its own for each player."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING

from broadloom.apps.game import Play
from broadloom.apps.game.lobby import Lobby, opened
from broadloom.apps.game.monitor import monitoring, reporting
from broadloom.channel.closable import close_all
from broadloom.web.own_peer import OwnPeer, PageClient

if TYPE_CHECKING:
    from broadloom.channel import Channel

Connect = Callable[[str], "AbstractAsyncContextManager[Channel]"]


class GameClient(PageClient):
    def __init__(self, own_peer: OwnPeer, connect: Connect | None = None) -> None:
        super().__init__()
        self.own_peer = own_peer
        self.lobby: Lobby | None = None
        self._connect = connect or _connect
        self._open_plays: dict[GamePlay, None] = {}

    @property
    def is_joined(self) -> bool:
        return self.lobby is not None

    async def _join(self) -> None:
        lobby = await self._stack.enter_async_context(opened(await self.own_peer.channel()))
        await self._stack.enter_async_context(monitoring(lobby, self._connect))
        self.lobby = lobby

    async def enter(self, name: str, player: str) -> "GamePlay":
        """Take part in a game with a peer of its own: as this player, or as a spectator."""
        assert self.lobby is not None
        listing = await self.lobby.find(name)
        stack = AsyncExitStack()
        try:
            channel = await stack.enter_async_context(self._connect(listing.channel))
            role = "*" if player else ""
            play = await stack.enter_async_context(Play(channel, listing.make_game(), name=player, role=role))
            await stack.enter_async_context(reporting(self.lobby, name, play))
        except BaseException:
            await stack.aclose()
            raise
        entered = GamePlay(name, play, stack, self._forget)
        self._open_plays[entered] = None
        return entered

    def _forget(self, entered: "GamePlay") -> None:
        self._open_plays.pop(entered, None)

    async def close(self) -> None:
        try:
            await close_all(*(entered.close() for entered in list(self._open_plays)))
        finally:
            await super().close()


class GamePlay:
    """One player or spectator in one game."""

    def __init__(self, name: str, play: Play, stack: AsyncExitStack, on_close: "Callable[[GamePlay], None]") -> None:
        self.name = name
        self.play = play
        self.version = 0
        self._stack = stack
        self._on_close = on_close
        play.on_event(self._on_change)

    def _on_change(self, _change: object) -> None:
        self.version += 1

    async def close(self) -> None:
        self._on_close(self)
        await self._stack.aclose()


class GameWindow:
    """One browser window: in one game at most, and in none after it was closed."""

    def __init__(self, client: GameClient) -> None:
        self.entered: GamePlay | None = None
        self._client = client
        self._entering = asyncio.Lock()
        self._is_closed = False

    async def enter(self, name: str, player: str) -> bool:
        """False if it was closed meanwhile, or is entering a game already, after a double click."""
        if self._entering.locked():
            return False
        async with self._entering:
            await self.leave()
            entered = await self._client.enter(name, player)
            if self._is_closed:
                await entered.close()
                return False
            self.entered = entered
            return True

    async def leave(self) -> None:
        entered, self.entered = self.entered, None
        if entered is not None:
            await entered.close()

    async def close(self) -> None:
        self._is_closed = True
        await self.leave()


def _connect(channel: str) -> "AbstractAsyncContextManager[Channel]":
    import broadloom

    return broadloom.connect(channel)
