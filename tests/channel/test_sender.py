"""Sending, status, and closing a channel."""

import asyncio
import json

import pytest

import broadloom
from broadloom.channel.fragments import FRAGMENT_BYTES
from broadloom.protocol import Tuning
from tests.channel.joined import connected_channels
from tests.support import eventually
from tests.transport.connections import each_loop


async def test_bytes_like_text_and_json_can_be_sent() -> None:
    async with connected_channels(2) as (author, reader):
        for data in (b"bytes", bytearray(b"array"), memoryview(b"view"), b""):
            await author.broadcast(data)  # type: ignore[arg-type]
        assert [(await reader.receive(5)).data for _ in range(4)] == [b"bytes", b"array", b"view", b""]
        await author.broadcast_text("grüße")
        assert (await reader.receive(5)).text == "grüße"
        value = {"a": [1, None, "ü"]}
        await author.broadcast_json(value)
        assert (await reader.receive(5)).json() == value
        assert author.broadcast_nowait(b"at once") == 7
        await author.broadcast(bytes([0xFF]))
        await reader.receive(5)
        message = await reader.receive(5)
        with pytest.raises(ValueError, match="utf-8"):
            assert message.text
        assert message.sequence == 8


async def test_invalid_message_raises_error_and_uses_no_sequence_number() -> None:
    most = 3 * FRAGMENT_BYTES + 7
    settings = Tuning(discovery_retry_s=0.1, leave_linger_s=0.05, message_bytes_max=most)
    async with connected_channels(2, tls=True, signed=True, settings=settings) as (author, reader):
        with pytest.raises(TypeError, match="a message is bytes, not str; use broadcast_text or broadcast_json"):
            await author.broadcast("text")  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="not dict"):
            author.broadcast_nowait({})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="not str"):
            await author.broadcast("text" * FRAGMENT_BYTES)  # type: ignore[call-overload]
        for size in (most + 1, 2 * most, 64 << 20):
            with pytest.raises(
                broadloom.MessageTooLargeError,
                match=rf"at most {most:,} are allowed \(ChannelSettings.message_bytes_max\)",
            ):
                await author.broadcast(bytes(size))
            with pytest.raises(broadloom.MessageTooLargeError, match=f"of {size:,} bytes"):
                author.broadcast_nowait(bytes(size))
        for priority in (-1, 256):
            for data in (b"small", bytes(2 * FRAGMENT_BYTES)):
                with pytest.raises(ValueError, match="from 0 to 255"):
                    await author.broadcast(data, priority=priority)
        for lifetime_s in (0, -1, float("nan")):
            for data in (b"small", bytes(2 * FRAGMENT_BYTES)):
                with pytest.raises(ValueError, match="must be greater than 0"):
                    await author.broadcast(data, ttl_s=lifetime_s)
        assert await author.broadcast(bytes(FRAGMENT_BYTES)) == 1
        assert len((await reader.receive(5)).data) == FRAGMENT_BYTES
        assert await author.broadcast(bytes(most)) == 5
        assert len((await reader.receive(5)).data) == most
        await author.leave()
        with pytest.raises(broadloom.NotConnectedError, match="was left; connect again"):
            await author.broadcast(b"too late")


# Status and closing.


async def test_status_is_correct_in_every_state() -> None:
    async with connected_channels(3, tls=True) as members:
        await eventually(lambda: all(len(each.status().neighbors) == 2 for each in members))
        await members[0].broadcast(b"hello")
        await eventually(lambda: members[1].unread_count)
        status = members[1].status()
        assert (status.state, status.security, status.role) == ("connected", "tls", "producer")
        assert (status.unread_count, status.unread_bytes, status.free_slots, status.is_full_mesh) == (1, 5, 2, True)
        others = {each.peer_id for each in (members[0], members[2])}
        assert {each.peer_id for each in status.neighbors} == others
        assert status.counters["delivered"] == 1
        assert members[1].display_name(members[0].peer_id) == f"{members[0].peer_id:016x}"
        leaving = asyncio.ensure_future(members[1].leave())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        states = [members[1].status()]
        await leaving
        states.append(members[1].status())
        assert [each.state for each in states] == ["leaving", "left"]
        assert states[1].neighbors == ()
        assert states[1].free_slots == 0
        for each in [status, *states]:
            assert json.loads(json.dumps(each.as_dict()))["channel"] == members[0].name


@each_loop
@pytest.mark.parametrize("peers", [1, 2])
async def test_close_channel_closes_channel_for_every_member(peers: int) -> None:
    async with connected_channels(3, local_peers=peers) as members:
        reading = [asyncio.ensure_future(each.receive()) for each in members]
        await asyncio.sleep(0)
        await members[0].close_channel()
        for each in reading:
            with pytest.raises(broadloom.NotConnectedError):
                await asyncio.wait_for(each, 5)
        await eventually(
            lambda: all(not node._connections for each in members for node in (each._node, *each._secondary_nodes))
        )
        assert all(each.status().state == "left" for each in members)
        await members[1].leave()


async def test_signed_channel_cannot_be_closed_by_a_member() -> None:
    async with connected_channels(2, tls=True, signed=True) as (one, other):
        with pytest.raises(broadloom.NotPermittedError, match="ignores close_channel"):
            await one.close_channel()
        await one.broadcast_text("still here")
        assert (await other.receive(5)).text == "still here"
