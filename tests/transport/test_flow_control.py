"""Flow control: when an author waits, for how long, and which neighbors are dropped."""

import asyncio
from uuid import uuid4

import pytest

from broadloom.protocol import ChannelName, ChannelSettings, PeerState, Tuning
from broadloom.protocol.events import LinkDownReason, Missed
from broadloom.security import PeerCredentials
from broadloom.transport import BootstrapHosts, TcpNode
from broadloom.transport.connection import TRANSPORT_HIGH_WATER_BYTES, TcpConnection
from broadloom.transport.limits import Limits, TcpTuning
from tests.support import eventually
from tests.transport.connections import (
    KEY,
    PeerlessNode,
    RecordingHandler,
    each_loop,
    each_mode,
    frame,
    ignore,
    nodes,
    pair,
)

SMALL = TcpTuning(
    send_queue_bytes_max=4 << 20, limits=Limits(high_water_bytes=64 << 10, stall_timeout_s=0.3, close_timeout_s=0.5)
)
KERNEL_BYTES = 16 << 20
"""More than two loopback sockets buffer."""


async def connected_pair(here: PeerlessNode, there: PeerlessNode) -> tuple[TcpConnection, TcpConnection]:
    """A connection and its other end."""
    count, handler = len(there.accepted), RecordingHandler()
    connection = here.dial(there.address, handler)
    await eventually(lambda: handler.open_count and len(there.accepted) > count)
    return connection, there.accepted[-1]


async def fill_queues(*connections: TcpConnection) -> None:
    """Send until the data stays in the queue because the other ends do not read."""
    for _ in range(10 * KERNEL_BYTES >> 16):
        if all(line.is_above_high_water for line in connections):
            return
        for connection in connections:
            if not connection.is_above_high_water:
                connection.send(frame(1 << 16))
        await asyncio.sleep(0)
    raise AssertionError("it takes everything")


@each_loop
@each_mode
async def test_connection_over_send_queue_limit_is_dropped_and_freed(tls: bool) -> None:
    async with pair(tls=tls, settings=SMALL) as ends:
        ends.far_node.pause_reading()
        await fill_queues(ends.near)
        held = ends.near.queued_bytes
        assert held > SMALL.limits.high_water_bytes
        for number in range(SMALL.send_queue_bytes_max >> 16):
            ends.near.send(frame(1 << 16, number))
        assert ends.near_handler.overflows == 0, "not reported within `send`"
        await eventually(lambda: ends.near_handler.overflows)
        ends.near.send(frame(1 << 16))
        ends.near.close()
        await eventually(lambda: not ends.near_node.connections)
        assert ends.near.queued_bytes == 0
        assert ends.near_handler.overflows == 1
        assert not ends.near_handler.disconnects
        assert not ends.near_node.flow.must_wait
        ends.far_node.resume_reading()
        await eventually(lambda: ends.far_handler.disconnects)


@each_loop
@each_mode
async def test_author_waits_for_slow_neighbor(tls: bool) -> None:
    async with pair(tls=tls, settings=TcpTuning(limits=Limits(high_water_bytes=64 << 10))) as ends:
        assert not ends.near_node.flow.must_wait
        ends.far_node.pause_reading()
        await fill_queues(ends.near)
        assert ends.near_node.flow.must_wait
        waiting = asyncio.ensure_future(ends.near_node.flow.drain())
        await asyncio.wait([waiting], timeout=0.1)
        assert not waiting.done()
        ends.far_node.resume_reading()
        async with asyncio.timeout(10):
            await waiting
        assert not ends.near_node.flow.must_wait
        count = len(ends.far_handler.frames)
        await eventually(lambda: ends.near.queued_bytes == 0)
        assert count <= len(ends.far_handler.frames)


@each_loop
@each_mode
async def test_stalled_neighbor_is_dropped_after_stall_timeout(tls: bool) -> None:
    async with nodes(3, tls=tls, settings=SMALL) as (author, *others):
        lines = [(await connected_pair(author, other))[0] for other in others]
        for other in others:
            other.pause_reading()
        await fill_queues(*lines)
        started = author.now()
        assert author.flow.must_wait
        async with asyncio.timeout(10):
            await author.flow.drain()
        assert author.now() - started > SMALL.limits.stall_timeout_s * 0.9
        await eventually(lambda: not author.connections)
        assert [line.handler.overflows for line in lines if isinstance(line.handler, RecordingHandler)] == [1, 1]
        assert not author.flow.must_wait


class FakeClock:
    """Advanced by the test."""

    def __init__(self, node: PeerlessNode) -> None:
        self.time = 1000.0
        node.now = lambda: self.time  # type: ignore[method-assign]


async def budget_used_s(author: PeerlessNode, clock: FakeClock) -> float:
    """How long the author waits for its neighbors."""
    started = clock.time
    waiting = asyncio.ensure_future(author.flow.drain())
    while not waiting.done() and clock.time < started + 100:
        await asyncio.sleep(0)
        clock.time += 0.01
        author.flow._writable.set()  # makes it check the clock
    waiting.cancel()
    await asyncio.wait([waiting])
    return clock.time - started


async def test_slow_neighbor_delays_broadcast_only_for_its_budget() -> None:
    settings = TcpTuning(
        limits=Limits(stall_timeout_s=1000, slow_peer_budget_s=2, slow_peer_refill_ratio=0.1, stall_grace_s=1e9)
    )

    async with nodes(4, tls=False, settings=settings) as (author, *others):
        clock = FakeClock(author)
        slow, other, _ = [(await connected_pair(author, each))[0] for each in others]
        author.flow.on_congested(slow)
        assert author.flow.must_wait
        assert 1.9 < await budget_used_s(author, clock) < 2.5
        assert not author.flow.must_wait, "it kept us waiting for long enough"
        author.flow.on_congested(other)
        assert author.flow.must_wait, "most neighbors are congested: we may be sending too much"
        author.flow.on_writable(slow)
        assert author.flow.must_wait, "another one is waited for"
        assert 1.9 < await budget_used_s(author, clock) < 2.5
        author.flow.on_congested(slow)
        assert await budget_used_s(author, clock) > 99, "an author waits for the majority of its neighbors"
        author.flow.on_writable(other)
        assert not author.flow.must_wait


async def test_stalled_neighbor_delays_broadcast_only_for_grace_period() -> None:
    settings = TcpTuning(limits=Limits(stall_timeout_s=1000, slow_peer_budget_s=2, stall_grace_s=0.5))

    async with nodes(4, tls=False, settings=settings) as (author, *others):
        clock = FakeClock(author)
        frozen, *_ = [(await connected_pair(author, each))[0] for each in others]
        frozen.last_progress_at = clock.time
        author.flow.on_congested(frozen)
        assert author.flow.must_wait
        assert 0.4 < await budget_used_s(author, clock) < 0.7
        assert not author.flow.must_wait
        frozen.last_progress_at = clock.time
        assert author.flow.must_wait, "it takes something again, and patience is left"


async def test_slow_peer_budget_refills_up_to_its_limit() -> None:
    settings = TcpTuning(
        limits=Limits(stall_timeout_s=1000, slow_peer_budget_s=2, slow_peer_refill_ratio=0.1, stall_grace_s=1e9)
    )

    async with nodes(4, tls=False, settings=settings) as (author, *others):
        clock = FakeClock(author)
        slow, *_ = [(await connected_pair(author, each))[0] for each in others]
        author.flow.on_congested(slow)
        await budget_used_s(author, clock)
        waited = 0.0
        for _ in range(10):
            clock.time += 9
            waited += await budget_used_s(author, clock)
        assert 8 < waited < 14, "about a tenth of the time"
        clock.time += 1000
        assert 1.9 < await budget_used_s(author, clock) < 2.5, "but never more than at first"


async def test_tasks_that_wait_at_the_same_time_use_the_budget_once() -> None:
    settings = TcpTuning(
        limits=Limits(stall_timeout_s=1000, slow_peer_budget_s=2, slow_peer_refill_ratio=0.1, stall_grace_s=1e9)
    )

    async with nodes(4, tls=False, settings=settings) as (author, *others):
        clock = FakeClock(author)
        slow, *_ = [(await connected_pair(author, each))[0] for each in others]
        author.flow.on_congested(slow)
        tasks = [asyncio.ensure_future(author.flow.drain()) for _ in range(20)]
        assert 1.9 < await budget_used_s(author, clock) < 2.5
        assert -0.1 < slow.slow_peer_budget[0] <= 0
        await asyncio.wait(tasks, timeout=10)


async def test_repeated_congestion_starts_only_one_timer() -> None:
    async with pair(tls=False) as ends:
        timers = set()
        for _ in range(100):
            ends.near_node.flow.on_congested(ends.near)
            timers.add(ends.near_node.flow._timer)
            ends.near_node.flow.on_writable(ends.near)
        assert len(timers) == 1


@each_loop
@each_mode
async def test_author_does_not_wait_for_closed_connection(tls: bool) -> None:
    async with pair(tls=tls, settings=TcpTuning(limits=Limits(high_water_bytes=64 << 10, close_timeout_s=5))) as ends:
        ends.far_node.pause_reading()
        await fill_queues(ends.near)
        assert ends.near_node.flow.must_wait
        ends.near.close()
        assert not ends.near_node.flow.must_wait


@each_loop
@each_mode
async def test_closed_connection_is_aborted_when_other_end_does_not_read(tls: bool) -> None:
    async with pair(tls=tls, settings=SMALL) as ends:
        ends.far_node.pause_reading()
        await fill_queues(ends.near)
        ends.near.close()
        await eventually(lambda: not ends.near_node.connections, timeout_s=SMALL.limits.close_timeout_s + 3)
        assert not ends.near_handler.disconnects
        assert ends.near_node.handshake_counters.handshakes == 0


@each_loop
@each_mode
async def test_paused_connection_delivers_everything_after_resume(tls: bool) -> None:
    async with pair(tls=tls) as ends:
        ends.far_node.pause_reading()
        assert ends.far_node.peer.is_paused
        ends.far_node.pause_reading()
        for number in range(100):
            ends.near.send(frame(1000, number))
        ends.far.send(frame(50, 9))
        await eventually(lambda: ends.near_handler.frames == [frame(50, 9)])
        assert not ends.far_handler.frames
        ends.far_node.resume_reading()
        ends.far_node.resume_reading()
        assert not ends.far_node.peer.is_paused
        await eventually(lambda: len(ends.far_handler.frames) == 100)
        assert ends.far_handler.frames == [frame(1000, number) for number in range(100)]


@each_loop
@each_mode
async def test_paused_connection_can_be_closed_from_both_ends(tls: bool) -> None:
    async with nodes(3, tls=tls, settings=SMALL) as (here, *others):
        (one, far_one), (two, _) = [await connected_pair(here, other) for other in others]
        here.pause_reading()
        far_one.send(frame(500_000))
        far_one.close()
        two.send(frame(100, 1))
        two.close()
        await eventually(lambda: others[1].handlers[0].disconnects)
        assert others[1].handlers[0].frames == [frame(100, 1)]
        here.pause_reading()
        here.resume_reading()
        assert isinstance(one.handler, RecordingHandler)
        await eventually(lambda: not here.connections)
        assert one.handler.frames == [frame(500_000)]
        assert one.handler.disconnects == [None]


@each_loop
async def test_tls_error_on_one_connection_does_not_affect_others() -> None:
    """In one loop iteration: frames go to three peers, and one of them sends data that does not decrypt."""

    async with nodes(4, tls=True) as (here, *others):
        lines = [(await connected_pair(here, other))[0] for other in others]
        for line in lines:
            line.send(frame(100, 1))
        record = b"\x17\x03\x03\x00\x20" + bytes(32)
        lines[0].get_buffer(-1)[: len(record)] = record
        lines[0].buffer_updated(len(record))
        for line in lines:
            line.send(frame(100, 2))
        sent = [frame(100, 1), frame(100, 2)]
        await eventually(lambda: all(other.handlers[0].frames == sent for other in others[1:]))
        await eventually(lambda: others[0].handlers[0].disconnects)
        broken = lines[0].handler
        assert isinstance(broken, RecordingHandler)
        assert len(broken.disconnects) == 1
        await eventually(lambda: len(here.connections) == 2)


MISSING = 400
SIZE = 60_000


@each_mode
async def test_backlog_of_all_retained_messages_stays_within_queue_limits(tls: bool) -> None:
    """Two partitions merge; only the author has more than twenty megabytes of messages."""
    settings = Tuning(discovery_retry_s=0.1, leave_linger_s=0.05)

    channel = ChannelName("test", uuid4().hex)
    author, other = [make_node(channel, tls=tls, settings=settings) for _ in range(2)]
    got: list[bytes] = []
    missed: list[Missed] = []
    other.deliver = lambda batch: got.extend(batch.data)
    other.report_missed = missed.append
    queued = [0]

    def measure() -> None:
        queued.extend(link.queued_bytes for link in author.peer.links)

    for node in (author, other):
        await node.start()
        await eventually(lambda node=node: node.peer.state is PeerState.CONNECTED)  # type: ignore[misc]
    try:
        await eventually(lambda: len(author.peer.links) == 1)
        author.peer.broadcast(b"before")
        await eventually(lambda: got == [b"before"])
        for link in list(author.peer.links):
            link.close(LinkDownReason.CONNECTION_LOST)
        for number in range(MISSING):
            author.peer.broadcast(b"%08d" % number + bytes(SIZE))
        assert author.peer.broadcaster.retention.retained_bytes > 22 << 20
        assert len(author.peer.links) == 0, "sent before anyone was linked"
        async with asyncio.timeout(60):
            while len(got) < 1 + MISSING:
                measure()
                await asyncio.sleep(0.001)
        assert got == [b"before", *(b"%08d" % number + bytes(SIZE) for number in range(MISSING))]
        assert not missed
        assert author.peer.counters.slow_neighbors_dropped == 0
        assert max(queued) <= author.limits.high_water_bytes + TRANSPORT_HIGH_WATER_BYTES + (1 << 20)
    finally:
        for node in (author, other):
            node.abort()


def make_node(channel: ChannelName, *, tls: bool, settings: ChannelSettings) -> TcpNode:
    credentials = PeerCredentials.from_key(channel, KEY) if tls else None
    bootstrap = BootstrapHosts()
    node = TcpNode(channel, advertise_host="127.0.0.1", bootstrap=bootstrap, credentials=credentials, settings=settings)
    node.deliver = node.report_missed = node.emit = ignore
    return node


@each_loop
@pytest.mark.parametrize("size", [20_000, 65_636, 300_000])
async def test_lag_is_noticed_whatever_the_size_of_the_frames(size: int) -> None:
    """A sender is faster than a receiver that handles each frame."""
    async with pair(tls=False) as ends:
        lags: list[float] = []
        ends.far_node.flow.rate_limiter.on_lag = lambda: lags.append(1.0)  # type: ignore[method-assign]
        sent = [frame(size)] * (8_000_000 // size)
        for each in sent:
            ends.near.send(each)
        await eventually(lambda: len(ends.far_handler.frames) == len(sent))
        assert ends.far_handler.frames == sent
        assert len(lags) >= 5
