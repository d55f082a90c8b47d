"""`broadcast(receipt=...)`: which members have a message. What receipts say is in `tests/behavior/test_receipts.py`."""

import asyncio
from typing import Any

import pytest

import broadloom.sync
from broadloom import NotConnectedError
from broadloom.channel.fragments import FRAGMENT_BYTES
from tests.channel.joined import QUICK, connected_channels, unique_name
from tests.support import TIMEOUT_S, eventually


@pytest.mark.parametrize("options", [{"tls": False}, {"tls": True}, {"tls": True, "signed": True}])
async def test_receipt_names_all_other_members(options: dict[str, Any]) -> None:
    async with connected_channels(4, **options) as (author, *others):
        await eventually(lambda: len(author.members()) == 4)
        receipt = await author.broadcast(b"hello", receipt="all", timeout_s=TIMEOUT_S)
        assert receipt.confirmed == {member.peer_id for member in others}
        assert receipt.is_complete
        assert receipt.is_proven == options["tls"]
        assert (await others[0].receive(TIMEOUT_S)).sequence == receipt.sequence


async def test_large_message_is_confirmed_as_a_whole() -> None:
    async with connected_channels(3) as (author, *others):
        await eventually(lambda: len(author.members()) == 3)
        data = bytes(3 * FRAGMENT_BYTES)
        receipt = await author.broadcast(data, topic="files", receipt="all", timeout_s=TIMEOUT_S)
        assert receipt.is_complete
        for member in others:
            message = await member.receive(TIMEOUT_S)
            assert (message.data, message.topic, message.sequence) == (data, "files", receipt.sequence)


@pytest.mark.parametrize("size", [5, 2 * FRAGMENT_BYTES])
async def test_receipt_is_for_the_message_alone_and_not_for_others_sent_while_it_waited(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = unique_name()
    async with connected_channels(2, name=name) as (author, other):
        await eventually(lambda: len(author.members()) == 2)
        wait_for_window, is_waiting, may_send = author._wait_for_window, asyncio.Event(), asyncio.Event()

        async def wait(cost: int) -> None:
            is_waiting.set()
            await may_send.wait()
            await wait_for_window(cost)

        monkeypatch.setattr(author, "_wait_for_window", wait)
        sending = asyncio.ensure_future(author.broadcast(bytes(size), receipt="all", timeout_s=TIMEOUT_S))
        await asyncio.wait_for(is_waiting.wait(), TIMEOUT_S)
        author.broadcast_nowait(b"early")
        assert (await other.receive(TIMEOUT_S)).data == b"early"
        async with connected_channels(1, name=name) as (newcomer,):
            await eventually(lambda: len(author.members()) == 3)
            may_send.set()
            receipt = await sending
            assert receipt.confirmed == {other.peer_id, newcomer.peer_id}
            assert receipt.is_complete
            assert (await newcomer.receive(TIMEOUT_S)).sequence == receipt.sequence


async def test_receipt_of_more_members_than_there_are_is_waited_for_and_not_complete() -> None:
    async with connected_channels(2) as (author, other):
        await eventually(lambda: len(author.members()) == 2)
        waiting = asyncio.ensure_future(author.broadcast(b"hello", receipt=2, timeout_s=0.3))
        await other.receive(TIMEOUT_S)
        receipt = await waiting
        assert receipt.confirmed == {other.peer_id}
        assert not receipt.missing
        assert not receipt.is_complete


async def test_receipt_for_one_member_is_not_complete_if_the_author_is_alone() -> None:
    async with connected_channels(1) as (author,):
        receipt = await author.broadcast(b"hello", receipt=1, timeout_s=0.1)
        assert (receipt.confirmed, receipt.is_complete) == (frozenset(), False)


async def test_receipt_is_not_complete_if_the_roster_was_not_known_in_time() -> None:
    async with connected_channels(2) as (_, newcomer):
        receipt = await newcomer.broadcast(b"hello", receipt="all", timeout_s=0.001)
        assert not receipt.is_complete


async def test_author_alone_gets_an_empty_receipt() -> None:
    async with connected_channels(1) as (author,):
        receipt = await author.broadcast(b"hello", receipt="all", timeout_s=TIMEOUT_S)
        assert (receipt.confirmed, receipt.is_complete) == (frozenset(), True)


async def test_leaving_ends_the_wait() -> None:
    async with connected_channels(2) as (author, other):
        await author.wait_for_roster(TIMEOUT_S)
        other._node.pause_reading()
        waiting = asyncio.ensure_future(author.broadcast(b"hello", receipt="all", timeout_s=TIMEOUT_S))
        await asyncio.sleep(0)
        await author.leave()
        receipt = await asyncio.wait_for(waiting, TIMEOUT_S)
        assert not receipt.confirmed
        with pytest.raises(NotConnectedError):
            await author.broadcast(b"hello", receipt="all")


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"receipt": "some"}, TypeError, '"all" or a number'),
        ({"receipt": True}, TypeError, '"all" or a number'),
        ({"receipt": 0}, ValueError, "at least one member"),
        ({"receipt": "all", "timeout_s": -1}, ValueError, "timeout_s"),
        ({"receipt": "all", "timeout_s": None}, TypeError, "timeout_s"),
    ],
)
async def test_receipt_that_cannot_work_raises(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    async with connected_channels(1) as (author,):
        with pytest.raises(error, match=text):
            await author.broadcast(b"hello", **arguments)
        assert author.status().counters["sent"] == 0


def test_synchronous_channel_returns_receipts_too() -> None:
    name = unique_name()
    with (
        broadloom.sync.connect(name, tls=False, settings=QUICK) as author,
        broadloom.sync.connect(name, tls=False, settings=QUICK) as other,
    ):
        receipt = author.broadcast(b"hello", receipt="all", timeout_s=TIMEOUT_S)
        assert receipt.confirmed == {other.peer_id}
