"""Ends that do not keep up: who waits, for how long, and who is given up."""

import asyncio
from uuid import uuid4

from tests.net.lines import KEY, Ear, LineNode, each_kind, each_loop, frame, ignore, nodes, pair, play, until
from weft.fabric import ChannelName, Settings, State
from weft.fabric.events import Missed, Why
from weft.net import Limits, Node
from weft.net.line import TRANSPORT_HIGH_BYTES, TcpLine
from weft.security import Membership
from weft.wire import Address

SMALL = Limits(congested_bytes=64 << 10, queue_bytes_max=4 << 20, stall_s=0.3, close_s=0.5)
KERNEL_BYTES = 16 << 20
"""More than two sockets on loopback hold between them."""


async def dialled(here: LineNode, there: LineNode) -> tuple[TcpLine, TcpLine]:
    """A line, and its other end."""
    count, ear = len(there.calls), Ear()
    line = here.dial(there.address, ear)
    await until(lambda: ear.opened and len(there.calls) > count)
    return line, there.calls[-1]


async def clog(*lines: TcpLine) -> None:
    """Send until what is sent stays here, because the other ends do not read."""
    for _ in range(10 * KERNEL_BYTES >> 16):
        if all(line.is_congested for line in lines):
            return
        for line in lines:
            if not line.is_congested:
                line.send(frame(1 << 16))
        await asyncio.sleep(0)
    raise AssertionError("it takes everything")


@each_loop
@each_kind
def test_an_end_that_does_not_read_is_given_up_and_its_memory_freed(tls: bool, loop: str) -> None:
    async def main() -> None:
        async with pair(tls=tls, limits=SMALL) as ends:
            ends.far_node.stop_reading()
            await clog(ends.near)
            held = ends.near.queued_bytes
            assert held > SMALL.congested_bytes
            for number in range(SMALL.queue_bytes_max >> 16):
                ends.near.send(frame(1 << 16, number))
            assert ends.near_ear.choked == 0, "not told within `send`"
            await until(lambda: ends.near_ear.choked)
            ends.near.send(frame(1 << 16))
            ends.near.close()
            await until(lambda: not ends.near_node.lines)
            assert ends.near.queued_bytes == 0
            assert ends.near_ear.choked == 1
            assert not ends.near_ear.lost
            assert not ends.near_node.flow.must_wait
            ends.far_node.go_on_reading()
            await until(lambda: ends.far_ear.lost)

    play(main, loop)


@each_loop
@each_kind
def test_an_author_waits_for_a_slow_neighbour(tls: bool, loop: str) -> None:
    async def main() -> None:
        async with pair(tls=tls, limits=Limits(congested_bytes=64 << 10)) as ends:
            assert not ends.near_node.flow.must_wait
            ends.far_node.stop_reading()
            await clog(ends.near)
            assert ends.near_node.flow.must_wait
            waiting = asyncio.ensure_future(ends.near_node.flow.drained())
            await asyncio.wait([waiting], timeout=0.1)
            assert not waiting.done()
            ends.far_node.go_on_reading()
            async with asyncio.timeout(10):
                await waiting
            assert not ends.near_node.flow.must_wait
            count = len(ends.far_ear.frames)
            await until(lambda: ends.near.queued_bytes == 0)
            assert count <= len(ends.far_ear.frames)

    play(main, loop)


@each_loop
@each_kind
def test_one_that_takes_nothing_at_all_is_given_up(tls: bool, loop: str) -> None:
    async def main() -> None:
        async with nodes(3, tls=tls, limits=SMALL) as (author, *others):
            lines = [(await dialled(author, other))[0] for other in others]
            for other in others:
                other.stop_reading()
            await clog(*lines)
            started = author.now()
            assert author.flow.must_wait
            async with asyncio.timeout(10):
                await author.flow.drained()
            assert author.now() - started > SMALL.stall_s * 0.9
            await until(lambda: not author.lines)
            assert [line.owner.choked for line in lines if isinstance(line.owner, Ear)] == [1, 1]
            assert not author.flow.must_wait

    play(main, loop)


class Clock:
    """Turned by hand."""

    def __init__(self, node: LineNode) -> None:
        self.time = 1000.0
        node.now = lambda: self.time  # type: ignore[method-assign]


async def wait_for_patience(author: LineNode, clock: Clock) -> float:
    """The author waits for its neighbours until it does not have to; says how long."""
    started = clock.time
    waiting = asyncio.ensure_future(author.flow.drained())
    while not waiting.done() and clock.time < started + 100:
        await asyncio.sleep(0)
        clock.time += 0.01
        author.flow._relieved.set()  # it looks at its clock
    waiting.cancel()
    await asyncio.wait([waiting])
    return clock.time - started


def test_one_that_takes_little_while_the_others_are_fine_is_waited_for_only_a_while() -> None:
    limits = Limits(stall_s=1000, patience_s=2, patience_share=0.1, standstill_s=1e9)

    async def main() -> None:
        async with nodes(4, tls=False, limits=limits) as (author, *others):
            clock = Clock(author)
            slow, other, _ = [(await dialled(author, each))[0] for each in others]
            author.flow.congested(slow)
            assert author.flow.must_wait
            assert 1.9 < await wait_for_patience(author, clock) < 2.5
            assert not author.flow.must_wait, "it kept us waiting for long enough"
            author.flow.congested(other)
            assert author.flow.must_wait, "most of them are behind: perhaps it is we who send too much"
            author.flow.relieved(slow)
            assert author.flow.must_wait, "another one is waited for"
            assert 1.9 < await wait_for_patience(author, clock) < 2.5
            author.flow.congested(slow)
            assert await wait_for_patience(author, clock) > 99, "nobody goes on without most of its neighbours"
            author.flow.relieved(other)
            assert not author.flow.must_wait

    play(main)


def test_one_that_takes_nothing_at_all_is_waited_for_only_a_moment() -> None:
    limits = Limits(stall_s=1000, patience_s=2, standstill_s=0.5)

    async def main() -> None:
        async with nodes(4, tls=False, limits=limits) as (author, *others):
            clock = Clock(author)
            frozen, *_ = [(await dialled(author, each))[0] for each in others]
            frozen.taken_at = clock.time
            author.flow.congested(frozen)
            assert author.flow.must_wait
            assert 0.4 < await wait_for_patience(author, clock) < 0.7
            assert not author.flow.must_wait
            frozen.taken_at = clock.time
            assert author.flow.must_wait, "it takes something again, and patience is left"

    play(main)


def test_patience_comes_back_by_and_by_and_not_without_end() -> None:
    limits = Limits(stall_s=1000, patience_s=2, patience_share=0.1, standstill_s=1e9)

    async def main() -> None:
        async with nodes(4, tls=False, limits=limits) as (author, *others):
            clock = Clock(author)
            slow, *_ = [(await dialled(author, each))[0] for each in others]
            author.flow.congested(slow)
            await wait_for_patience(author, clock)
            waited = 0.0
            for _ in range(10):
                clock.time += 9
                waited += await wait_for_patience(author, clock)
            assert 8 < waited < 14, "about a tenth of the time"
            clock.time += 1000
            assert 1.9 < await wait_for_patience(author, clock) < 2.5, "but never more than at first"

    play(main)


def test_however_often_neighbours_fall_behind_one_timer_looks_after_them() -> None:
    async def main() -> None:
        async with pair(tls=False) as ends:
            timers = set()
            for _ in range(100):
                ends.near_node.flow.congested(ends.near)
                timers.add(ends.near_node.flow._timer)
                ends.near_node.flow.relieved(ends.near)
            assert len(timers) == 1

    play(main)


@each_loop
@each_kind
def test_nobody_waits_for_a_neighbour_that_was_hung_up_on(tls: bool, loop: str) -> None:
    async def main() -> None:
        async with pair(tls=tls, limits=Limits(congested_bytes=64 << 10, close_s=5)) as ends:
            ends.far_node.stop_reading()
            await clog(ends.near)
            assert ends.near_node.flow.must_wait
            ends.near.close()
            assert not ends.near_node.flow.must_wait

    play(main, loop)


@each_loop
@each_kind
def test_one_that_was_hung_up_on_and_does_not_read_is_broken_off(tls: bool, loop: str) -> None:
    async def main() -> None:
        async with pair(tls=tls, limits=SMALL) as ends:
            ends.far_node.stop_reading()
            await clog(ends.near)
            ends.near.close()
            await until(lambda: not ends.near_node.lines, SMALL.close_s + 3)
            assert not ends.near_ear.lost
            assert ends.near_node.refusals.handshakes == 0

    play(main, loop)


@each_loop
@each_kind
def test_who_stops_reading_hears_nothing_and_then_everything(tls: bool, loop: str) -> None:
    async def main() -> None:
        async with pair(tls=tls) as ends:
            ends.far_node.stop_reading()
            assert ends.far_node.peer.deaf
            ends.far_node.stop_reading()
            for number in range(100):
                ends.near.send(frame(1000, number))
            ends.far.send(frame(50, 9))
            await until(lambda: ends.near_ear.frames == [frame(50, 9)])
            assert not ends.far_ear.frames
            ends.far_node.go_on_reading()
            ends.far_node.go_on_reading()
            assert not ends.far_node.peer.deaf
            await until(lambda: len(ends.far_ear.frames) == 100)
            assert ends.far_ear.frames == [frame(1000, number) for number in range(100)]

    play(main, loop)


@each_loop
@each_kind
def test_who_does_not_read_can_hang_up_and_be_hung_up_on(tls: bool, loop: str) -> None:
    async def main() -> None:
        async with nodes(3, tls=tls, limits=SMALL) as (here, *others):
            (one, far_one), (two, _) = [await dialled(here, other) for other in others]
            here.stop_reading()
            far_one.send(frame(500_000))
            far_one.close()
            two.send(frame(100, 1))
            two.close()
            await until(lambda: others[1].ears[0].lost)
            assert others[1].ears[0].frames == [frame(100, 1)]
            here.stop_reading()
            here.go_on_reading()
            assert isinstance(one.owner, Ear)
            await until(lambda: not here.lines)
            assert one.owner.frames == [frame(500_000)]
            assert one.owner.lost == [None]

    play(main, loop)


@each_loop
def test_tls_that_breaks_takes_no_other_line_with_it(loop: str) -> None:
    """In one turn: something is sent to three, and one of them sends what does not decrypt."""

    async def main() -> None:
        async with nodes(4, tls=True) as (here, *others):
            lines = [(await dialled(here, other))[0] for other in others]
            for line in lines:
                line.send(frame(100, 1))
            lines[0].data_received(b"\x17\x03\x03\x00\x20" + bytes(32))
            for line in lines:
                line.send(frame(100, 2))
            sent = [frame(100, 1), frame(100, 2)]
            await until(lambda: all(other.ears[0].frames == sent for other in others[1:]))
            await until(lambda: others[0].ears[0].lost)
            broken = lines[0].owner
            assert isinstance(broken, Ear)
            assert len(broken.lost) == 1
            await until(lambda: len(here.lines) == 2)

    play(main, loop)


LACKING = 400
SIZE = 60_000


@each_kind
def test_a_neighbour_that_lacks_all_that_is_retained_gets_it_and_its_line_stays_within_limits(tls: bool) -> None:
    """Two parts of one channel meet; the author is alone with more than twenty megabytes that the others lack."""
    settings = Settings(seek_wait_s=0.1, linger_s=0.05)

    async def main() -> None:
        channel = ChannelName("test", uuid4().hex)
        author, other = [a_node(channel, tls=tls, settings=settings) for _ in range(2)]
        got: list[bytes] = []
        missed: list[Missed] = []
        other.deliver = lambda batch: got.extend(batch.data)
        other.missed = missed.append
        queued = [0]

        def measure() -> None:
            queued.extend(link.queued_bytes for link in author.peer.links)

        for node in (author, other):
            await node.start()
            await until(lambda node=node: node.peer.state is State.CONNECTED)  # type: ignore[misc]
        try:
            await until(lambda: len(author.peer.links) == 1)
            author.peer.broadcast(b"before")
            await until(lambda: got == [b"before"])
            for link in list(author.peer.links):
                link.hang_up(Why.LOST)
            for number in range(LACKING):
                author.peer.broadcast(b"%08d" % number + bytes(SIZE))
            assert author.peer.stream.retention.held_bytes > 22 << 20
            assert len(author.peer.links) == 0, "it said this to nobody"
            async with asyncio.timeout(60):
                while len(got) < 1 + LACKING:
                    measure()
                    await asyncio.sleep(0.001)
            assert got == [b"before", *(b"%08d" % number + bytes(SIZE) for number in range(LACKING))]
            assert not missed
            assert author.peer.counters.choked == 0
            assert max(queued) <= author.limits.congested_bytes + TRANSPORT_HIGH_BYTES + (1 << 20)
        finally:
            for node in (author, other):
                node.vanish()

    play(main)


def a_node(channel: ChannelName, *, tls: bool, settings: Settings) -> Node:
    membership = Membership.from_key(channel, KEY) if tls else None
    portals = (Address("127.0.0.1", 0),)
    node = Node(channel, host="127.0.0.1", portals=portals, membership=membership, settings=settings)
    node.deliver = node.missed = node.observe = ignore
    return node
