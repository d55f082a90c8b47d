"""`broadcast(receipt=...)`: which members have a message. What receipts say is in `tests/behavior/test_receipts.py`."""

import asyncio
from typing import Any

import pytest

import broadloom.sync
from broadloom import Channel, Missed, NotConnectedError, Receipt
from broadloom.channel.fragments import FRAGMENT_BYTES
from broadloom.protocol import Tuning
from broadloom.protocol.roster.roster import Roster
from broadloom.wire.payload_kind import HAS_HEADERS, WANTS_RECEIPT
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


async def test_receiver_that_discards_a_large_message_does_not_confirm_it() -> None:
    name = unique_name()
    small = Tuning(message_bytes_max=FRAGMENT_BYTES, discovery_retry_s=0.1, leave_linger_s=0.05)
    async with (
        connected_channels(2, name=name) as (author, other),
        connected_channels(1, name=name, settings=small) as (limited,),
    ):
        missed: list[Missed] = []
        limited.on_event(lambda event: missed.append(event) if isinstance(event, Missed) else None)
        await eventually(lambda: len(author.members()) == 3)
        waiting = asyncio.ensure_future(author.broadcast(bytes(2 * FRAGMENT_BYTES), receipt=2, timeout_s=TIMEOUT_S))
        await eventually(lambda: missed)
        after = await author.broadcast(b"small", receipt="all", timeout_s=TIMEOUT_S)
        assert after.is_complete, "its report about both messages has arrived"
        author._node.peer.receipts.end_all()
        receipt = await waiting
        assert (receipt.confirmed, receipt.missing) == (frozenset({other.peer_id}), frozenset({limited.peer_id}))
        assert [each.first_sequence for each in missed] == [receipt.sequence]


async def test_receiver_that_cannot_open_a_message_does_not_confirm_it() -> None:
    async with connected_channels(2) as (author, other):
        missed: list[Missed] = []
        other.on_event(lambda event: missed.append(event) if isinstance(event, Missed) else None)
        await eventually(lambda: len(author.members()) == 2)
        receipts = author._node.peer.receipts
        sequence = author._node.peer.broadcast(b"no headers", kind=HAS_HEADERS | WANTS_RECEIPT)
        done: list[Receipt] = []
        receipts.open(receipts.prepare(None), sequence, TIMEOUT_S, done.append)
        await eventually(lambda: missed)
        after = await author.broadcast(b"hello", receipt="all", timeout_s=TIMEOUT_S)
        assert after.is_complete
        receipts.end_all()
        assert [receipt.missing for receipt in done] == [{other.peer_id}]


class Gate:
    """Holds a channel before each fragment that it sends."""

    def __init__(self, channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
        self._wait_for_window = channel._wait_for_window
        self._open = asyncio.Semaphore(0)
        self.arrived = 0
        monkeypatch.setattr(channel, "_wait_for_window", self._wait)

    async def _wait(self, cost: int) -> None:
        self.arrived += 1
        await self._open.acquire()
        await self._wait_for_window(cost)

    async def reached(self, number: int) -> None:
        """Wait until this fragment is next."""
        await eventually(lambda: self.arrived == number)

    def let_pass(self) -> None:
        self._open.release()


async def test_members_at_the_beginning_of_a_large_message_count(monkeypatch: pytest.MonkeyPatch) -> None:
    name = unique_name()
    async with connected_channels(3, name=name) as (author, other, dying):
        await eventually(lambda: len(author.members()) == 3)
        gate = Gate(author, monkeypatch)
        sending = asyncio.ensure_future(author.broadcast(bytes(2 * FRAGMENT_BYTES), receipt="all", timeout_s=TIMEOUT_S))
        gate.let_pass()
        await gate.reached(2)
        async with connected_channels(1, name=name) as (newcomer,):
            dying.abort()
            await eventually(
                lambda: {each.peer_id for each in author.members()} == {author.peer_id, other.peer_id, newcomer.peer_id}
            )
            gate.let_pass()
            receipt = await sending
        assert (receipt.confirmed, receipt.gone) == (frozenset({other.peer_id}), frozenset({dying.peer_id}))
        assert not receipt.missing


async def test_member_that_joins_within_a_large_message_does_not_confirm_it(monkeypatch: pytest.MonkeyPatch) -> None:
    name = unique_name()
    async with connected_channels(2, name=name) as (author, other):
        await eventually(lambda: len(author.members()) == 2)
        gate = Gate(author, monkeypatch)
        sending = asyncio.ensure_future(author.broadcast(bytes(2 * FRAGMENT_BYTES), receipt=2, timeout_s=TIMEOUT_S))
        gate.let_pass()
        await gate.reached(2)
        async with connected_channels(1, name=name) as (newcomer,):
            await eventually(lambda: len(author.members()) == 3)
            gate.let_pass()
            await other.receive(TIMEOUT_S)
            gate.let_pass()
            after = await author.broadcast(b"small", receipt=2, timeout_s=TIMEOUT_S)
            assert after.confirmed == {other.peer_id, newcomer.peer_id}
            author._node.peer.receipts.end_all()
            receipt = await sending
        assert receipt.confirmed == {other.peer_id}


async def test_time_counts_from_the_moment_the_message_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    timeout_s = 2.0
    async with connected_channels(2) as (author, other):
        await eventually(lambda: len(author.members()) == 2)
        gate = Gate(author, monkeypatch)
        started_at = author._node.now()
        sending = asyncio.ensure_future(author.broadcast(b"hello", receipt="all", timeout_s=timeout_s))
        await eventually(lambda: author._node.now() > started_at + timeout_s)
        gate.let_pass()
        receipt = await sending
        assert receipt.confirmed == {other.peer_id}


async def test_message_waits_only_briefly_for_the_roster(monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected_channels(2) as (author, other):
        monkeypatch.setattr(Roster, "is_complete", False)
        sending = asyncio.ensure_future(author.broadcast(b"hello", receipt=1, timeout_s=10 * TIMEOUT_S))
        await other.receive(TIMEOUT_S)
        receipt = await asyncio.wait_for(sending, TIMEOUT_S)
        assert receipt.confirmed == {other.peer_id}
        assert not receipt.is_roster_complete


async def test_abort_ends_the_wait() -> None:
    async with connected_channels(2) as (author, other):
        await author.wait_for_roster(TIMEOUT_S)
        other._node.pause_reading()
        waiting = asyncio.ensure_future(author.broadcast(b"hello", receipt="all", timeout_s=10 * TIMEOUT_S))
        await eventually(lambda: author._node.peer.receipts.open_count)
        author.abort()
        receipt = await asyncio.wait_for(waiting, TIMEOUT_S)
        assert receipt.missing == {other.peer_id}


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
