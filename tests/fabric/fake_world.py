"""A world for one peer, with a clock turned by hand and lines that only record: the test plays everyone else."""

import heapq
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from weft.fabric import ChannelName, Peer, Settings
from weft.fabric.events import Batch, Event, Message, Missed
from weft.fabric.seal import Identity
from weft.fabric.world import LineOwner
from weft.wire import Address, Broadcast, Contact, PeerId, decode, encode
from weft.wire.broadcast import BROADCAST, decode_broadcast, encode_broadcast
from weft.wire.calls import MAGIC, VERSION, Hello, PortAnswer, PortRequest
from weft.wire.codec import Message as WireMessage
from weft.wire.codec import number_of
from weft.wire.links import Greeting
from weft.wire.types import Have

CHANNEL = ChannelName("test", "fabric").id
ME = 1000
PATIENT = Settings(silence_s=1e9)
"""Neighbours may be silent for ever: the test need not play their heartbeats."""

Said = WireMessage | Broadcast | bytes
W = TypeVar("W", bound=WireMessage)


def contact(name: PeerId) -> Contact:
    return Contact(name, Address(f"host-{name}", 4000))


def hello(name: PeerId, *, settled: bool = True, signed: bool = False) -> Hello:
    return Hello(MAGIC, VERSION, CHANNEL, name, contact(name).address, settled, signed)


def frame_of(said: Said) -> bytes:
    if isinstance(said, bytes):
        return said
    return encode_broadcast(said) if isinstance(said, Broadcast) else encode(said)


def greeting(
    have: tuple[Have, ...] = (), sample: tuple[Contact, ...] = (), *, fresh: bool = False, complete: bool = False
) -> Greeting:
    return Greeting(fresh, complete, have, sample)


NOTHING = greeting()


def has(*have: tuple[int, int, int], silent_ms: int = 0) -> Greeting:
    """A greeting that says: of this author, from the start of its run up to this mark."""
    return greeting(tuple(Have(*each, silent_ms) for each in have))


def said(author: int, sequence: int, run_start: int = 1, *, age_ms: int = 0, hops: int = 2) -> Broadcast:
    return Broadcast(author, sequence, run_start, (b"%d" % sequence,), hops=hops, age_ms=age_ms)


class FakeTimer:
    def __init__(self, act: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.act = act
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeLine:
    """The peer's end of a line. What the peer sends stays here; what it hears, the test says."""

    owner: LineOwner

    def __init__(self, address: Address | None = None) -> None:
        self.address = address
        """What was dialled; None if it was the other side that called."""
        self.sent: list[bytes] = []
        self.closed = False
        self.identity: Identity | None = None
        self.queued_bytes = 0
        self.is_full = False

    def send(self, frame: bytes, rest: memoryview | None = None) -> None:
        if not self.closed:
            self.sent.append(frame if rest is None else b"".join((frame, rest)))

    def close(self) -> None:
        self.closed = True

    # -- what the other side does

    def opens(self) -> None:
        if not self.closed:
            self.owner.on_open()

    def says(self, *all_said: Said) -> None:
        for said in all_said:
            if not self.closed:
                self.owner.on_frame(frame_of(said))

    def hangs_up(self) -> None:
        if not self.closed:
            self.closed = True
            self.owner.on_lost()

    # -- what the other side heard

    def heard(self, kind: type[W]) -> list[W]:
        """All messages of one kind."""
        decoded = [decode(frame) for frame in self.sent if number_of(frame) != BROADCAST]
        return [message for message in decoded if isinstance(message, kind)]

    def copies(self) -> list[bytes]:
        """The frames of all broadcasts."""
        return [frame for frame in self.sent if number_of(frame) == BROADCAST]

    def broadcasts(self) -> list[Broadcast]:
        return [decode_broadcast(frame) for frame in self.copies()]

    def names(self) -> list[tuple[PeerId, int]]:
        """Author and sequence of all broadcasts."""
        return [(each.author, each.sequence) for each in self.broadcasts()]


class FakeWorld:
    def __init__(self, seed: int = 1) -> None:
        self.random = Random(seed)
        self.time = 0.0
        self.dialled: list[FakeLine] = []
        self.delivered: list[Message] = []
        self.told_missed: list[Missed] = []
        self.events: list[Event] = []
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._count = 0

    def now(self) -> float:
        return self.time

    def dial(self, address: Address, owner: LineOwner) -> FakeLine:
        line = FakeLine(address)
        line.owner = owner
        self.dialled.append(line)
        return line

    def after(self, delay_s: float, act: Callable[..., None], *args: Any) -> FakeTimer:
        timer = FakeTimer(act, args)
        self._count += 1
        heapq.heappush(self._timers, (self.time + delay_s, self._count, timer))
        return timer

    def soon(self, act: Callable[[], None]) -> None:
        """Every message is a turn of its own."""
        act()

    def deliver(self, batch: Batch) -> None:
        self.delivered.extend(batch)

    def missed(self, missed: Missed) -> None:
        self.told_missed.append(missed)

    def observe(self, event: Event) -> None:
        self.events.append(event)

    # -- for the test

    def run(self, seconds: float) -> None:
        """Let so much time pass, and all that was planned for it happen."""
        end = self.time + seconds
        while self._timers and self._timers[0][0] <= end:
            self.time, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                timer.act(*timer.args)
        self.time = end

    @property
    def planned(self) -> int:
        """Timers that would still do something."""
        return sum(not timer.cancelled for _, _, timer in self._timers)

    def names(self) -> list[tuple[PeerId, int]]:
        """Author and sequence of all that was delivered."""
        return [(message.author, message.sequence) for message in self.delivered]


class Cable:
    """Two peers' lines made one: frames are carried from end to end one by one, when the test says so."""

    def __init__(self, near: FakeLine, called: Peer) -> None:
        """The called peer answers a line that another one dialled."""
        self.ends = near, FakeLine()
        self._carried = [0, 0]
        called.on_call(self.ends[1])
        near.opens()

    def carry(self, end: int) -> bool:
        """The next thing that this end sent reaches the other: a frame, or that it hung up. False if there is none."""
        here, there = self.ends[end], self.ends[1 - end]
        if there.closed:
            return False
        if self._carried[end] < len(here.sent):
            self._carried[end] += 1
            there.says(here.sent[self._carried[end] - 1])
            return True
        if here.closed:
            there.hangs_up()
            return True
        return False

    def carry_all(self) -> None:
        while self.carry(0) or self.carry(1):
            pass


def seeker(world: FakeWorld, settings: Settings = PATIENT, name: PeerId = ME) -> Peer:
    """A peer that has started and found nobody yet."""
    peer = Peer(world, contact(name), CHANNEL, (), settings)
    peer.start()
    return peer


def founder(world: FakeWorld, settings: Settings = PATIENT, name: PeerId = ME) -> Peer:
    """A connected peer, so far alone."""
    peer = seeker(world, settings, name)
    peer.found_channel()
    return peer


def call(peer: Peer, *said: Said) -> FakeLine:
    """Somebody dials the peer and says this."""
    line = FakeLine()
    peer.on_call(line)
    line.says(*said)
    return line


def link(peer: Peer, name: PeerId, first_words: Greeting | None = NOTHING) -> FakeLine:
    """A peer of this name becomes a neighbour and, unless told otherwise, says that it has nothing."""
    line = call(peer, hello(name), PortRequest())
    assert line.heard(PortAnswer), "the link was refused"
    if first_words is not None:
        line.says(first_words)
    return line
