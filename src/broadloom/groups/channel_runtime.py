"""`ChannelRuntime`: groups over a real channel, with asyncio, the real clock and a send queue.

Outgoing messages go through the queue. When the channel is congested, history waits first, then `send`; receiving never
waits.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from broadloom.errors import BroadloomError, NotConnectedError
from broadloom.groups.codec import LAYER
from broadloom.groups.runtime import SUSPECT_REASONS
from broadloom.protocol.events import Batch, LinkDown, Missed, PeerState, StateChanged

if TYPE_CHECKING:
    from broadloom.channel import Channel, ChannelEvent
    from broadloom.groups.model import GroupEvent, GroupMessage
    from broadloom.groups.participant import Participant
    from broadloom.groups.proofs import PostSigner
    from broadloom.protocol.runtime import Timer

log = logging.getLogger("broadloom")

HISTORY_PAUSE_BYTES = 128 << 10
"""Above this queue size, history waits."""
SEND_PAUSE_BYTES = 1 << 20
"""Above this queue size, `send` waits."""
MISSED_DELAY_S = 1.0
"""Missed messages are collected for this long before the groups request them."""


class ChannelRuntime:
    def __init__(
        self,
        channel: "Channel",
        deliver: "Callable[[GroupMessage], None]",
        emit: "Callable[[GroupEvent], None]",
        on_left: Callable[[], None],
    ) -> None:
        channel._check_loop()
        self._channel = channel
        self._layer = channel.layer(LAYER, self._on_batch)
        self.deliver = deliver
        self.emit = emit
        self._on_left = on_left
        self.random = Random()
        self._loop = asyncio.get_running_loop()
        self._queue: deque[bytes] = deque()
        self.queued_bytes = 0
        self._wakeup = asyncio.Event()
        self._window_open = asyncio.Event()
        self._window_open.set()
        self._pump_task: asyncio.Task[None] | None = None
        self._participant: Participant | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._missed_timer: asyncio.TimerHandle | None = None
        self.unsent_count = 0
        """Messages not sent because the channel was disconnected. History exchange brings them to the others later."""

    def attach(self, participant: "Participant") -> None:
        self._participant = participant
        self._pump_task = self._loop.create_task(self._pump())
        self._unsubscribe = self._channel.on_event(self._on_event)

    async def close(self) -> None:
        """Waits until the queue is sent."""
        self._participant = None
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._missed_timer is not None:
            self._missed_timer.cancel()
        if self._pump_task is not None:
            self._queue.append(b"")  # ends the pump
            self._wakeup.set()
            await self._pump_task
        self._layer.close()

    # -- called by the participant

    @property
    def peer_id(self) -> int:
        return self._channel.peer_id

    @property
    def is_congested(self) -> bool:
        return self.queued_bytes > HISTORY_PAUSE_BYTES

    @property
    def known_peer_count(self) -> int | None:
        return self._channel._full_mesh_size

    @property
    def post_signer(self) -> "PostSigner | None":
        return self._channel._post_signer

    def verified_name(self, peer_id: int) -> str:
        identity = self._channel.identity(peer_id)
        return identity.name if identity is not None else ""

    def now(self) -> float:
        return self._loop.time()

    def wall_time_s(self) -> float:
        return time.time()

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> "Timer":
        return self._loop.call_later(delay_s, self._run, callback, args)

    def _run(self, callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self._participant is not None:
            callback(*args)

    def broadcast(self, data: bytes) -> None:
        self._queue.append(data)
        self.queued_bytes += len(data)
        if self.queued_bytes > SEND_PAUSE_BYTES:
            self._window_open.clear()
        self._wakeup.set()

    async def wait_for_window(self) -> None:
        self._channel._check_loop()
        await self._window_open.wait()

    async def _pump(self) -> None:
        while True:
            while self._queue:
                data = self._queue.popleft()
                if not data:
                    return
                try:
                    await self._layer.broadcast(data)
                except NotConnectedError:
                    self.unsent_count += 1
                except BroadloomError as problem:
                    self.unsent_count += 1
                    log.warning("%s: a group message was not sent: %s", self._channel.name, problem)
                self.queued_bytes -= len(data)
                if self.queued_bytes < SEND_PAUSE_BYTES:
                    self._window_open.set()
            self._wakeup.clear()
            await self._wakeup.wait()

    # -- called by the channel

    def _on_batch(self, batch: Batch) -> None:
        for data in batch.data:
            if self._participant is not None:
                self._participant.on_message(batch.author, data)

    def _on_event(self, event: "ChannelEvent") -> None:
        participant = self._participant
        if participant is None:
            return
        if isinstance(event, LinkDown) and event.reason in SUSPECT_REASONS:
            participant.on_neighbor_lost(event.neighbor.peer_id)
        elif isinstance(event, Missed) or (isinstance(event, StateChanged) and event.state is PeerState.CONNECTED):
            if self._missed_timer is None:
                self._missed_timer = self._loop.call_later(MISSED_DELAY_S, self._on_missed)
        elif isinstance(event, StateChanged) and event.state is PeerState.LEFT:
            self._on_left()

    def _on_missed(self) -> None:
        self._missed_timer = None
        if self._participant is not None:
            self._participant.on_missed()
