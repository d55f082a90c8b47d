"""The floor: asyncio TCP and a length before each message, from the sender straight to every receiver.

No Python program that takes its messages one by one out of sockets does it with less: nobody relays, nothing is
retained, repaired or reconnected. It is no usable system, but shows how far above the least possible the others are.
"""

import asyncio
import struct
from collections.abc import Sequence
from typing import cast

from bench.process_config import HOST, BaseNode

LENGTH = struct.Struct("<I")
BATCH_BYTES = 1 << 16
WRITE_BUFFER_BYTES = 1 << 22


class Link(asyncio.Protocol):
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._deliver_many = node.delivery_check.deliver_many
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        writable = cast(asyncio.WriteTransport, transport)  # uvloop's own kind is none of asyncio's
        writable.set_write_buffer_limits(WRITE_BUFFER_BYTES)
        self._node.transports.append(writable)

    def pause_writing(self) -> None:
        self._node.full_links += 1
        self._node.writable.clear()

    def resume_writing(self) -> None:
        self._node.full_links -= 1
        if not self._node.full_links:
            self._node.writable.set()

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
        self.writable = asyncio.Event()
        self.writable.set()
        self._batch: list[bytes] = []
        self._batch_bytes = 0

    async def connect(self, earlier: Sequence[str]) -> str:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Link(self), HOST, self.config.port)
        for author in self.config.authors:
            if author < len(earlier):
                await loop.create_connection(lambda: Link(self), HOST, self.config.ports[author])
        return f"{HOST}:{self.config.port}"

    async def publish(self, payload: bytes) -> None:
        self._batch += (LENGTH.pack(len(payload)), payload)
        self._batch_bytes += len(payload)
        if self._batch_bytes >= BATCH_BYTES:
            await self.flush()

    async def flush(self) -> None:
        data = b"".join(self._batch)
        self._batch, self._batch_bytes = [], 0
        for transport in self.transports:
            transport.write(data)
        if self.full_links:
            await self.writable.wait()
