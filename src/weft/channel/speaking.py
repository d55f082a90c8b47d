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

from weft.channel.errors import NotAllowed, NotConnected, TooLarge
from weft.channel.large import PART_BYTES, parts_of
from weft.fabric import State
from weft.fabric.seal import Role
from weft.net import Node
from weft.wire.broadcast import PRIORITY_MAX, Kind, Priority
from weft.wire.files import encode_file

GRANTED_BYTES = 4 << 10
"""Who may speak may say so much before it looks again whether it has to wait."""
MESSAGE_COST_BYTES = 64
"""What a message counts for, beside its data."""
TURN_BYTES = 128 << 10
"""After so much was broadcast, others get a turn of the event loop: who speaks without end, and perhaps to nobody, must
not keep its own process from everything else."""
LIFETIME_MS_MAX = 0xFFFFFFFF


class Speaking(ABC):
    """What `Channel` is on its sending side."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._granted = 0
        """Bytes that may be said without a further look."""
        self._in_turn = 0
        """Bytes said since others had a turn."""
        self._large_sent = 0

    async def broadcast(self, data: bytes, *, priority: int = Priority.NORMAL, lifetime_s: float | None = None) -> int:
        """Send to all members; returns this message's number among our own. Waits if our links are behind.

        - `priority`: when a member cannot keep up, it is spared the messages of lower priority first.
        - `lifetime_s`: who has not got it by then is told that it missed it, instead.
        """
        cost = len(data) + MESSAGE_COST_BYTES
        if cost > self._granted:
            if len(data) > PART_BYTES:
                return await self._broadcast_large(data, Kind.DATA, priority, lifetime_s)
            await self._ask(cost)
        self._granted -= cost
        return self.broadcast_nowait(data, priority=priority, lifetime_s=lifetime_s)

    def broadcast_nowait(self, data: bytes, *, priority: int = Priority.NORMAL, lifetime_s: float | None = None) -> int:
        """The same at once, however far the links are behind: for callbacks, and for those who send little."""
        if not isinstance(data, bytes):
            data = _as_bytes(data)
        lifetime_ms = 0 if lifetime_s is None else _milliseconds(lifetime_s)
        if len(data) <= PART_BYTES:
            return self._say(data, Kind.DATA, priority, lifetime_ms)
        self._check_size(len(data))
        at_once_max = self._node.settings.retention_bytes_max // 2
        if len(data) > at_once_max:
            raise TooLarge(
                f"{len(data)} bytes at once, at most {at_once_max} are possible; `await broadcast` sends more"
            )
        self._large_sent += 1
        sequence = 0
        for part in parts_of(self._large_sent, data, Kind.DATA):
            sequence = self._say(part, Kind.PART, priority, lifetime_ms)
        return sequence

    async def broadcast_text(self, text: str) -> int:
        """Send text, as UTF-8; read it with `message.text`."""
        return await self.broadcast(text.encode())

    async def broadcast_json(self, value: Any) -> int:
        """Send anything that JSON can say; read it with `message.json()`."""
        return await self.broadcast(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())

    async def send_file(
        self,
        path: str | os.PathLike[str],
        *,
        priority: int = Priority.NORMAL,
        lifetime_s: float | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Send a file, with its name and a hash that receivers check: they find it in `message.file`. `progress` is
        called with the bytes sent so far and in all."""
        path = Path(path)
        self._check_size(path.stat().st_size)  # before it is read
        name = os.fsencode(path.name).decode(errors="replace")  # names of files are bytes, which may be no text
        data = await asyncio.to_thread(lambda: encode_file(name, path.read_bytes()))
        told = (lambda done: progress(done, len(data))) if progress is not None else None
        return await self._broadcast_large(data, Kind.FILE, priority, lifetime_s, told)

    async def _broadcast_large(
        self,
        data: bytes,
        kind: Kind,
        priority: int,
        lifetime_s: float | None,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """In parts; whatever else is said meanwhile goes between them."""
        if not isinstance(data, bytes):
            data = _as_bytes(data)
        self._check_size(len(data))
        lifetime_ms = 0 if lifetime_s is None else _milliseconds(lifetime_s)
        self._large_sent += 1
        sequence = done = 0
        for part in parts_of(self._large_sent, data, kind):
            await self._may_speak(len(part))
            sequence = self._say(part, Kind.PART, priority, lifetime_ms)
            done = min(done + PART_BYTES, len(data))
            if progress is not None:
                progress(done)
            await asyncio.sleep(0)
        return sequence

    async def _ask(self, cost: int) -> None:
        """For as much as this, and a little more."""
        wanted = max(cost, GRANTED_BYTES)
        await self._may_speak(wanted)
        self._granted = wanted
        self._in_turn += wanted
        if self._in_turn > TURN_BYTES:
            self._in_turn = 0
            await asyncio.sleep(0)

    async def _may_speak(self, size: int) -> None:
        """Wait until we may say so much."""
        flow = self._node.flow
        if flow.must_wait:
            await flow.drained()
        flow.pace.spend(size)

    def _say(self, data: bytes, kind: Kind, priority: int, lifetime_ms: int) -> int:
        peer = self._node.peer
        if peer.state is not State.CONNECTED:
            raise NotConnected(self._why_not_connected())
        membership = self._node.membership
        if membership is not None and membership.identity.role is not Role.PRODUCER:
            raise NotAllowed("this ticket is for a consumer, who may only listen; ask the channel's owner for another")
        if not 0 <= priority <= PRIORITY_MAX:
            raise ValueError(f"priority={priority}: a priority is a number from 0 to {PRIORITY_MAX}")
        return peer.stream.broadcast(data, kind, priority, lifetime_ms)

    def _check_size(self, size: int) -> None:
        most = self._node.settings.message_bytes_max
        if size > most:
            raise TooLarge(f"a message of {size:,} bytes, at most {most:,} are possible: Settings.message_bytes_max")

    @abstractmethod
    def _why_not_connected(self) -> str: ...


def _milliseconds(lifetime_s: float) -> int:
    if not lifetime_s > 0:
        raise ValueError(f"lifetime_s={lifetime_s}: a message lives for more than 0 seconds; None means for ever")
    return max(1, round(min(lifetime_s * 1000, LIFETIME_MS_MAX)))


def _as_bytes(data: Any) -> bytes:
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"a message is bytes, not {type(data).__name__}; use broadcast_text or broadcast_json")
