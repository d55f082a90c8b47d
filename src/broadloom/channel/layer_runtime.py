"""`LayerRuntime`: what the sans-IO core of a layer gets from a channel: clock, timers, tasks, events and a send queue.

Broadcasts go through the queue, so that they keep their order while the channel is congested. They do not pass the
filter of the channel: the layer filters what the application gives it (`FilteredSender._filter_content`). Receiving
never waits. After `close`, nothing reaches the core any more.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from broadloom.errors import BroadloomError, NotConnectedError
from broadloom.protocol.events import Batch, PeerState, StateChanged
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.channel.channel import Channel, ChannelEvent
    from broadloom.protocol.runtime import Observer, Timer

log = logging.getLogger("broadloom")

PAUSE_BYTES = 1 << 20
"""Above this size of the send queue, `wait_for_window` waits."""


class LayerRuntime(ABC):
    _drain_timeout_s: float | None = None
    """How long `close` waits until the queue is sent; None as long as it takes."""

    def __init__(self, channel: "Channel", mark: str, on_left: Callable[[], None]) -> None:
        channel._check_loop()
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._layer = channel.layer(mark, self._on_batch)
        self._layer._filters_content = True
        self._on_left = on_left
        self._is_open = False
        self._queue: deque[bytes | asyncio.Future[None]] = deque()
        """What is to be sent, and marks that are resolved when everything before them is sent."""
        self.queued_bytes = 0
        self._queue_filled = asyncio.Event()
        self._window_open = asyncio.Event()
        self._window_open.set()
        self._pump_task: asyncio.Task[None] | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._unsubscribe: Callable[[], None] | None = None

    def _open(self) -> None:
        """The core is ready."""
        self._is_open = True
        self._pump_task = self._loop.create_task(self._pump())
        self._unsubscribe = self._channel.on_event(self._on_channel_event)

    async def close(self) -> None:
        """Waits until the queue is sent, at most `_drain_timeout_s`: what is left then is dropped."""
        self._is_open = False
        if self._unsubscribe is not None:
            self._unsubscribe()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._pump_task is not None:
            try:
                async with asyncio.timeout(self._drain_timeout_s):
                    await self._wait_until_sent()
            except TimeoutError:
                log.warning(
                    "%s: layer %s: %d bytes were not sent in time",
                    self._channel.name,
                    self._layer.mark,
                    self.queued_bytes,
                )
            finally:
                self._window_open.set()  # nobody waits for what is not sent any more
                self._pump_task.cancel()
            await asyncio.gather(self._pump_task, return_exceptions=True)
        self._layer.close()

    async def _wait_until_sent(self) -> None:
        """Until what is in the queue now is sent, or cannot be sent any more."""
        if self._pump_task is not None:
            mark = self._loop.create_future()
            self._queue.append(mark)
            self._queue_filled.set()
            await asyncio.wait((mark, self._pump_task), return_when=asyncio.FIRST_COMPLETED)

    # -- called by the core

    @property
    def peer_id(self) -> PeerId:
        return self._channel.peer_id

    @property
    def observer(self) -> "Observer | None":
        """Who records the channel."""
        return self._channel._observer

    def now(self) -> float:
        return self._loop.time()

    def wall_time_s(self) -> float:
        return time.time()

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> "Timer":
        return self._loop.call_later(delay_s, self._run, callback, args)

    def _run(self, callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self._is_open:
            callback(*args)

    def broadcast(self, data: bytes) -> None:
        self._queue.append(data)
        self.queued_bytes += len(data)
        if self.queued_bytes > PAUSE_BYTES:
            self._window_open.clear()
        self._queue_filled.set()

    @property
    def is_congested(self) -> bool:
        return not self._window_open.is_set()

    async def wait_for_window(self) -> None:
        self._channel._check_loop()
        await self._window_open.wait()

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Cancelled by `close`."""
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda task: self._tasks.pop(task, None))
        return task

    async def _pump(self) -> None:
        while True:
            while self._queue:
                data = self._queue.popleft()
                if isinstance(data, asyncio.Future):
                    data.set_result(None)
                    continue
                try:
                    await self._layer.broadcast(data)
                except BroadloomError as problem:
                    if not isinstance(problem, NotConnectedError):
                        log.warning("%s: layer %s: not sent: %s", self._channel.name, self._layer.mark, problem)
                self.queued_bytes -= len(data)
                if self.queued_bytes < PAUSE_BYTES:
                    self._window_open.set()
            self._queue_filled.clear()
            await self._queue_filled.wait()

    # -- called by the channel

    def _on_batch(self, batch: Batch) -> None:
        for data in batch.data:
            if self._is_open:
                self._on_message(batch.author, data)

    def _on_channel_event(self, event: "ChannelEvent") -> None:
        self._on_event(event)
        if isinstance(event, StateChanged) and event.state is PeerState.LEFT:
            self._on_left()

    @abstractmethod
    def _on_message(self, author: PeerId, data: bytes) -> None: ...

    @abstractmethod
    def _on_event(self, event: "ChannelEvent") -> None: ...
