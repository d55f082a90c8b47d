"""An attacker: one connection to a victim over which any bytes can be sent.

An outsider has no credentials, a hostile member its own. TLS runs in memory on top of plain TCP, so that an attacker
can also corrupt the bytes below TLS. It knows the wire format and nothing about the fabric.
"""

import asyncio
import ssl
from contextlib import suppress
from time import time as clock
from typing import TYPE_CHECKING, TypeVar, cast

from broadloom.security import PeerCredentials
from broadloom.transport.tls_stream import TlsStream
from broadloom.wire import Address, Broadcast, Frame, FrameSplitter, WireError, decode, encode
from broadloom.wire.broadcast_frame import BROADCAST, decode_broadcast, encode_broadcast, signed_part
from broadloom.wire.codec import WireMessage, number_of
from broadloom.wire.exchange_messages import MAGIC, VERSION, Hello, LinkRequest, LinkResponse
from broadloom.wire.link_messages import Credential, Digest

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket

M = TypeVar("M")

UNREACHABLE = Address("127.0.0.1", 1)
"""The address that an attacker advertises: nothing listens there."""
RESPONSE_TIMEOUT_S = 30.0
READ_BYTES = 1 << 16


class Attacker:
    """One connection. Reads in the background and keeps what it received, unless it is paused."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        credentials: PeerCredentials | None,
        channel_id: bytes,
    ) -> None:
        self._reader, self._writer = reader, writer
        self.credentials = credentials
        self.channel_id = channel_id
        self.tls = TlsStream(credentials.client_context, credentials.server_name) if credentials is not None else None
        self.peer_id = credentials.peer_id if credentials is not None else 0xBAD0_0000_0000_0001
        self.received: list[WireMessage | Broadcast] = []
        self.frames: list[Frame] = []
        self.read_bytes = 0
        self._changed = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self.is_closed = False
        """The victim has closed the connection."""

    @classmethod
    async def dial(
        cls,
        address: str,
        credentials: PeerCredentials | None = None,
        *,
        channel_id: bytes = bytes(16),
        source: str = "127.0.0.1",
        paused: bool = False,
    ) -> "Attacker":
        """Connect and, with credentials, finish the TLS handshake; raises ssl.SSLError if it fails at this end."""
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
        attacker = cls(reader, writer, credentials, channel_id)
        try:
            if attacker.tls is not None:
                async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                    await attacker._handshake(attacker.tls)
        except BaseException:
            attacker.close()
            raise
        if not paused:
            attacker.listen()
        return attacker

    async def _handshake(self, tls: TlsStream) -> None:
        while not tls.do_handshake():
            self.send_raw(tls.pending_output())
            data = await self._reader.read(READ_BYTES)
            if not data:
                raise ssl.SSLError("closed during the handshake")
            tls.feed(data)
        self.send_raw(tls.pending_output())

    def listen(self) -> None:
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        splitter = FrameSplitter()
        with suppress(OSError, ssl.SSLError, WireError):
            while data := await self._reader.read(READ_BYTES):
                self.read_bytes += len(data)
                if self.tls is not None:
                    self.tls.feed(data)
                    data = self.tls.decrypt()
                for frame in splitter.feed(data):
                    self.frames.append(frame)
                    self.received.append(decode_broadcast(frame) if number_of(frame) == BROADCAST else decode(frame))
                self._changed.set()
        self.is_closed = True
        self._changed.set()

    # -- sending

    def send_raw(self, data: bytes) -> None:
        """Send bytes below TLS; dropped if the connection is closing."""
        if data and not self._writer.is_closing():
            self._writer.write(data)

    def send(self, *messages: WireMessage | Broadcast | bytes) -> None:
        """Send messages, or bytes in their place."""
        data = b"".join(_frame_of(each) for each in messages)
        self.send_raw(data if self.tls is None else self.tls.encrypt(data))

    def hello(self, *, peer_id: int | None = None, channel_id: bytes | None = None, signed: bool = False) -> Hello:
        return Hello(
            MAGIC,
            VERSION,
            self.channel_id if channel_id is None else channel_id,
            self.peer_id if peer_id is None else peer_id,
            UNREACHABLE,
            has_position=True,
            signed=signed,
        )

    async def become_neighbor(self, digest: Digest | None = None, *, signed: bool = False) -> None:
        """Request a link and send a digest, like an honest peer."""
        self.send(self.hello(signed=signed), LinkRequest())
        await self.until(LinkResponse)
        self.send(digest or Digest(is_new=False, is_complete=False, authors=(), peer_sample=()))
        await self.until(Digest)

    def credential(self) -> Credential:
        assert self.credentials is not None
        return Credential(self.peer_id, self.credentials.signer.credential)

    def signed(self, message: Broadcast, sent_at: float | None = None) -> Broadcast:
        """Sign with our own key, whatever the author is."""
        assert self.credentials is not None
        signer = self.credentials.signer
        time = int(1000 * (clock() if sent_at is None else sent_at)).to_bytes(8, "big")
        part = signed_part(encode_broadcast(message))
        return message._replace(signature=time + signer.sign(self.channel_id + time + part))

    # -- receiving

    async def until(self, kind: type[M] | tuple[type[M], ...], within_s: float | None = None) -> M:
        """Wait for the first message of this kind; fails if the victim closes before."""
        async with asyncio.timeout(within_s or RESPONSE_TIMEOUT_S):
            while True:
                for each in self.received:
                    if isinstance(each, kind):
                        return each
                assert not self.is_closed, f"closed before {kind}; received {self.received}"
                self._changed.clear()
                await self._changed.wait()

    async def until_closed(self, within_s: float | None = None) -> None:
        async with asyncio.timeout(within_s or RESPONSE_TIMEOUT_S):
            while not self.is_closed:
                self._changed.clear()
                await self._changed.wait()

    async def drain(self) -> None:
        """Wait until all data is handed to the kernel."""
        with suppress(OSError):
            await self._writer.drain()

    def pause_reading(self) -> None:
        """Stop reading: the buffers of the kernel fill up, then those of the victim."""
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    @property
    def socket(self) -> "TransportSocket | None":
        return cast("TransportSocket | None", self._writer.get_extra_info("socket"))

    def resume_reading(self) -> None:
        self._writer.transport.resume_reading()  # type: ignore[attr-defined]

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._writer.transport.abort()


def _frame_of(each: WireMessage | Broadcast | bytes) -> bytes:
    if isinstance(each, bytes):
        return each
    return encode_broadcast(each) if isinstance(each, Broadcast) else encode(each)
