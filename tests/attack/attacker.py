"""Somebody who does not keep to the rules: one line to a victim, over which any bytes can be sent.

A stranger comes with nothing, a hostile member with its own `Membership`. TLS is done in memory on top of plain TCP, so
that an attacker may also spoil what is below TLS. Knows the wire format and nothing of the fabric.
"""

import asyncio
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar, cast

from broadloom.security import PeerCredentials
from broadloom.transport.tls_stream import TlsStream
from broadloom.wire import Address, Broadcast, FrameSplitter, WireError, decode, encode
from broadloom.wire.broadcast_frame import BROADCAST, decode_broadcast, encode_broadcast, signed_part
from broadloom.wire.codec import WireMessage, number_of
from broadloom.wire.exchange_messages import MAGIC, VERSION, Hello, LinkRequest, LinkResponse
from broadloom.wire.link_messages import Credential, Digest

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket

M = TypeVar("M")

UNREACHABLE = Address("127.0.0.1", 1)
"""Where an attacker claims to listen: nobody answers there."""
RESPONSE_TIMEOUT_S = 5.0
READ_BYTES = 1 << 16


class Attacker:
    """One line. Reads by itself and remembers what it heard, unless it is deaf."""

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
        self.frames: list[bytes] = []
        self.read_bytes = 0
        self._changed = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self.is_closed = False
        """The victim has hung up."""

    @classmethod
    async def dial(
        cls,
        address: str,
        membership: PeerCredentials | None = None,
        *,
        channel_id: bytes = bytes(16),
        source: str = "127.0.0.1",
        paused: bool = False,
    ) -> "Attacker":
        """Up to the end of the handshake, if there is a membership; ssl.SSLError if it fails at this end."""
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
        made = cls(reader, writer, membership, channel_id)
        try:
            if made.tls is not None:
                async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                    await made._handshake(made.tls)
        except BaseException:
            made.close()
            raise
        if not paused:
            made.listen()
        return made

    async def _handshake(self, tls: TlsStream) -> None:
        while not tls.do_handshake():
            self.send_raw(tls.pending_output())
            data = await self._reader.read(READ_BYTES)
            if not data:
                raise ssl.SSLError("hung up in the handshake")
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

    # -- saying things

    def send_raw(self, data: bytes) -> None:
        """Bytes below TLS. A line that was hung up on swallows them."""
        if data and not self._writer.is_closing():
            self._writer.write(data)

    def send(self, *messages: WireMessage | Broadcast | bytes) -> None:
        """Messages, or bytes in place of messages."""
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
        """By the ordinary way: asks for a link and greets."""
        self.send(self.hello(signed=signed), LinkRequest())
        await self.until(LinkResponse)
        self.send(digest or Digest(is_new=False, is_complete=False, authors=(), peer_sample=()))
        await self.until(Digest)

    def credential(self) -> Credential:
        assert self.credentials is not None
        return Credential(self.peer_id, self.credentials.signer.credential)

    def signed(self, message: Broadcast) -> Broadcast:
        """With our own signature, whosever name it bears."""
        assert self.credentials is not None
        seal = self.credentials.signer
        return message._replace(signature=seal.sign(self.channel_id + signed_part(encode_broadcast(message))))

    # -- hearing things

    async def until(self, kind: type[M] | tuple[type[M], ...], within_s: float | None = None) -> M:
        """The first message of this kind; fails if the victim hangs up before."""
        async with asyncio.timeout(within_s or RESPONSE_TIMEOUT_S):
            while True:
                for each in self.received:
                    if isinstance(each, kind):
                        return each
                assert not self.is_closed, f"hung up before {kind}; heard {self.received}"
                self._changed.clear()
                await self._changed.wait()

    async def until_closed(self, within_s: float | None = None) -> None:
        async with asyncio.timeout(within_s or RESPONSE_TIMEOUT_S):
            while not self.is_closed:
                self._changed.clear()
                await self._changed.wait()

    async def drain(self) -> None:
        """All that was said has gone to the victim's machine."""
        with suppress(OSError):
            await self._writer.drain()

    def pause_reading(self) -> None:
        """From now on nothing is taken from the line: the kernel's buffers fill, then the victim's."""
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    @property
    def socket(self) -> "TransportSocket | None":
        return cast("TransportSocket | None", self._writer.get_extra_info("socket"))

    def resume_reading(self) -> None:
        self._writer.transport.resume_reading()  # type: ignore[attr-defined]

    def close(self) -> None:
        """At once, without a word."""
        if self._reading is not None:
            self._reading.cancel()
        self._writer.transport.abort()


def _frame_of(each: WireMessage | Broadcast | bytes) -> bytes:
    if isinstance(each, bytes):
        return each
    return encode_broadcast(each) if isinstance(each, Broadcast) else encode(each)
