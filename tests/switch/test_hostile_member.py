"""Hostile members: a stranger that handles, forged registrations, copies and replies, a queue filled by one sender."""

import secrets
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

import broadloom
from broadloom import Authority, Channel, Role
from broadloom.switch import FailureReason, HandledRequest, MessageState, RequestFailedError, Switch, settings
from broadloom.switch.codec import (
    Announcement,
    HandlerCopy,
    HandlerResult,
    ObserverCopy,
    Progress,
    QueuedResult,
    RecordBody,
    Records,
    Result,
    SignedRegistration,
    SwitchWireMessage,
    Verdict,
    decode,
    encode,
    pack_record,
)
from broadloom.switch.model import (
    MessageClass,
    MessageId,
    Pattern,
    Recipient,
    Scope,
    SwitchMessage,
)
from tests.channel.joined import QUICK, connected_channels, unique_name
from tests.support import TIMEOUT_S, eventually
from tests.switch.harness import SimSwitchHarness, SwitchHarness, settle
from tests.switch.test_queues import QUEUED

HANDLES_ALL = (Pattern(True, rank=1_000_000),)


class Attacker:
    """A member without a switch of its own, which speaks its messages."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.layer = channel.layer(settings.LAYER, lambda _batch: None)

    async def broadcast(self, message: SwitchWireMessage | bytes) -> None:
        await self.layer.broadcast(message if isinstance(message, bytes) else encode(message))

    async def ask(self, victim: Switch, message: SwitchWireMessage) -> Result:
        reply = await self.layer.request(victim.channel.peer_id, encode(message), timeout_s=TIMEOUT_S)
        result = decode(reply.data)
        assert isinstance(result, HandlerResult)
        return result.result

    async def tell(self, victim: Switch, message: SwitchWireMessage) -> None:
        await self.layer.tell(victim.channel.peer_id, encode(message), timeout_s=TIMEOUT_S)

    def sign(self, body: bytes) -> bytes:
        return self.channel._node.peer.roster.sign(b"broadloom switch registration\0", body)

    def record(self, session: str, patterns: tuple[Pattern, ...] = HANDLES_ALL) -> Announcement:
        body = pack_record(RecordBody(1 << 50, session, "", False, patterns, ()))
        return Announcement(True, body, self.sign(body))


def message_of(sender: int, session: str = "anna", **fields: object) -> SwitchMessage:
    options = {"file": "", "operation": "put", "data": b"forged", **fields}
    return SwitchMessage(
        MessageId(sender, 1),
        MessageClass.REQUEST,
        Scope.SESSION,
        Recipient.HANDLER,
        session,
        **options,  # type: ignore[arg-type]
    )


@asynccontextmanager
async def ticket_channels(*names: str) -> AsyncIterator[list[Channel]]:
    authority, tomorrow = Authority.generate(), datetime.now(UTC) + timedelta(days=1)
    channels: list[Channel] = []
    name = unique_name()
    try:
        for each in names:
            ticket = authority.issue_ticket(each, Role.PRODUCER, tomorrow)
            channels.append(await broadloom.connect(name, ticket=ticket, settings=QUICK))
        yield channels
    finally:
        for channel in channels:
            channel.abort()


def echo(request: HandledRequest) -> bytes:
    return request.data


async def test_stranger_does_not_handle_in_a_session_that_its_ticket_does_not_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "UNRESPONSIVE_S", 1.0)
    async with ticket_channels("anna", "anna", "mallory") as (here, there, stranger):
        with pytest.raises(broadloom.NotPermittedError, match="the session must be 'mallory'"):
            Switch(stranger, session="anna")
        async with Switch(here) as sender, Switch(there, session="anna/editor") as other:
            assert (sender.session, other.session) == ("anna", "anna/editor")
            attacker = Attacker(stranger)
            await eventually(lambda: here.member(stranger.peer_id))
            await attacker.broadcast(attacker.record("anna"))
            await eventually(lambda: sender.status().forged_count == 1)
            with pytest.raises(RequestFailedError) as failed:
                await sender.request("put", timeout_s=TIMEOUT_S)
            assert failed.value.reason is FailureReason.NO_HANDLER
            copy = HandlerCopy(message_of(stranger.peer_id), "", 1000)
            other.handle("put")(echo)
            result = await attacker.ask(other, copy)
            assert (result.verdict, result.reason) == (Verdict.DECLINED, FailureReason.NOT_ALLOWED)


async def test_registration_in_the_name_of_another_member_is_rejected() -> None:
    key = secrets.token_hex(16)
    async with (
        connected_channels(3, tls=True, key=key) as (here, there, stranger),
        Switch(here, session="anna") as sender,
        Switch(there, session="anna") as program,
    ):
        program.handle("put")(echo)
        attacker = Attacker(stranger)
        await sender.wait_for_handler("put", timeout_s=TIMEOUT_S)
        body = pack_record(RecordBody(1 << 50, "anna", "", False, (), ()))
        for signature in (b"", attacker.sign(body), secrets.token_bytes(64)):
            sender._core.directory.add(SignedRegistration(there.peer_id, body, signature))
        assert sender.status().forged_count == 3
        assert (await sender.request("put", b"still", timeout_s=TIMEOUT_S)).data == b"still"


async def test_member_that_claims_to_handle_everything_and_declines_costs_one_round_trip() -> None:
    async with (
        connected_channels(3) as (here, there, stranger),
        Switch(here, session="anna") as sender,
        Switch(there, session="anna") as program,
    ):
        program.handle("put")(echo)
        attacker = Attacker(stranger)
        await sender.wait_for_handler("put", timeout_s=TIMEOUT_S)
        await eventually(lambda: here.member(stranger.peer_id))
        await attacker.broadcast(attacker.record("anna"))
        await eventually(lambda: len(sender._core.handler_ids("put", Scope.SESSION, "")) == 2)
        reply = await sender.request("put", b"data", timeout_s=TIMEOUT_S)
        assert [each.peer_id for each in reply.asked] == [stranger.peer_id, there.peer_id]
        attacker.layer.on_request(lambda _request: b"garbage")
        with pytest.raises(RequestFailedError, match="malformed reply"):
            await sender.request("put", b"data", timeout_s=TIMEOUT_S)


async def test_forged_replies_and_progress_are_ignored() -> None:
    async with (
        connected_channels(3) as (here, there, stranger),
        Switch(here, session="anna") as sender,
        Switch(there, session="anna", programs=QUEUED) as host,
    ):
        attacker = Attacker(stranger)
        await eventually(lambda: len(sender.registrations()) == 2)
        steps = []

        async def follow() -> None:
            async for step in sender.follow("calc", timeout_s=2):
                steps.append(step)

        following = here._loop.create_task(follow())
        await eventually(host.queue)
        forged = Result(Verdict.HANDLED, data=b"forged", handler=there.peer_id)
        for counter in range(1, 4):
            await attacker.tell(sender, QueuedResult(counter, forged))
            await attacker.tell(sender, Progress(counter, MessageState.ACCEPTED, "calc"))
        await eventually(lambda: sender.status().forged_count == 3)
        await following
        assert [step.state for step in steps] == [MessageState.SENT, MessageState.QUEUED, MessageState.FAILED]
        assert steps[-1].reason in (FailureReason.TIMED_OUT, FailureReason.EXPIRED)


async def test_copies_in_the_name_of_another_member_are_not_handled_or_observed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "UNRESPONSIVE_S", 1.0)
    async with (
        connected_channels(3) as (here, there, stranger),
        Switch(here, session="anna", program="starcalc") as victim,
        Switch(there, session="anna", programs=QUEUED) as host,
    ):
        handled: list[bytes] = []
        observed: list[object] = []
        victim.handle("put")(lambda request: handled.append(request.data))
        victim.observe("put", observed.append)
        attacker = Attacker(stranger)
        await eventually(lambda: len(victim.registrations()) == 2 and len(host.registrations()) == 2)
        for program in ("", "starcalc", "other"):
            result = await attacker.ask(victim, HandlerCopy(message_of(there.peer_id), program, 1000))
            assert (result.verdict, result.reason) == (Verdict.DECLINED, FailureReason.NOT_ALLOWED)
        before = victim.status().forged_count
        await attacker.broadcast(ObserverCopy(message_of(there.peer_id)))
        await eventually(lambda: victim.status().forged_count == before + 1)
        assert (handled, observed) == ([], [])


async def test_garbage_is_counted_and_the_victim_goes_on() -> None:
    async with (
        connected_channels(2) as (here, stranger),
        Switch(here, session="anna") as victim,
    ):
        victim.handle("put")(echo)
        attacker = Attacker(stranger)
        for garbage in (b"", b"BS", b"BS\x01\x63", b"BS\x02\x01", b"BS\x01\x01" + bytes(40), secrets.token_bytes(100)):
            await attacker.layer.broadcast(garbage or b"\0")
        await eventually(lambda: victim.status().malformed_count >= 5)
        with pytest.raises(broadloom.RefusedError, match="malformed"):
            await attacker.layer.request(here.peer_id, b"garbage", timeout_s=TIMEOUT_S)
        await attacker.layer.tell(here.peer_id, encode(Records(())), timeout_s=TIMEOUT_S)
        result = await attacker.ask(victim, HandlerCopy(message_of(stranger.peer_id), "", 1000))
        assert result.verdict is Verdict.HANDLED


async def test_too_large_registration_is_rejected() -> None:
    async with connected_channels(2) as (here, stranger), Switch(here, session="anna") as victim:
        attacker = Attacker(stranger)
        await eventually(lambda: here.member(stranger.peer_id))
        bomb = zlib.compress(bytes(9 << 20), 9)
        await attacker.broadcast(Announcement(True, bomb, b""))
        await eventually(lambda: victim.status().forged_count == 1)
        assert victim._core.directory.get(stranger.peer_id) is None


async def test_one_sender_cannot_fill_the_queue(harness: SwitchHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "QUEUE_SENDER_MESSAGES_MAX", 5)
    monkeypatch.setattr(settings, "QUEUE_SENDER_BYTES_MAX", 1000)
    monkeypatch.setattr(settings, "QUEUE_MESSAGES_MAX", 8)
    greedy, modest, third = await harness.add(), await harness.add(), await harness.add()
    host = await harness.add(programs=QUEUED)
    await settle(harness)
    sent = [greedy.request("calc", b"x", timeout_s=30.0) for _ in range(20)]
    await harness.until(lambda: sum(each.end is not None for each in sent) == 15)
    assert {each.reason for each in sent if each.end} == {FailureReason.QUEUE_FULL}
    large = modest.request("calc", bytes(2000))
    small = modest.request("calc", b"small", timeout_s=30.0)
    await harness.until(lambda: large.end and small.states[-1] is MessageState.QUEUED)
    assert large.reason is FailureReason.QUEUE_FULL
    rest = [third.request("calc", b"x", timeout_s=30.0) for _ in range(5)]
    await harness.until(lambda: sum(each.end is not None for each in rest) == 3)
    assert len(host.core.host.queued()) == 8, "the limit of all senders together"


async def test_limit_of_handlers_applies_to_each_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "HANDLER_WAITING_MAX", 3)
    harness = SimSwitchHarness()
    greedy, other, program = await harness.add(), await harness.add(), await harness.add()
    program.handle("slow", behavior="hold", concurrency=1)
    program.handle("quick")
    await settle(harness)
    slow = [greedy.request("slow", timeout_s=20.0) for _ in range(10)]
    await harness.until(lambda: sum(each.end is not None for each in slow) == 6)
    assert {each.reason for each in slow if each.end} == {FailureReason.QUEUE_FULL}
    quick = other.request("quick")
    await harness.until(lambda: quick.end)
    assert quick.reason is None


async def test_member_that_does_not_send_its_registration_counts_as_one_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "UNRESPONSIVE_S", 1.0)
    async with connected_channels(2) as (here, stranger), Switch(here, session="anna") as sender:
        Attacker(stranger)
        await eventually(lambda: settings.LAYER in getattr(here.member(stranger.peer_id), "layers", ()))
        with pytest.raises(RequestFailedError) as failed:
            await sender.request("put", timeout_s=TIMEOUT_S)
        assert failed.value.reason is FailureReason.NO_HANDLER
