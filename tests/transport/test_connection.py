"""`TcpConnection`: whole frames in order, one write per loop iteration, one disconnect."""

import asyncio
import random
from contextlib import suppress
from typing import Any

import pytest

from broadloom.transport.connection import TcpConnection
from broadloom.transport.limits import Limits, TcpTuning
from broadloom.wire import Address, decode
from broadloom.wire.exchange_messages import Reject, RejectReason
from broadloom.wire.framing import LARGE_FRAME_BYTES_MIN
from tests.support import eventually
from tests.transport.connections import RecordingHandler, each_loop, each_mode, frame, nodes, pair, raw_connection


class CountedWrites:
    """A transport that counts its writes."""

    def __init__(self, connection: TcpConnection) -> None:
        self._transport: Any = connection._transport
        self.count = 0
        connection._transport = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self.count += 1
        self._transport.write(data)


@each_loop
@each_mode
async def test_frames_of_one_loop_iteration_go_out_in_one_write(tls: bool) -> None:
    async with pair(tls=tls) as ends:
        writes = CountedWrites(ends.near)
        for turn in range(1, 4):
            sent = [frame(20 + number, number) for number in range(100)]
            ends.far_handler.frames.clear()
            for each in sent:
                ends.near.send(each)
            assert writes.count == turn - 1, "nothing is written before the turn is over"
            await eventually(lambda sent=sent: len(ends.far_handler.frames) == len(sent))  # type: ignore[misc]
            assert ends.far_handler.frames == sent
            assert writes.count == turn


@each_loop
@each_mode
async def test_frame_sent_now_is_written_at_once_but_never_overtakes(tls: bool) -> None:
    async with pair(tls=tls) as ends:
        writes = CountedWrites(ends.near)
        sent = [frame(20 + number, number) for number in range(4)]
        assert ends.near.send_now(sent[0])
        assert writes.count == 1
        ends.near.send(sent[1])
        assert not ends.near.send_now(sent[2]), "another frame waits"
        ends.near.send(sent[2])
        await eventually(lambda: len(ends.far_handler.frames) == 3)
        assert ends.near.send_now(sent[3])
        await eventually(lambda: ends.far_handler.frames == sent)
        ends.near.pause_writing()
        assert not ends.near.send_now(sent[0]), "the other end does not read"
        ends.near.resume_writing()
        ends.near.close()
        assert not ends.near.send_now(sent[0]), "closed"


@each_loop
@each_mode
@pytest.mark.parametrize("chopped", [False, True], ids=["whole", "chopped"])
async def test_frames_of_all_sizes_arrive_whole_and_in_order(tls: bool, chopped: bool) -> None:
    chosen = random.Random(3)
    sizes = [chosen.choice([8, 9, 100, 5_000, 70_000]) for _ in range(150)] + [1 << 20, 8, 1 << 20]
    sent = [frame(size, number) for number, size in enumerate(sizes)]

    async with pair(tls=tls, fragmented=chopped) as ends:
        for number, each in enumerate(sent):
            ends.near.send(each)
            ends.far.send(each)
            if number % 10 == 0:
                await asyncio.sleep(0)
        await eventually(lambda: len(ends.far_handler.frames) == len(ends.near_handler.frames) == len(sent))
        assert ends.far_handler.frames == ends.near_handler.frames == sent
        ends.near.close()
        await eventually(lambda: ends.far_handler.disconnects)


@each_loop
@each_mode
async def test_frames_sent_before_close_arrive_before_one_disconnect(tls: bool) -> None:
    sent = [frame(1 << 19, number) for number in range(24)]

    async with pair(tls=tls) as ends:
        for each in sent:
            ends.near.send(each)
        ends.near.close()
        ends.near.send(frame(8))
        ends.near.close()
        await eventually(lambda: ends.far_handler.disconnects)
        assert ends.far_handler.frames == sent
        await eventually(lambda: not ends.near_node.connections and not ends.far_node.connections)
        assert ends.far_handler.disconnects == [None]
        assert not ends.near_handler.disconnects, "a local close is not reported"


@each_loop
@each_mode
async def test_frames_sent_by_a_handler_that_closes_when_writable_again_arrive(tls: bool) -> None:
    sent = [frame(1 << 19, number) for number in range(3)]

    async with pair(tls=tls) as ends:

        class LastFrame(RecordingHandler):
            def on_writable(self) -> None:
                ends.near.send(sent[-1])
                ends.near.close()

        ends.near.handler = LastFrame()
        for each in sent[:-1]:
            ends.near.send(each)
        assert ends.near.is_congested
        await eventually(lambda: ends.far_handler.disconnects)
        assert ends.far_handler.frames == sent


@each_loop
@each_mode
async def test_close_delivers_last_frame_while_other_end_keeps_sending(tls: bool) -> None:
    """Whatever is in flight towards us during a close does no harm, and our last frame arrives."""

    for _ in range(5):
        async with pair(tls=tls) as ends:
            for number in range(20):
                ends.far.send(frame(1 << 16, number))
            ends.near.send(frame(50, 7))
            ends.near.close()
            for number in range(20):
                ends.far.send(frame(1 << 16, number))
            await eventually(lambda ends=ends: ends.far_handler.disconnects)  # type: ignore[misc]
            assert ends.far_handler.frames == [frame(50, 7)]
            assert ends.far_handler.disconnects == [None]
            assert not ends.near_handler.disconnects
            await eventually(lambda ends=ends: not ends.near_node.connections and not ends.far_node.connections)  # type: ignore[misc]
            refusals = ends.near_node.handshake_counters
            assert refusals.handshakes == refusals.malformed_frames == 0, "that it talked on is no offence"


@each_loop
@each_mode
async def test_both_ends_may_close_at_the_same_time(tls: bool) -> None:
    async with pair(tls=tls) as ends:
        for line in (ends.near, ends.far):
            line.send(frame(200_000))
            line.close()
        await eventually(lambda: not ends.near_node.connections and not ends.far_node.connections)
        assert not ends.near_handler.disconnects
        assert not ends.far_handler.disconnects


@each_loop
@each_mode
async def test_abort_is_reported_once(tls: bool) -> None:
    async with pair(tls=tls) as ends:
        ends.far.abort()
        await eventually(lambda: ends.near_handler.disconnects)
        await eventually(lambda: not ends.near_node.connections and not ends.far_node.connections)
        assert ends.near_handler.disconnects == [None]
        assert not ends.far_handler.disconnects
        ends.near.send(frame(8))
        ends.near.close()


@each_loop
@each_mode
async def test_connection_may_be_closed_at_any_moment_of_opening(tls: bool) -> None:
    async with nodes(2, tls=tls) as (near, far):
        handlers = []
        for turns in range(25):
            handlers.append(RecordingHandler())
            line = near.dial(far.address, handlers[-1])
            for _ in range(turns):
                await asyncio.sleep(0)
            line.close()
            line.close()
        await eventually(lambda: not near.connections and not far.connections)
        assert not any(handler.disconnects for handler in handlers)
        assert all(handler.disconnects == [None] for handler in far.handlers)


@each_loop
async def test_frames_sent_before_open_go_out_after_open() -> None:
    async with nodes(2, tls=True) as (near, far):
        line = near.dial(far.address, RecordingHandler())
        line.send(frame(60, 1))
        await eventually(lambda: far.handlers and far.handlers[0].frames == [frame(60, 1)])


@each_loop
@each_mode
async def test_garbage_is_answered_with_reject_reason(tls: bool) -> None:
    async with nodes(1, tls=tls) as (node,), raw_connection(node.address) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        answer = await reader.read()
        if not tls:
            refuse = decode(answer)
            assert isinstance(refuse, Reject)
            assert refuse.reason is RejectReason.WRONG_PROTOCOL
            assert node.handlers[0].disconnects == [RejectReason.WRONG_PROTOCOL]
            assert node.handshake_counters.malformed_frames == 1
        writer.close()
        await eventually(lambda: not node.connections and node.admission_control.pending_count == 0, timeout_s=2)


@each_loop
async def test_client_without_handshake_is_dropped_after_timeout() -> None:
    async with (
        nodes(1, tls=True, settings=TcpTuning(limits=Limits(handshake_timeout_s=0.1))) as (node,),
        raw_connection(node.address) as (reader, _),
    ):
        assert await reader.read() == b""
        assert node.handshake_counters.handshakes == 1
        assert node.admission_control.pending_count == 0
        assert not node.handlers


@each_loop
@each_mode
async def test_node_abort_closes_all_connections(tls: bool) -> None:
    """Also those that are not authenticated yet; `no_leaks` checks their sockets."""

    async with nodes(1, tls=tls) as (node,), raw_connection(node.address) as (reader, _):
        await eventually(lambda: node.admission_control.pending_count or node.accepted)
        node.abort()
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 3) == b""


@each_loop
async def test_dial_of_closed_port_reports_disconnect() -> None:
    async with nodes(1, tls=False) as (node,):
        silent = Address("127.0.0.1", node.address.port)
        node.listener.close()
        handler = RecordingHandler()
        node.dial(silent, handler)
        await eventually(lambda: handler.disconnects)
        assert handler.disconnects == [None]
        assert not handler.open_count
        assert not node.connections


@each_loop
async def test_closing_in_the_middle_of_a_large_frame_discards_the_rest_of_the_input_quickly() -> None:
    """One byte of a frame is missing when the connection is closed, and four megabytes follow."""
    async with pair(tls=False) as ends:
        large, reads = frame(LARGE_FRAME_BYTES_MIN), 0
        get_buffer = ends.far.get_buffer

        def count_reads(size_hint: int) -> memoryview:
            nonlocal reads
            reads += 1
            return get_buffer(size_hint)

        ends.near.send(large[:-1])
        await eventually(lambda: ends.far._splitter.buffered_bytes == len(large) - 1)
        ends.far.get_buffer = count_reads  # type: ignore[method-assign,assignment]
        ends.far.close()
        for number in range(4):
            ends.near.send(frame(1 << 20, number))
        ends.near.close()
        await eventually(lambda: not ends.far_node.connections)
        assert reads < 1000
