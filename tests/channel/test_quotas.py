"""Quotas on real sockets: an honest author waits, and is never cut."""

import asyncio

import pytest

import broadloom
from broadloom import (
    BusyError,
    ChannelCard,
    MessageTooLargeError,
    Quota,
    QuotaExceeded,
    QuotaExceededError,
    SignedCard,
)
from broadloom.protocol.owner import meter, quotas
from tests.channel.joined import receive_texts
from tests.channel.owned import OwnedChannel, owned_channel
from tests.support import eventually


@pytest.fixture(autouse=True)
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members are counted from the start."""
    monkeypatch.setattr(meter, "GRACE_S", 0.0)
    monkeypatch.setattr(quotas, "GRACE_S", 0.0)


async def publish(club: OwnedChannel, quota: Quota, role: str = "producer") -> None:
    await club.members[0].publish(SignedCard.sign(club.owner, ChannelCard(club.name, quotas={role: quota})))
    await eventually(lambda: all(member.card is not None for member in club.members))


async def test_author_waits_for_its_quota_and_is_not_held_back() -> None:
    async with owned_channel(3) as club:
        await publish(club, Quota(messages_per_s=50, burst_s=1))
        for number in range(100):
            await club.members[1].broadcast_text(str(number))
        assert await receive_texts(club.members[2], 100) == [str(number) for number in range(100)]
        assert not club.counter_total("quota_held")
        assert not club.events_of(club.members[2], QuotaExceeded)


async def test_concurrent_broadcasts_keep_to_the_quota_together() -> None:
    async with owned_channel(2) as club:
        await publish(club, Quota(messages_per_s=40, burst_s=1))
        await asyncio.gather(*(club.members[1].broadcast(b"%d" % number) for number in range(60)))
        assert len(await receive_texts(club.members[0], 60)) == 60
        assert not club.counter_total("quota_held")


async def test_large_messages_are_paced_by_fragments() -> None:
    async with owned_channel(2) as club:
        await publish(club, Quota(bytes_per_s=1 << 20, burst_s=1))
        await club.members[1].broadcast(bytes(1 << 20))
        await club.members[1].broadcast(bytes(300_000))
        assert [len((await club.members[0].receive(20)).data) for _ in range(2)] == [1 << 20, 300_000]
        assert not club.counter_total("quota_held")


async def test_message_that_is_too_large_raises_before_it_is_sent() -> None:
    async with owned_channel(2) as club:
        await publish(club, Quota(bytes_per_s=1000, message_bytes_max=2000))
        for size in (2001, 100_000):
            with pytest.raises(MessageTooLargeError, match="the channel's card allows at most 2,000"):
                await club.members[1].broadcast(bytes(size))
            with pytest.raises(MessageTooLargeError, match="the channel's card allows at most 2,000"):
                club.members[1].broadcast_nowait(bytes(size))
        await club.members[1].broadcast(bytes(2000))
        assert len((await club.members[0].receive(20)).data) == 2000


async def test_message_beyond_the_burst_raises() -> None:
    async with owned_channel(1) as club:
        await publish(club, Quota(bytes_per_s=1000, burst_s=2))
        with pytest.raises(MessageTooLargeError, match="more than the quota on the channel's card ever allows"):
            await club.members[0].broadcast(bytes(2001))


async def test_broadcast_nowait_raises_when_the_quota_is_used_up() -> None:
    async with owned_channel(1) as club:
        await publish(club, Quota(messages_per_s=0.5, burst_s=4))
        club.members[0].broadcast_nowait(b"one")
        club.members[0].broadcast_nowait(b"two")
        with pytest.raises(QuotaExceededError, match="use broadcast, which waits"):
            club.members[0].broadcast_nowait(b"three")


async def test_broadcast_nowait_in_another_thread_raises_and_takes_nothing_from_the_quota() -> None:
    async with owned_channel(1) as club:
        await publish(club, Quota(messages_per_s=0.001))
        for _ in range(2):
            with pytest.raises(RuntimeError, match="belongs to the event loop and thread that joined it"):
                await asyncio.to_thread(club.members[0].broadcast_nowait, b"from a thread")
        club.members[0].broadcast_nowait(b"the only one")


async def test_waiting_author_goes_on_when_a_new_card_lifts_the_quota() -> None:
    async with owned_channel(2) as club:
        await publish(club, Quota(messages_per_s=0.001))
        await club.members[1].broadcast(b"the only one")
        waiting = asyncio.create_task(club.members[1].broadcast(b"waits"))
        await asyncio.sleep(0)
        await club.members[0].publish(SignedCard.sign(club.owner, ChannelCard(club.name)))
        async with asyncio.timeout(20):
            await waiting


async def test_quota_is_for_one_role() -> None:
    async with owned_channel(2) as club:
        await publish(club, Quota(messages_per_s=0.001), role="consumer")
        for _ in range(20):
            await club.members[1].broadcast(b"free")
        assert club.members[1]._pacer is None


async def test_requests_wait_for_the_quota_and_those_beyond_it_are_refused() -> None:
    async with owned_channel(2) as club:
        await publish(club, Quota(requests_per_s=1, burst_s=3))
        server, caller = club.members
        server.on_request(lambda request: request.data)
        for _ in range(3):
            await caller.request(server.peer_id, b"one", timeout_s=20)
        with pytest.raises(BusyError, match="the quota on the channel's card does not allow it in time"):
            await caller.request(server.peer_id, b"no time", timeout_s=0.1)
        caller._node.peer.requests.pacer = None  # a caller that does not keep to it
        outcomes = [await outcome_of_request(caller, server.peer_id) for _ in range(30)]
        assert "RefusedError" in outcomes
        assert outcomes[-1] == "PeerGoneError"
        assert server.status().counters["quota_refused_requests"] >= outcomes.count("RefusedError")
        (named,) = club.events_of(server, QuotaExceeded)
        assert (named.peer_id, named.what, named.allowed) == (caller.peer_id, "requests", 1)


async def outcome_of_request(caller: broadloom.Channel, peer_id: broadloom.PeerId) -> str:
    try:
        await caller.request(peer_id, b"more", timeout_s=20)
    except broadloom.RequestError as problem:
        return type(problem).__name__
    return "replied"
