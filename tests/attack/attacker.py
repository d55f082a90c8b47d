"""Somebody who does not keep to the rules: one line to a victim, over which any bytes can be sent.

A stranger comes with nothing, a hostile member with its own `Membership`. TLS is done in memory on top of plain TCP, so
that an attacker may also spoil what is below TLS. Knows the wire format and nothing of the fabric.
"""

import asyncio
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar, cast

from weft.net.tls import Tls
from weft.security import Membership
from weft.wire import Address, Broadcast, Splitter, WireError, decode, encode
from weft.wire.broadcast import BROADCAST, decode_broadcast, encode_broadcast, said
from weft.wire.calls import MAGIC, VERSION, Hello, PortAnswer, PortRequest
from weft.wire.codec import Message, number_of
from weft.wire.links import Credential, Greeting

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket

M = TypeVar("M")

NOWHERE = Address("127.0.0.1", 1)
"""Where an attacker claims to listen: nobody answers there."""
ANSWER_S = 5.0
READ_BYTES = 1 << 16


class Attacker:
    """One line. Reads by itself and remembers what it heard, unless it is deaf."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        membership: Membership | None,
        channel_id: bytes,
    ) -> None:
        self._reader, self._writer = reader, writer
        self.membership = membership
        self.channel_id = channel_id
        self.tls = Tls(membership.client_context, membership.server_name) if membership is not None else None
        self.peer = membership.peer if membership is not None else 0xBAD0_0000_0000_0001
        self.heard: list[Message | Broadcast] = []
        self.frames: list[bytes] = []
        self.read_bytes = 0
        self._news = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self.is_closed = False
        """The victim has hung up."""

    @classmethod
    async def dial(
        cls,
        address: str,
        membership: Membership | None = None,
        *,
        channel_id: bytes = bytes(16),
        source: str = "127.0.0.1",
        deaf: bool = False,
    ) -> "Attacker":
        """Up to the end of the handshake, if there is a membership; ssl.SSLError if it fails at this end."""
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
        made = cls(reader, writer, membership, channel_id)
        try:
            if made.tls is not None:
                async with asyncio.timeout(ANSWER_S):
                    await made._shake_hands(made.tls)
        except BaseException:
            made.close()
            raise
        if not deaf:
            made.listen()
        return made

    async def _shake_hands(self, tls: Tls) -> None:
        while not tls.shake_hands():
            self.raw(tls.outgoing())
            data = await self._reader.read(READ_BYTES)
            if not data:
                raise ssl.SSLError("hung up in the handshake")
            tls.take(data)
        self.raw(tls.outgoing())

    def listen(self) -> None:
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        splitter = Splitter()
        with suppress(OSError, ssl.SSLError, WireError):
            while data := await self._reader.read(READ_BYTES):
                self.read_bytes += len(data)
                if self.tls is not None:
                    self.tls.take(data)
                    data = self.tls.decrypted()
                for frame in splitter.feed(data):
                    self.frames.append(frame)
                    self.heard.append(decode_broadcast(frame) if number_of(frame) == BROADCAST else decode(frame))
                self._news.set()
        self.is_closed = True
        self._news.set()

    # -- saying things

    def raw(self, data: bytes) -> None:
        """Bytes below TLS. A line that was hung up on swallows them."""
        if data and not self._writer.is_closing():
            self._writer.write(data)

    def send(self, *said: Message | Broadcast | bytes) -> None:
        """Messages, or bytes in place of messages."""
        data = b"".join(_frame_of(each) for each in said)
        self.raw(data if self.tls is None else self.tls.encrypted(data))

    def hello(self, *, peer: int | None = None, channel_id: bytes | None = None, signed: bool = False) -> Hello:
        return Hello(
            MAGIC,
            VERSION,
            self.channel_id if channel_id is None else channel_id,
            self.peer if peer is None else peer,
            NOWHERE,
            settled=True,
            signed=signed,
        )

    async def become_neighbour(self, greeting: Greeting | None = None, *, signed: bool = False) -> None:
        """By the ordinary way: asks for a link and greets."""
        self.send(self.hello(signed=signed), PortRequest())
        await self.until(PortAnswer)
        self.send(greeting or Greeting(fresh=False, complete=False, have=(), sample=()))
        await self.until(Greeting)

    def credential(self) -> Credential:
        assert self.membership is not None
        return Credential(self.peer, self.membership.seal.credential)

    def signed(self, message: Broadcast) -> Broadcast:
        """With our own signature, whosever name it bears."""
        assert self.membership is not None
        seal = self.membership.seal
        return message._replace(signature=seal.sign(self.channel_id + said(encode_broadcast(message))))

    # -- hearing things

    async def until(self, kind: type[M] | tuple[type[M], ...], within_s: float | None = None) -> M:
        """The first message of this kind; fails if the victim hangs up before."""
        async with asyncio.timeout(within_s or ANSWER_S):
            while True:
                for each in self.heard:
                    if isinstance(each, kind):
                        return each
                assert not self.is_closed, f"hung up before {kind}; heard {self.heard}"
                self._news.clear()
                await self._news.wait()

    async def until_closed(self, within_s: float | None = None) -> None:
        async with asyncio.timeout(within_s or ANSWER_S):
            while not self.is_closed:
                self._news.clear()
                await self._news.wait()

    async def drained(self) -> None:
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


def _frame_of(each: Message | Broadcast | bytes) -> bytes:
    if isinstance(each, bytes):
        return each
    return encode_broadcast(each) if isinstance(each, Broadcast) else encode(each)
