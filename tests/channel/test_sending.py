"""Sending, the status, and the end of a channel."""

import asyncio
import json

import pytest

import weft
from tests.channel.joined import joined
from tests.net.lines import each_loop, play, until
from weft.channel.large import PART_BYTES


def test_what_can_be_sent() -> None:
    async def main() -> None:
        async with joined(2) as (author, reader):
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

    play(main)


def test_what_cannot_be_sent_is_told_and_costs_no_number() -> None:
    async def main() -> None:
        most = 3 * PART_BYTES + 7
        settings = weft.Settings(seek_wait_s=0.1, linger_s=0.05, message_bytes_max=most)
        async with joined(2, plain=False, signed=True, settings=settings) as (author, reader):
            with pytest.raises(TypeError, match="a message is bytes, not str; use broadcast_text or broadcast_json"):
                await author.broadcast("text")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="not dict"):
                author.broadcast_nowait({})  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="not str"):
                await author.broadcast("text" * PART_BYTES)  # type: ignore[arg-type]
            for size in (most + 1, 2 * most, 64 << 20):
                with pytest.raises(weft.TooLarge, match=f"at most {most:,} are possible: Settings.message_bytes_max"):
                    await author.broadcast(bytes(size))
                with pytest.raises(weft.TooLarge, match=f"of {size:,} bytes"):
                    author.broadcast_nowait(bytes(size))
            for priority in (-1, 256):
                for data in (b"small", bytes(2 * PART_BYTES)):
                    with pytest.raises(ValueError, match="from 0 to 255"):
                        await author.broadcast(data, priority=priority)
            for lifetime_s in (0, -1, float("nan")):
                for data in (b"small", bytes(2 * PART_BYTES)):
                    with pytest.raises(ValueError, match="more than 0 seconds"):
                        await author.broadcast(data, lifetime_s=lifetime_s)
            assert await author.broadcast(bytes(PART_BYTES)) == 1
            assert len((await reader.receive(5)).data) == PART_BYTES
            assert await author.broadcast(bytes(most)) == 5
            assert len((await reader.receive(5)).data) == most
            await author.leave()
            with pytest.raises(weft.NotConnected, match="was left; connect again"):
                await author.broadcast(b"too late")

    play(main)


# Status and the end.


def test_status_is_true_in_every_state() -> None:
    async def main() -> None:
        async with joined(3, plain=False) as members:
            await until(lambda: all(len(each.status().neighbours) == 2 for each in members))
            await members[0].broadcast(b"hello")
            await until(lambda: members[1].unread)
            status = members[1].status()
            assert (status.state, status.security, status.role) == ("connected", "tls", "producer")
            assert (status.unread, status.unread_bytes, status.holes, status.small) == (1, 5, 2, True)
            others = {f"{each.peer:016x}" for each in (members[0], members[2])}
            assert {each.peer for each in status.neighbours} == others
            assert status.counters["delivered"] == 1
            assert members[1].name_of(members[0].peer) == f"{members[0].peer:016x}"
            leaving = asyncio.ensure_future(members[1].leave())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            states = [members[1].status()]
            await leaving
            states.append(members[1].status())
            assert [each.state for each in states] == ["leaving", "left"]
            assert states[1].neighbours == ()
            assert states[1].holes == 0
            for each in [status, *states]:
                assert json.loads(json.dumps(each.as_dict()))["channel"] == members[0].name

    play(main)


@each_loop
@pytest.mark.parametrize("peers", [1, 2])
def test_a_channel_that_a_member_closes_is_closed_for_all(peers: int, loop: str) -> None:
    async def main() -> None:
        async with joined(3, peers=peers) as members:
            reading = [asyncio.ensure_future(each.receive()) for each in members]
            await asyncio.sleep(0)
            await members[0].shut_down()
            for each in reading:
                with pytest.raises(weft.NotConnected):
                    await asyncio.wait_for(each, 5)
            await until(lambda: all(not node._lines for each in members for node in (each._node, *each._others)))
            assert all(each.status().state == "left" for each in members)
            await members[1].leave()

    play(main, loop)


def test_members_of_a_signed_channel_do_not_obey_and_who_tries_is_told() -> None:
    async def main() -> None:
        async with joined(2, plain=False, signed=True) as (one, other):
            with pytest.raises(weft.NotAllowed, match="do not obey"):
                await one.shut_down()
            await one.broadcast_text("still here")
            assert (await other.receive(5)).text == "still here"

    play(main)
