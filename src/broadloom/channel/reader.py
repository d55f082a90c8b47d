"""The receiving half of a channel: the inbox, and the ways to read it."""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable
from typing import Any

from broadloom.channel.arguments import check_callback, check_timeout
from broadloom.channel.inbox import Inbox
from broadloom.channel.loop_bound import LoopBound, weak
from broadloom.errors import InboxOverflowError, NotConnectedError
from broadloom.protocol.events import Batch, Message

log = logging.getLogger("broadloom")


class Reader(LoopBound):
    """The receiving side of `Channel`."""

    name: str

    def __init__(self, inbox_messages_max: int, inbox_bytes_max: int) -> None:
        self._inbox = Inbox(
            inbox_messages_max,
            inbox_bytes_max,
            on_full=weak(self._on_inbox_full),
            on_drained=weak(self._on_inbox_drained),
        )
        self._batch_callback: Callable[[Batch], None] | None = None
        self._is_calling_back = False
        """A callback of `on_message` is in the middle of a batch."""
        self._has_overflowed = False

    @property
    def has_overflowed(self) -> bool:
        """Whether the channel was left because this program did not read in time (`overflow="leave"`)."""
        return self._has_overflowed

    @property
    def unread_count(self) -> int:
        """Number of messages in the inbox."""
        return len(self._inbox)

    def receive_nowait(self) -> Message | None:
        """The next message, or None if the inbox is empty."""
        self._check_loop()
        message = self._inbox.take()
        if message is None and self._has_overflowed:
            raise InboxOverflowError(self._not_connected_message())
        return message

    async def receive(self, timeout_s: float | None = None) -> Message:
        """The next message. Raises `TimeoutError`, or `NotConnectedError` if the channel was left."""
        check_timeout(timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                while (message := self.receive_nowait()) is None:
                    if self._inbox.is_closed:
                        raise NotConnectedError(self._not_connected_message())
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
        while True:
            self._check_loop()
            batch = self._inbox.take_batch()
            if batch is not None:
                yield batch
            elif self._has_overflowed:
                raise InboxOverflowError(self._not_connected_message())
            elif self._inbox.is_closed:
                return
            else:
                await self._inbox.wait()

    def on_message(self, callback: Callable[[Message], None] | None) -> Callable[[], None]:
        """Call `callback` for each message instead of storing it in the inbox, beginning with the unread ones.

        There is one callback: a new one replaces it, and None removes it. Returns a function that removes this one.
        """
        if callback is None:
            return self.on_batch(None)
        check_callback(callback)

        def call_for_each(batch: Batch) -> None:
            read = batch.first_sequence
            self._is_calling_back = True
            try:
                for message in batch:
                    read = message.sequence
                    self._invoke(callback, message)
                    if self._batch_callback is not call_for_each:
                        break
            finally:
                self._is_calling_back = False
            if self._batch_callback is not call_for_each:  # removed or replaced: the rest is not for this callback
                self._inbox.push_front(batch.after(read))
                self.on_batch(self._batch_callback)

        return self.on_batch(call_for_each)

    def on_batch(self, callback: Callable[[Batch], None] | None) -> Callable[[], None]:
        """As `on_message`, with a whole batch at a time."""
        self._check_loop()
        if callback is not None:
            check_callback(callback)
        self._batch_callback = callback
        self._on_callbacks_changed()

        def unsubscribe() -> None:
            if self._batch_callback is callback:
                self._batch_callback = None
                self._on_callbacks_changed()

        # During a callback of `on_message` the unread messages wait for the rest of its batch.
        while not self._is_calling_back and self._batch_callback is not None:
            batch = self._inbox.take_batch()
            if batch is None:
                break
            self._invoke(self._batch_callback, batch)
        return unsubscribe

    def _dispatch(self, batch: Batch) -> None:
        if self._batch_callback is not None:
            self._invoke(self._batch_callback, batch)
        elif not self._discards_new:
            self._inbox.put(batch)

    def _invoke(self, callback: Callable[[Any], None], item: Message | Batch) -> None:
        try:
            callback(item)
        except Exception:
            log.exception("%s: the message callback failed", self.name)

    @property
    @abstractmethod
    def _discards_new(self) -> bool: ...

    @abstractmethod
    def _on_callbacks_changed(self) -> None: ...

    @abstractmethod
    def _on_inbox_full(self) -> None: ...

    @abstractmethod
    def _on_inbox_drained(self) -> None: ...
