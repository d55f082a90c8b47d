"""Direct requests between the channels of programs, over real sockets."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

import broadloom
from broadloom import Authority, Channel, DirectRequest, Reply, Role
from tests.channel.joined import QUICK, connected_channels, unique_name
from tests.support import eventually
from tests.transport.connections import each_loop

MIB = 1 << 20
STRANGER = broadloom.PeerId(0x1234)


def tickets() -> list[Any]:
    authority = Authority.generate()
    expires_at = datetime.now(UTC) + timedelta(hours=1)
    return [authority.issue_ticket(name, Role.PRODUCER, expires_at) for name in ("anna", "ben")]


@asynccontextmanager
async def two_members(mode: str = "plain", **options: Any) -> AsyncIterator[tuple[Channel, Channel]]:
    """A caller and a callee."""
    if mode != "tickets":
        async with connected_channels(2, tls=mode != "plain", **options) as (caller, callee):
            yield caller, callee
        return
    name, (anna, ben) = unique_name(), tickets()
    async with (
        connected_channels(1, name=name, tls=True, ticket=anna, **options) as (caller,),
        connected_channels(1, name=name, tls=True, ticket=ben, **options) as (callee,),
    ):
        yield caller, callee


each_security = pytest.mark.parametrize("mode", ["plain", "tls", "tickets"])


# -- a request and its reply


@each_loop
@each_security
async def test_request_returns_the_reply_of_one_member(mode: str) -> None:
    seen: list[DirectRequest] = []

    async def handler(request: DirectRequest) -> bytes:
        seen.append(request)
        await asyncio.sleep(0)
        return b"to " + request.data

    async with two_members(mode) as (caller, callee):
        callee.on_request(handler)
        reply = await caller.request(callee.peer_id, b"you", headers={"language": "en"})
        assert reply == Reply(callee.peer_id, b"to you")
        (request,) = seen
        assert (request.peer_id, request.text, request.headers) == (caller.peer_id, "you", {"language": "en"})
        assert request.expects_reply
        assert request.timeout_s == pytest.approx(5.0, abs=1.0)
        assert request.is_proven is (mode != "plain")
        names = {"plain": None, "tls": "", "tickets": "anna"}
        assert (request.identity.name if request.identity is not None else None) == names[mode]


async def test_plain_function_is_a_handler_and_replies_are_parsed() -> None:
    async with two_members() as (caller, callee):
        callee.on_request(lambda request: b'{"n": %d}' % request.json())
        assert (await caller.request(callee.peer_id, b"7")).json() == {"n": 7}
        member = SimpleNamespace(peer_id=callee.peer_id)
        assert (await caller.request(member, b"8")).text == '{"n": 8}'


async def test_requests_go_both_ways_and_to_members_that_are_not_neighbors() -> None:
    async with connected_channels(8) as channels:
        for channel in channels:
            channel.on_request(lambda request: b"%d" % request.peer_id)
        pairs = [(one, other) for one in channels for other in channels if one is not other]

        def is_known() -> bool:
            return all(one._node.peer.requests.address_of(other.peer_id) is not None for one, other in pairs)

        await eventually(is_known, "every member knows every other")
        replies = await asyncio.gather(*(one.request(other.peer_id, b"who am I?") for one, other in pairs))
        assert [reply.data for reply in replies] == [b"%d" % one.peer_id for one, _ in pairs]


@each_security
async def test_large_data_arrives_whole_while_small_requests_go_on(mode: str) -> None:
    async with two_members(mode) as (caller, callee):
        callee.on_request(lambda request: request.data)
        data = [bytes([number]) * MIB * 3 for number in range(3)]
        large = [asyncio.ensure_future(caller.request(callee.peer_id, each, timeout_s=60)) for each in data]
        small = [await caller.request(callee.peer_id, b"small", timeout_s=60) for _ in range(20)]
        assert {reply.data for reply in small} == {b"small"}
        assert [(await reply).data == each for reply, each in zip(large, data, strict=True)] == [True] * 3
        assert callee._node.peer.requests.held_bytes == 0


async def test_many_requests_at_once_are_all_answered() -> None:
    async with two_members() as (caller, callee):
        callee.on_request(lambda request: request.data)
        replies = await asyncio.gather(*(caller.request(callee.peer_id, b"%d" % n, timeout_s=60) for n in range(1000)))
        assert [reply.data for reply in replies] == [b"%d" % number for number in range(1000)]


async def test_requests_are_answered_while_the_inbox_is_full() -> None:
    async with two_members(overflow="pause", inbox_messages_max=4) as (caller, callee):
        callee.on_request(lambda _request: b"here")
        for _ in range(50):
            await caller.broadcast(bytes(100))
        await eventually(lambda: callee._node.peer.is_paused, "the callee does not read")
        assert (await caller.request(callee.peer_id, b"?", timeout_s=20)).data == b"here"


async def test_all_local_peers_of_a_program_answer() -> None:
    name = unique_name()
    async with (
        connected_channels(1, name=name, local_peers=2) as (callee,),
        connected_channels(1, name=name) as (caller,),
    ):
        callee.on_request(lambda _request: b"here")
        peers = [status.peer_id for status in (callee.status(), *callee.status().local_peers)]
        await eventually(lambda: all(map(caller._node.peer.requests.address_of, peers)), "both are known")
        assert [(await caller.request(peer, b"?")).data for peer in peers] == [b"here"] * 2
        with pytest.raises(ValueError, match="this program itself"):
            await callee.request(callee.status().local_peers[0].peer_id, b"?")


# -- failures


async def test_refusal_carries_its_text_and_other_exceptions_only_their_type(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(request: DirectRequest) -> bytes | None:
        match request.data:
            case b"refuse":
                raise broadloom.RefusedError("not for you")
            case b"refuse early":
                request.refuse("early")
            case b"refuse at length":
                raise broadloom.RefusedError("x" * 100_000)
            case b"refuse at great length":
                request.refuse("x" * 10_000_000)
            case b"fail":
                raise KeyError("secret")
            case b"text":
                return "text"  # type: ignore[return-value]
        return None

    async with two_members() as (caller, callee):
        callee.on_request(handler)
        expected = {
            b"refuse": ("refused", "not for you"),
            b"refuse early": ("refused", "early"),
            b"refuse at length": ("refused", "x" * 1024),
            b"refuse at great length": ("refused", "x" * 1024),
            b"fail": ("failed", "the handler raised KeyError"),
            b"text": ("failed", "the handler raised TypeError"),
            b"nothing": ("failed", "the handler did not reply"),
        }
        for data, (status, text) in expected.items():
            with pytest.raises(broadloom.RefusedError, match=text) as refused:
                await caller.request(callee.peer_id, data)
            assert refused.value.status == status
            assert "secret" not in str(refused.value)
    assert "secret" in caplog.text  # the owner of the handler sees it
    assert [record.levelno for record in caplog.records if "handler" in record.message] == [logging.ERROR] * 2


async def test_program_without_handler_refuses_also_after_it_was_removed() -> None:
    async with two_members() as (caller, callee):
        for step in range(3):
            remove = callee.on_request(lambda _request: b"yes") if step else None
            if remove is not None:
                assert (await caller.request(callee.peer_id, b"?")).data == b"yes"
                remove() if step == 1 else callee.on_request(None)
            with pytest.raises(broadloom.RefusedError, match="no handler") as refused:
                await caller.request(callee.peer_id, b"?")
            assert refused.value.status == "no_handler"


async def test_second_reply_raises_in_the_handler() -> None:
    problems: list[Exception] = []

    async def handler(request: DirectRequest) -> None:
        request.reply(b"first")
        for answer in (lambda: request.reply(b"second"), request.refuse):
            try:
                answer()
            except broadloom.AlreadyRepliedError as problem:
                problems.append(problem)

    async with two_members() as (caller, callee):
        callee.on_request(handler)
        assert (await caller.request(callee.peer_id, b"?")).data == b"first"
        await eventually(lambda: len(problems) == 2)


@each_loop
async def test_timeout_raises_and_cancels_the_handler() -> None:
    cancelled = asyncio.Event()

    async def handler(_request: DirectRequest) -> bytes:
        try:
            await asyncio.Event().wait()  # until it is cancelled
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return b""

    async with two_members() as (caller, callee):
        callee.on_request(handler)
        with pytest.raises(broadloom.NoAnswerError, match=r"no reply within 0\.3 s") as silent:
            await caller.request(callee.peer_id, b"?", timeout_s=0.3)
        assert silent.value.sent
        await asyncio.wait_for(cancelled.wait(), 20)


async def test_cancelled_caller_cancels_the_handler() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def handler(_request: DirectRequest) -> bytes:
        started.set()
        try:
            await asyncio.Event().wait()  # until it is cancelled
        finally:
            cancelled.set()
        return b""

    async with two_members() as (caller, callee):
        callee.on_request(handler)
        task = asyncio.ensure_future(caller.request(callee.peer_id, b"?", timeout_s=60))
        await asyncio.wait_for(started.wait(), 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(cancelled.wait(), 20)


async def test_stranger_is_unknown() -> None:
    async with two_members() as (caller, _callee):
        with pytest.raises(broadloom.UnknownPeerError, match="no member with this id is known"):
            await caller.request(STRANGER, b"?")
        with pytest.raises(broadloom.UnknownPeerError):
            await caller.tell(STRANGER, b"!")


@each_security
async def test_other_peer_at_the_address_gets_no_request(mode: str) -> None:
    async with two_members(mode) as (caller, callee):
        seen: list[DirectRequest] = []
        callee.on_request(seen.append)
        caller._node.peer.requests.address_of = lambda _peer: callee._node.peer.me.address
        with pytest.raises(broadloom.PeerGoneError, match="another peer has this address now") as gone:
            await caller.request(STRANGER, b"?")
        assert not gone.value.sent
        assert seen == []


async def test_killed_callee_is_gone_at_once() -> None:
    async with two_members() as (caller, callee):
        started = asyncio.Event()

        async def handler(_request: DirectRequest) -> bytes:
            started.set()
            await asyncio.Event().wait()  # until it is cancelled
            return b""

        callee.on_request(handler)
        task = asyncio.ensure_future(caller.request(callee.peer_id, b"?", timeout_s=60))
        await asyncio.wait_for(started.wait(), 20)
        callee.abort()
        with pytest.raises(broadloom.PeerGoneError, match="may have been handled") as gone:
            await asyncio.wait_for(task, 5)
        assert gone.value.sent


async def test_unreachable_member_is_gone_and_nothing_was_sent() -> None:
    async with two_members() as (caller, callee):
        address = callee._node.peer.me.address
        caller._node.peer.requests.address_of = lambda _peer: address._replace(port=1)
        with pytest.raises(broadloom.PeerGoneError, match="not sent") as gone:
            await caller.request(callee.peer_id, b"?")
        assert not gone.value.sent


@each_loop
async def test_leaving_member_answers_open_requests_and_refuses_new_ones() -> None:
    release = asyncio.Event()

    async def handler(_request: DirectRequest) -> bytes:
        await release.wait()
        return b"done"

    async with two_members() as (caller, callee):
        callee.on_request(handler)
        task = asyncio.ensure_future(caller.request(callee.peer_id, b"?"))
        await eventually(lambda: callee._handler_tasks)
        leaving = asyncio.ensure_future(callee.leave())
        await eventually(lambda: callee._node.peer.requests.is_leaving)
        with pytest.raises(broadloom.RefusedError) as refused:
            await caller.request(callee.peer_id, b"?")
        assert refused.value.status == "leaving"
        release.set()
        assert (await task).data == b"done"
        await leaving
        with pytest.raises(broadloom.NotConnectedError):
            await callee.request(caller.peer_id, b"?")
        with pytest.raises(broadloom.RequestError):
            await caller.request(callee.peer_id, b"?")


async def test_leaving_member_finishes_one_way_messages() -> None:
    handled: list[bytes] = []
    release = asyncio.Event()

    async def handler(request: DirectRequest) -> None:
        await release.wait()
        handled.append(request.data)

    async with two_members() as (caller, callee):
        callee.on_request(handler)
        await caller.tell(callee.peer_id, b"news")
        await eventually(lambda: callee._handler_tasks)
        leaving = asyncio.ensure_future(callee.leave())
        await eventually(lambda: callee._node.peer.requests.is_leaving)
        with pytest.raises(broadloom.RefusedError, match="leaving"):
            await caller.request(callee.peer_id, b"?")
        assert handled == []
        release.set()
        await leaving
        assert handled == [b"news"]


async def test_requests_of_a_program_that_leaves_end() -> None:
    async with two_members() as (caller, callee):

        async def handler(_request: DirectRequest) -> bytes:
            await asyncio.Event().wait()  # until it is cancelled
            return b""

        callee.on_request(handler)
        task = asyncio.ensure_future(caller.request(callee.peer_id, b"?", timeout_s=60))
        await eventually(lambda: callee._handler_tasks)
        await caller.leave()
        with pytest.raises(broadloom.BroadloomError):
            await task
        await eventually(lambda: not callee._handler_tasks, "the handler was cancelled")


# -- limits


async def test_handlers_run_only_as_many_at_a_time_as_allowed() -> None:
    running = most = 0
    three = asyncio.Barrier(3)

    async def handler(_request: DirectRequest) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await three.wait()
        running -= 1
        return b""

    async with two_members() as (caller, callee):
        callee.on_request(handler, concurrency=3)
        await asyncio.gather(*(caller.request(callee.peer_id, b"", timeout_s=60) for _ in range(30)))
    assert most == 3


async def test_too_many_waiting_requests_raise_busy() -> None:
    async with two_members(settings=replace(QUICK, direct_waiting_max=5)) as (caller, _callee):
        results = await asyncio.gather(
            *(caller.request(STRANGER, b"", timeout_s=2) for _ in range(8)), return_exceptions=True
        )
        assert [type(result) for result in results] == [broadloom.UnknownPeerError] * 5 + [broadloom.BusyError] * 3


async def test_reply_that_is_too_large_is_refused() -> None:
    async with two_members() as (caller, callee):
        callee.on_request(lambda _request: bytes(4 * MIB + 1))
        with pytest.raises(broadloom.RefusedError) as refused:
            await caller.request(callee.peer_id, b"?")
        assert refused.value.status == "too_large"


async def test_broadcasts_do_not_wait_for_a_slow_direct_connection() -> None:
    async with two_members() as (caller, callee):
        callee.on_request(lambda _request: None)
        await caller.tell(callee.peer_id, b"!")
        connection = next(iter(caller._node.peer.requests._connections))._connection
        caller._node.flow.on_congested(connection)  # type: ignore[arg-type]
        assert not caller._node.flow.must_wait


# -- bad input


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "text"),
    [
        (("not an id", b""), {}, TypeError, "peer must be a peer id, as in message.author, or a member, not str"),
        ((True, b""), {}, TypeError, "peer must be a peer id"),
        ((-1, b""), {}, ValueError, "a peer id has 64 bits"),
        ((1 << 64, b""), {}, ValueError, "a peer id has 64 bits"),
        ((7, "text"), {}, TypeError, "a message is bytes, not str; use text.encode"),
        ((7, None), {}, TypeError, "a message is bytes, not NoneType"),
        ((7, b""), {"timeout_s": 0}, ValueError, "timeout_s=0: must be greater than 0"),
        ((7, b""), {"timeout_s": -1.5}, ValueError, "timeout_s=-1.5: must be greater than 0"),
        ((7, b""), {"timeout_s": float("nan")}, ValueError, "timeout_s=nan: must be greater than 0"),
        ((7, b""), {"timeout_s": float("inf")}, ValueError, "greater than 0 and finite"),
        ((7, b""), {"timeout_s": None}, TypeError, "timeout_s must be a number of seconds, not NoneType"),
        ((7, b""), {"headers": {"large": "x" * 10_000_000}}, ValueError, "headers of 10,000,009 bytes: at most 4,096"),
        ((7, b""), {"headers": "text"}, TypeError, "headers must be a mapping"),
        ((7, bytes(4 * MIB + 1)), {}, broadloom.MessageTooLargeError, "request of 4,194,305 bytes: at most 4,194,304"),
    ],
)
@pytest.mark.parametrize("method", ["request", "tell"])
async def test_wrong_arguments_raise_before_anything_is_sent(
    method: str, arguments: tuple[Any, ...], options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    async with connected_channels(1) as (channel,):
        with pytest.raises(kind, match=text):
            await getattr(channel, method)(*arguments, **options)
        assert channel.status().counters["requests_sent"] == 0


async def test_request_to_oneself_is_a_mistake() -> None:
    async with connected_channels(1) as (channel,):
        with pytest.raises(ValueError, match="this program itself: call the handler directly"):
            await channel.request(channel.peer_id, b"?")


@pytest.mark.parametrize(
    ("handler", "options", "kind", "text"),
    [
        ("text", {}, TypeError, "a handler must be a function, not str"),
        (print, {"concurrency": 0}, ValueError, "concurrency=0: must be at least 1"),
        (print, {"concurrency": 1.5}, TypeError, "concurrency must be a whole number, not float"),
    ],
)
async def test_wrong_handlers_raise(handler: Any, options: dict[str, Any], kind: type[Exception], text: str) -> None:
    async with connected_channels(1) as (channel,):
        with pytest.raises(kind, match=text):
            channel.on_request(handler, **options)


# -- one-way messages


@each_security
async def test_one_way_message_reaches_the_handler(mode: str) -> None:
    seen: list[DirectRequest] = []
    async with two_members(mode) as (caller, callee):
        callee.on_request(seen.append)
        await caller.tell(callee.peer_id, b"news", headers={"from": "desk"})
        await caller.tell(callee.peer_id, bytes(MIB))
        await eventually(lambda: len(seen) == 2)
        assert [len(request.data) for request in seen] == [4, MIB]
        assert (seen[0].headers, seen[0].expects_reply, seen[0].timeout_s) == ({"from": "desk"}, False, None)


async def test_one_way_messages_wait_for_a_slow_receiver_and_none_is_lost() -> None:
    seen: list[bytes] = []

    async def handler(request: DirectRequest) -> None:
        await asyncio.sleep(0)
        seen.append(request.data[:4])

    async with two_members() as (caller, callee):
        callee.on_request(handler, concurrency=1)
        for number in range(400):
            await caller.tell(callee.peer_id, number.to_bytes(4, "big") + bytes(20_000), timeout_s=60)
        await eventually(lambda: len(seen) == 400)
        assert seen == [number.to_bytes(4, "big") for number in range(400)]
        assert callee.status().counters["tells_dropped"] == 0


# -- layers


async def test_layers_have_requests_of_their_own() -> None:
    async with two_members() as (caller, callee):
        asking, answering = caller.layer("vo"), callee.layer("vo")
        callee.on_request(lambda _request: b"application")
        answering.on_request(lambda _request: b"layer")
        assert (await asking.request(callee.peer_id, b"?")).data == b"layer"
        assert (await caller.request(callee.peer_id, b"?")).data == b"application"
        seen: list[DirectRequest] = []
        answering.on_request(seen.append)
        await asking.tell(callee.peer_id, b"!")
        await eventually(lambda: seen)
        answering.close()
        with pytest.raises(broadloom.RefusedError):
            await asking.request(callee.peer_id, b"?")
        assert (await caller.request(callee.peer_id, b"?")).data == b"application"


async def test_channel_with_a_handler_stays_in_use() -> None:
    name = unique_name()
    async with connected_channels(1, name=name) as (caller,):
        callee = await broadloom.connect(name, tls=False, settings=QUICK)
        callee.on_request(lambda _request: b"here")
        peer_id, keep = callee.peer_id, callee.abort
        del callee
        assert (await caller.request(peer_id, b"?")).data == b"here"
        keep()
