"""The floor: asyncio TCP and a length before each message, from the sender straight to every receiver.

No Python program that takes its messages one by one out of sockets does it with less: nobody relays, nothing is
retained, repaired or reconnected. It is no usable system, but shows how far above the least possible the others are.
"""

import asyncio
import struct
from collections.abc import Sequence
from typing import cast

from bench.part import HOST, BaseNode

LENGTH = struct.Struct("<I")
TOGETHER_BYTES = 1 << 16
WRITE_BUFFER_BYTES = 1 << 22


class Link(asyncio.Protocol):
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._deliver_many = node.tally.deliver_many
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        writable = cast(asyncio.WriteTransport, transport)  # uvloop's own kind is none of asyncio's
        writable.set_write_buffer_limits(WRITE_BUFFER_BYTES)
        self._node.transports.append(writable)

    def pause_writing(self) -> None:
        self._node.full_links += 1
        self._node.room.clear()

    def resume_writing(self) -> None:
        self._node.full_links -= 1
        if not self._node.full_links:
            self._node.room.set()

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        length_at, position, end = LENGTH.unpack_from, 0, len(data)
        payloads = []
        while position + 4 <= end:
            stop = position + 4 + length_at(data, position)[0]
            if stop > end:
                break
            payloads.append(data[position + 4 : stop])
            position = stop
        self._rest = data[position:]
        self._deliver_many(payloads)


class Node(BaseNode):
    async def prepare(self) -> None:
        self.transports: list[asyncio.WriteTransport] = []
        self.full_links = 0
        self.room = asyncio.Event()
        self.room.set()
        self._together: list[bytes] = []
        self._together_bytes = 0

    async def connect(self, earlier: Sequence[str]) -> str:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Link(self), HOST, self.part.port)
        for author in self.part.authors:
            if author < len(earlier):
                await loop.create_connection(lambda: Link(self), HOST, self.part.ports[author])
        return f"{HOST}:{self.part.port}"

    async def publish(self, payload: bytes) -> None:
        self._together += (LENGTH.pack(len(payload)), payload)
        self._together_bytes += len(payload)
        if self._together_bytes >= TOGETHER_BYTES:
            await self.flush()

    async def flush(self) -> None:
        data = b"".join(self._together)
        self._together, self._together_bytes = [], 0
        for transport in self.transports:
            transport.write(data)
        if self.full_links:
            await self.room.wait()
