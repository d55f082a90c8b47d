"""The sending half of a channel: small messages, large ones in parts, files.

An author that is too fast waits here, before anything is said. It asks once for every few kilobytes, not for every
message: a small message costs little more than its place in the open bundle.
"""

import asyncio
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broadloom.channel.fragments import FRAGMENT_BYTES, fragment
from broadloom.errors import MessageTooLargeError, NotConnectedError, NotPermittedError
from broadloom.protocol import PeerState
from broadloom.protocol.identity import Role
from broadloom.transport import TcpNode
from broadloom.wire.broadcast_frame import PRIORITY_MAX, PayloadKind, Priority
from broadloom.wire.file_payload import encode_file

GRANTED_BYTES = 4 << 10
"""Who may speak may say so much before it looks again whether it has to wait."""
MESSAGE_COST_BYTES = 64
"""What a message counts for, beside its data."""
YIELD_BYTES = 128 << 10
"""After so much was broadcast, others get a turn of the event loop: who speaks without end, and perhaps to nobody, must
not keep its own process from everything else."""
TTL_MS_MAX = 0xFFFFFFFF


class Sender(ABC):
    """What `Channel` is on its sending side."""

    def __init__(self, node: TcpNode) -> None:
        self._node = node
        self._granted = 0
        """Bytes that may be said without a further look."""
        self._sent_since_yield = 0
        """Bytes said since others had a turn."""
        self._fragmented_count = 0

    async def broadcast(self, data: bytes, *, priority: int = Priority.NORMAL, ttl_s: float | None = None) -> int:
        """Send to all members; returns this message's number among our own. Waits if our links are behind.

        - `priority`: when a member cannot keep up, it is spared the messages of lower priority first.
        - `lifetime_s`: who has not got it by then is told that it missed it, instead.
        """
        cost = len(data) + MESSAGE_COST_BYTES
        if cost > self._granted:
            if len(data) > FRAGMENT_BYTES:
                return await self._broadcast_large(data, PayloadKind.DATA, priority, ttl_s)
            await self._reserve(cost)
        self._granted -= cost
        return self.broadcast_nowait(data, priority=priority, ttl_s=ttl_s)

    def broadcast_nowait(self, data: bytes, *, priority: int = Priority.NORMAL, ttl_s: float | None = None) -> int:
        """The same at once, however far the links are behind: for callbacks, and for those who send little."""
        if not isinstance(data, bytes):
            data = _as_bytes(data)
        ttl_ms = 0 if ttl_s is None else _milliseconds(ttl_s)
        if len(data) <= FRAGMENT_BYTES:
            return self._send(data, PayloadKind.DATA, priority, ttl_ms)
        self._check_size(len(data))
        at_once_max = self._node.settings.retention_bytes_max // 2
        if len(data) > at_once_max:
            raise MessageTooLargeError(
                f"{len(data)} bytes at once, at most {at_once_max} are possible; `await broadcast` sends more"
            )
        self._fragmented_count += 1
        sequence = 0
        for part in fragment(self._fragmented_count, data, PayloadKind.DATA):
            sequence = self._send(part, PayloadKind.FRAGMENT, priority, ttl_ms)
        return sequence

    async def broadcast_text(self, text: str) -> int:
        """Send text, as UTF-8; read it with `message.text`."""
        return await self.broadcast(text.encode())

    async def broadcast_json(self, value: Any) -> int:
        """Send anything that JSON can say; read it with `message.json()`."""
        return await self.broadcast(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())

    async def broadcast_file(
        self,
        path: str | os.PathLike[str],
        *,
        priority: int = Priority.NORMAL,
        ttl_s: float | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Send a file, with its name and a hash that receivers check: they find it in `message.file`. `progress` is
        called with the bytes sent so far and in all."""
        path = Path(path)
        self._check_size(path.stat().st_size)  # before it is read
        name = os.fsencode(path.name).decode(errors="replace")  # names of files are bytes, which may be no text
        data = await asyncio.to_thread(lambda: encode_file(name, path.read_bytes()))
        on_sent = (lambda done: on_progress(done, len(data))) if on_progress is not None else None
        return await self._broadcast_large(data, PayloadKind.FILE, priority, ttl_s, on_sent)

    async def _broadcast_large(
        self,
        data: bytes,
        kind: PayloadKind,
        priority: int,
        ttl_s: float | None,
        on_sent: Callable[[int], None] | None = None,
    ) -> int:
        """In parts; whatever else is said meanwhile goes between them."""
        if not isinstance(data, bytes):
            data = _as_bytes(data)
        self._check_size(len(data))
        ttl_ms = 0 if ttl_s is None else _milliseconds(ttl_s)
        self._fragmented_count += 1
        sequence = done = 0
        for part in fragment(self._fragmented_count, data, kind):
            await self._wait_for_window(len(part))
            sequence = self._send(part, PayloadKind.FRAGMENT, priority, ttl_ms)
            done = min(done + FRAGMENT_BYTES, len(data))
            if on_sent is not None:
                on_sent(done)
            await asyncio.sleep(0)
        return sequence

    async def _reserve(self, cost: int) -> None:
        """For as much as this, and a little more."""
        wanted = max(cost, GRANTED_BYTES)
        await self._wait_for_window(wanted)
        self._granted = wanted
        self._sent_since_yield += wanted
        if self._sent_since_yield > YIELD_BYTES:
            self._sent_since_yield = 0
            await asyncio.sleep(0)

    async def _wait_for_window(self, size: int) -> None:
        """Wait until we may say so much."""
        flow = self._node.flow
        if flow.must_wait:
            await flow.drain()
        flow.rate_limiter.consume(size)

    def _send(self, data: bytes, kind: PayloadKind, priority: int, ttl_ms: int) -> int:
        peer = self._node.peer
        if peer.state is not PeerState.CONNECTED:
            raise NotConnectedError(self._not_connected_message())
        credentials = self._node.credentials
        if credentials is not None and credentials.identity.role is not Role.PRODUCER:
            raise NotPermittedError(
                "this ticket is for a consumer, who may only listen; ask the channel's owner for another"
            )
        if not 0 <= priority <= PRIORITY_MAX:
            raise ValueError(f"priority={priority}: a priority is a number from 0 to {PRIORITY_MAX}")
        return peer.broadcaster.broadcast(data, kind, priority, ttl_ms)

    def _check_size(self, size: int) -> None:
        limit = self._node.settings.message_bytes_max
        if size > limit:
            raise MessageTooLargeError(
                f"a message of {size:,} bytes, at most {limit:,} are possible: ChannelSettings.message_bytes_max"
            )

    @abstractmethod
    def _not_connected_message(self) -> str: ...


def _milliseconds(ttl_s: float) -> int:
    if not ttl_s > 0:
        raise ValueError(f"ttl_s={ttl_s}: a message lives for more than 0 seconds; None means for ever")
    return max(1, round(min(ttl_s * 1000, TTL_MS_MAX)))


def _as_bytes(data: Any) -> bytes:
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"a message is bytes, not {type(data).__name__}; use broadcast_text or broadcast_json")
