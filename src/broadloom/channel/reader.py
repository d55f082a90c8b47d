"""Reading an inbox: one message at a time, by iterating, or in batches. Shared by `Channel` and `Subscription`."""

import asyncio
from collections.abc import AsyncGenerator, Callable

from broadloom.channel.arguments import check_timeout
from broadloom.channel.inbox import Inbox
from broadloom.channel.loop_bound import LoopBound
from broadloom.errors import InboxOverflowError
from broadloom.protocol.events import Batch, Message


class Reader(LoopBound):
    """Something with an inbox that a program reads."""

    name: str
    _inbox: Inbox
    _has_overflowed = False
    _was_read = False
    """Whether the program has ever read from here."""
    _is_in_hand = False
    """The program has taken a message and not yet asked for the next one."""
    _when_between: Callable[[], None] | None = None
    """Called when it asks for the next one."""

    @property
    def has_overflowed(self) -> bool:
        """Whether reading ended because this program did not read in time (`overflow="leave"`)."""
        return self._has_overflowed

    @property
    def unread_count(self) -> int:
        """Number of messages in the inbox."""
        return len(self._inbox)

    def receive_nowait(self) -> Message | None:
        """The next message, or None if the inbox is empty. Raises `InboxOverflowError` after an overflow."""
        self._check_loop()
        self._was_read = True
        if self._when_between is not None:
            self._call_between()
        message = self._inbox.take()
        self._is_in_hand = message is not None
        if message is None and self._has_overflowed:
            raise InboxOverflowError(self._end_message())
        return message

    def _call_between(self) -> None:
        callback, self._when_between, self._is_in_hand = self._when_between, None, False
        if callback is not None:
            callback()

    async def receive(self, timeout_s: float | None = None) -> Message:
        """The next message. Raises `TimeoutError`, `NotConnectedError` if the channel was left, or
        `InboxOverflowError`."""
        check_timeout(timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                while (message := self.receive_nowait()) is None:
                    if self._inbox.is_closed:
                        raise self._end_error()
                    await self._inbox.wait()
        except TimeoutError:
            raise TimeoutError(f"{self.name}: no message within {timeout_s:g} s") from None
        return message

    def __aiter__(self) -> AsyncGenerator[Message, None]:
        return self._messages()

    async def _messages(self) -> AsyncGenerator[Message, None]:
        while True:
            message = self.receive_nowait()
            if message is not None:
                yield message
            elif self._inbox.is_closed:
                return
            else:
                await self._inbox.wait()

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Messages in batches, as they arrived, until the channel is left: the fastest way to read a busy channel."""
        self._was_read = True
        while True:
            self._check_loop()
            if self._when_between is not None:
                self._call_between()
            batch = self._inbox.take_batch()
            self._is_in_hand = batch is not None
            if batch is not None:
                yield batch
            elif self._has_overflowed:
                raise InboxOverflowError(self._end_message())
            elif self._inbox.is_closed:
                return
            else:
                await self._inbox.wait()
