"""The participants of the design review on these pages.

On a local cluster every window is a participant of its own, with a peer of its own. On another channel the server is
one participant, whose ticket or name it has, and its windows share it.
"""

import asyncio
from contextlib import AsyncExitStack

import broadloom
from broadloom.apps.conference import ConferenceError, Meeting
from broadloom.channel.closable import close_all
from broadloom.web.own_peer import JOIN_TIMEOUT_S, OwnPeer

SEATS_MAX = 24
"""Windows that take part at the same time: each has a peer of its own."""
NAME_MAX = 40


class ReviewSeats:
    def __init__(self, own_peer: OwnPeer) -> None:
        self._own_peer = own_peer
        self._seats: dict[str, AsyncExitStack] = {}
        """By window."""
        self._shared: Meeting | None = None
        self._shared_stack = AsyncExitStack()
        self._joining = asyncio.Lock()
        self._is_closed = False

    @property
    def is_available(self) -> bool:
        return self._own_peer.is_available

    @property
    def asks_for_name(self) -> bool:
        """Whether each window has a name of its own."""
        return self._own_peer.cluster is not None

    async def join(self, window: str, name: str) -> Meeting:
        """Raises as `broadloom.connect`."""
        cluster = self._own_peer.cluster
        if cluster is None:
            async with self._joining:
                if self._is_closed:
                    raise ConferenceError("the server ends: open the page again later")
                if self._shared is None or self._shared.is_ended:
                    await self._shared_stack.aclose()
                    meeting = Meeting(await self._own_peer.channel())
                    self._shared = await self._shared_stack.enter_async_context(meeting)
                return self._shared
        if window in self._seats:
            raise ConferenceError("this window takes part already")
        if len(self._seats) >= SEATS_MAX:
            raise ConferenceError(f"at most {SEATS_MAX} windows can take part: close one")
        seat = self._seats[window] = AsyncExitStack()
        try:
            async with AsyncExitStack() as joining:
                connection = broadloom.connect(
                    cluster.channel, bootstrap=cluster.bootstrap(), name=name[:NAME_MAX], timeout_s=JOIN_TIMEOUT_S
                )
                meeting = Meeting(await joining.enter_async_context(connection))
                await joining.enter_async_context(meeting)
                if self._seats.get(window) is not seat:
                    raise ConferenceError("the window was closed before it had joined")
                seat.push_async_exit(joining.pop_all().__aexit__)
                return meeting
        except BaseException:
            if self._seats.get(window) is seat:
                del self._seats[window]
            raise

    async def leave(self, window: str) -> None:
        stack = self._seats.pop(window, None)
        if stack is not None:
            await stack.aclose()

    async def close(self) -> None:
        async with self._joining:
            self._is_closed = True
        try:
            await close_all(*map(self.leave, list(self._seats)))
        finally:
            await self._shared_stack.aclose()
