"""A real channel as a medium: asyncio, the real clock, and a queue in front of the channel.

What a member says goes through the queue, so that a channel that is behind holds up the member's history first, and
then its own `send`, and never its hearing.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from weft.channel import NotConnected, WeftError
from weft.fabric.events import Batch, LinkDown, Missed, StateChanged, Why
from weft.fabric.state import State
from weft.groups.codec import is_ours

if TYPE_CHECKING:
    from weft.channel import Channel, ChannelEvent
    from weft.fabric.events import Message as ChannelMessage
    from weft.groups.events import GroupEvent
    from weft.groups.medium import Timer
    from weft.groups.names import Message
    from weft.groups.participant import Participant

log = logging.getLogger("weft")

BUSY_BYTES = 128 << 10
"""With more than this in the queue, history waits."""
FULL_BYTES = 1 << 20
"""With more than this, `send` waits."""
MISSED_S = 1.0
"""What the channel missed is gathered for so long before we ask the groups for it."""
WITHOUT_A_WORD = (Why.LOST, Why.SILENT)


class ChannelMedium:
    """Made by `groups`. Tells the application through the callables it is given."""

    def __init__(
        self,
        channel: "Channel",
        deliver: "Callable[[Message], None]",
        tell: "Callable[[GroupEvent], None]",
        on_other: "Callable[[ChannelMessage], None] | None",
        on_left: Callable[[], None],
    ) -> None:
        self._channel = channel
        self.deliver = deliver
        self.tell = tell
        self._on_other = on_other
        self._on_left = on_left
        self.random = Random()
        self._loop = asyncio.get_running_loop()
        self._queue: deque[bytes] = deque()
        self.queued_bytes = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._pump_task: asyncio.Task[None] | None = None
        self._participant: Participant | None = None
        self._end_events: Callable[[], None] | None = None
        self._missed_timer: asyncio.TimerHandle | None = None
        self.others = 0
        """Messages of the channel that are no group's, and that nobody wanted to have."""
        self.unsent = 0
        """Said while the channel was not connected; the others learn it when we are back."""

    def serve(self, participant: "Participant") -> None:
        self._participant = participant
        self._pump_task = self._loop.create_task(self._pump())
        self._end_events = self._channel.on_event(self._on_event)
        self._channel.on_batch(self._on_batch)

    async def close(self) -> None:
        """What was said goes out first."""
        self._participant = None
        if self._end_events is not None:
            self._end_events()
            self._channel.on_batch(None)
        if self._missed_timer is not None:
            self._missed_timer.cancel()
        if self._pump_task is not None:
            self._queue.append(b"")
            self._news.set()
            await self._pump_task

    # -- what a member may do

    @property
    def me(self) -> int:
        return self._channel.peer

    @property
    def is_busy(self) -> bool:
        return self.queued_bytes > BUSY_BYTES

    @property
    def few(self) -> int | None:
        return self._channel.few

    def proven_name(self, peer: int) -> str:
        identity = self._channel.identity(peer)
        return identity.name if identity is not None else ""

    def now(self) -> float:
        return self._loop.time()

    def wall_s(self) -> float:
        return time.time()

    def after(self, delay_s: float, act: Callable[..., None], *args: Any) -> "Timer":
        return self._loop.call_later(delay_s, self._run, act, args)

    def _run(self, act: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self._participant is not None:
            act(*args)

    def broadcast(self, data: bytes) -> None:
        self._queue.append(data)
        self.queued_bytes += len(data)
        if self.queued_bytes > FULL_BYTES:
            self._room.clear()
        self._news.set()

    async def room(self) -> None:
        """Wait until more may be said."""
        await self._room.wait()

    async def _pump(self) -> None:
        while True:
            while self._queue:
                data = self._queue.popleft()
                if not data:
                    return
                try:
                    await self._channel.broadcast(data)
                except NotConnected:
                    self.unsent += 1
                except WeftError as problem:
                    self.unsent += 1
                    log.warning("%s: %s", self._channel.name, problem)
                self.queued_bytes -= len(data)
                if self.queued_bytes < FULL_BYTES:
                    self._room.set()
            self._news.clear()
            await self._news.wait()

    # -- told by the channel

    def _on_batch(self, batch: Batch) -> None:
        for message in batch:
            if is_ours(message.data):
                if self._participant is not None:
                    self._participant.on_message(message.author, message.data)
            elif self._on_other is not None:
                self._on_other(message)
            else:
                self.others += 1

    def _on_event(self, event: "ChannelEvent") -> None:
        participant = self._participant
        if participant is None:
            return
        if isinstance(event, LinkDown) and event.why in WITHOUT_A_WORD:
            participant.on_neighbour_lost(event.neighbour.peer)
        elif isinstance(event, Missed) or (isinstance(event, StateChanged) and event.state is State.CONNECTED):
            if self._missed_timer is None:
                self._missed_timer = self._loop.call_later(MISSED_S, self._on_missed)
        elif isinstance(event, StateChanged) and event.state is State.LEFT:
            self._on_left()

    def _on_missed(self) -> None:
        self._missed_timer = None
        if self._participant is not None:
            self._participant.on_missed()
