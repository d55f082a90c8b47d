"""The server's own peer on the live channel, shared by all pages that take part in it, and the base of its clients."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from broadloom.web.error_messages import describe_error

if TYPE_CHECKING:
    from broadloom.channel import Channel
    from broadloom.testing.cluster.cluster import LocalCluster

JOIN_TIMEOUT_S = 60.0


class OwnPeer:
    """The channel that the server has joined; of a cluster, it joins when the first page needs it."""

    def __init__(
        self,
        *,
        cluster: "LocalCluster | None" = None,
        channel: "Channel | None" = None,
        on_joined: Callable[[int], None],
    ) -> None:
        self.cluster = cluster
        self._channel = channel
        self._on_joined = on_joined
        self._stack = AsyncExitStack()
        self._joining = asyncio.Lock()

    @property
    def is_available(self) -> bool:
        return self.cluster is not None or self._channel is not None

    async def channel(self) -> "Channel":
        """Raises as `broadloom.connect`."""
        async with self._joining:
            if self._channel is None:
                import broadloom

                assert self.cluster is not None, "there is nothing to join"
                connection = broadloom.connect(
                    self.cluster.channel, bootstrap=self.cluster.bootstrap(), timeout_s=JOIN_TIMEOUT_S
                )
                self._channel = await self._stack.enter_async_context(connection)
                self._on_joined(self._channel.peer_id)
            return self._channel

    def join_options(self) -> str:
        """Options with which a command joins the same channel from another terminal."""
        if self.cluster is None:
            return ""
        return "".join(f" --bootstrap {address}" for address in self.cluster.bootstrap()[:1])

    async def close(self) -> None:
        await self._stack.aclose()


class PageClient(ABC):
    """The server's part in a layer or application, shared by all open pages. Created once; `start_joining` joins when
    the first page needs it."""

    def __init__(self) -> None:
        self.problem = ""
        """Why the last attempt to join failed."""
        self._stack = AsyncExitStack()
        self._join_task: asyncio.Task[None] | None = None

    @property
    @abstractmethod
    def is_joined(self) -> bool: ...

    @abstractmethod
    async def _join(self) -> None: ...

    def start_joining(self) -> None:
        """Join, unless that has succeeded or is under way."""
        if not self.is_joined and (self._join_task is None or self._join_task.done()):
            self.problem = ""
            self._join_task = asyncio.create_task(self._try_to_join())

    async def _try_to_join(self) -> None:
        try:
            await self._join()
        except Exception as problem:
            self.problem = describe_error(problem)

    async def close(self) -> None:
        if self._join_task is not None:
            self._join_task.cancel()
            await asyncio.gather(self._join_task, return_exceptions=True)
        await self._stack.aclose()
