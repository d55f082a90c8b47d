"""A runtime for one peer with a manual clock and connections that only record: the test plays all other peers."""

import heapq
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from broadloom.protocol import ChannelName, Peer, Tuning
from broadloom.protocol.events import Batch, Event, Message, Missed
from broadloom.protocol.identity import Identity
from broadloom.protocol.runtime import ConnectionHandler
from broadloom.wire import Address, Broadcast, PeerId, PeerInfo, decode, encode
from broadloom.wire.broadcast_frame import BROADCAST, decode_broadcast, encode_broadcast
from broadloom.wire.codec import WireMessage, number_of
from broadloom.wire.exchange_messages import MAGIC, VERSION, Hello, LinkRequest, LinkResponse
from broadloom.wire.link_messages import Digest
from broadloom.wire.types import AuthorState

CHANNEL = ChannelName("test", "fabric").id
ME = 1000
NO_TIMEOUT = Tuning(heartbeat_timeout_s=1e9)
"""Silent neighbors are never timed out, so tests need not send heartbeats."""

Sendable = WireMessage | Broadcast | bytes
W = TypeVar("W", bound=WireMessage)


def peer_info(peer_id: PeerId) -> PeerInfo:
    return PeerInfo(peer_id, Address(f"host-{peer_id}", 4000))


def hello(peer_id: PeerId, *, has_position: bool = True, signed: bool = False) -> Hello:
    return Hello(MAGIC, VERSION, CHANNEL, peer_id, peer_info(peer_id).address, has_position, signed)


def frame_of(message: Sendable) -> bytes:
    if isinstance(message, bytes):
        return message
    return encode_broadcast(message) if isinstance(message, Broadcast) else encode(message)


def digest(
    authors: tuple[AuthorState, ...] = (),
    peer_sample: tuple[PeerInfo, ...] = (),
    *,
    is_new: bool = False,
    is_complete: bool = False,
) -> Digest:
    return Digest(is_new, is_complete, authors, peer_sample)


EMPTY_DIGEST = digest()


def digest_of(*authors: tuple[int, int, int], idle_ms: int = 0) -> Digest:
    """A digest of (author, stream_start, last_contiguous)."""
    return digest(tuple(AuthorState(*each, idle_ms) for each in authors))


def broadcast_of(author: int, sequence: int, stream_start: int = 1, *, age_ms: int = 0, hops: int = 2) -> Broadcast:
    return Broadcast(author, sequence, stream_start, (b"%d" % sequence,), hops=hops, age_ms=age_ms)


class FakeTimer:
    def __init__(self, callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.callback = callback
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeConnection:
    """The peer's end of a connection. It records what the peer sends, and the test plays the remote side."""

    handler: ConnectionHandler

    def __init__(self, address: Address | None = None) -> None:
        self.address = address
        """The dialed address; None for an incoming connection."""
        self.sent: list[bytes] = []
        self.closed = False
        self.identity: Identity | None = None
        self.queued_bytes = 0
        self.is_congested = False
        self.is_paused = False

    def send(self, frame: bytes, rest: memoryview | None = None) -> None:
        if not self.closed:
            self.sent.append(frame if rest is None else b"".join((frame, rest)))

    def send_now(self, frame: bytes) -> bool:
        if self.is_congested or self.closed:
            return False
        self.send(frame)
        return True

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    # -- the remote side acts

    def remote_accepts(self) -> None:
        if not self.closed:
            self.handler.on_open()

    def remote_sends(self, *messages: Sendable) -> None:
        for message in messages:
            if not self.closed:
                self.handler.on_frame(frame_of(message))

    def remote_closes(self) -> None:
        if not self.closed:
            self.closed = True
            self.handler.on_disconnect()

    # -- the remote side received

    def sent_messages(self, kind: type[W]) -> list[W]:
        decoded = [decode(frame) for frame in self.sent if number_of(frame) != BROADCAST]
        return [message for message in decoded if isinstance(message, kind)]

    def broadcast_frames(self) -> list[bytes]:
        return [frame for frame in self.sent if number_of(frame) == BROADCAST]

    def broadcasts(self) -> list[Broadcast]:
        return [decode_broadcast(frame) for frame in self.broadcast_frames()]

    def broadcast_ids(self) -> list[tuple[PeerId, int]]:
        return [(each.author, each.sequence) for each in self.broadcasts()]


class FakeRuntime:
    START_TIME_S = 1_700_000_000.0

    def __init__(self, seed: int = 1) -> None:
        self.random = Random(seed)
        self.time = 0.0
        self.dialed: list[FakeConnection] = []
        self.delivered: list[Message] = []
        self.reported_missed: list[Missed] = []
        self.events: list[Event] = []
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._count = 0

    def now(self) -> float:
        return self.time

    def wall_time_s(self) -> float:
        return self.START_TIME_S + self.time

    def dial(self, address: Address, handler: ConnectionHandler) -> FakeConnection:
        connection = FakeConnection(address)
        connection.handler = handler
        self.dialed.append(connection)
        return connection

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> FakeTimer:
        timer = FakeTimer(callback, args)
        self._count += 1
        heapq.heappush(self._timers, (self.time + delay_s, self._count, timer))
        return timer

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Every message is handled on its own."""
        callback()

    def deliver(self, batch: Batch) -> None:
        self.delivered.extend(batch)

    def report_missed(self, missed: Missed) -> None:
        self.reported_missed.append(missed)

    def emit(self, event: Event) -> None:
        self.events.append(event)

    # -- for the test

    def advance(self, seconds: float) -> None:
        """Let time pass and run the timers that are due."""
        end = self.time + seconds
        while self._timers and self._timers[0][0] <= end:
            self.time, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                timer.callback(*timer.args)
        self.time = end

    @property
    def pending_timers(self) -> int:
        return sum(not timer.cancelled for _, _, timer in self._timers)

    def delivered_ids(self) -> list[tuple[PeerId, int]]:
        return [(message.author, message.sequence) for message in self.delivered]


class Cable:
    """Joins the connections of two peers: frames are carried one at a time, when the test says so."""

    def __init__(self, near: FakeConnection, responder: Peer) -> None:
        self.ends = near, FakeConnection()
        self._carried = [0, 0]
        responder.on_accept(self.ends[1])
        near.remote_accepts()

    def carry(self, end: int) -> bool:
        """Deliver the next frame of this end, or that it closed; False if there is nothing to deliver."""
        here, there = self.ends[end], self.ends[1 - end]
        if there.closed:
            return False
        if self._carried[end] < len(here.sent):
            self._carried[end] += 1
            there.remote_sends(here.sent[self._carried[end] - 1])
            return True
        if here.closed:
            there.remote_closes()
            return True
        return False

    def carry_all(self) -> None:
        while self.carry(0) or self.carry(1):
            pass


def seeker(runtime: FakeRuntime, settings: Tuning = NO_TIMEOUT, peer_id: PeerId = ME) -> Peer:
    """A peer that has started and is still discovering."""
    peer = Peer(runtime, peer_info(peer_id), CHANNEL, (), settings)
    peer.start()
    return peer


def creator(runtime: FakeRuntime, settings: Tuning = NO_TIMEOUT, peer_id: PeerId = ME) -> Peer:
    """A connected peer without neighbors."""
    peer = seeker(runtime, settings, peer_id)
    peer.create_channel()
    return peer


def open_exchange(peer: Peer, *messages: Sendable) -> FakeConnection:
    """A remote peer dials and sends these messages."""
    connection = FakeConnection()
    peer.on_accept(connection)
    connection.remote_sends(*messages)
    return connection


def link(peer: Peer, peer_id: PeerId, first_digest: Digest | None = EMPTY_DIGEST) -> FakeConnection:
    """A remote peer becomes a neighbor; its digest is empty by default."""
    connection = open_exchange(peer, hello(peer_id), LinkRequest())
    assert connection.sent_messages(LinkResponse), "the link was rejected"
    if first_digest is not None:
        connection.remote_sends(first_digest)
    return connection
