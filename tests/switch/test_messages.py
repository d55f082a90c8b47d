"""The fields of a message (SW-11 to SW-22), and their encoding."""

import contextlib
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.switch.codec import (
    HandlerCopy,
    ObserverCopy,
    RecordBody,
    Result,
    Verdict,
    decode,
    encode,
    pack_record,
    unpack_record,
)
from broadloom.switch.handlers import cut_text
from broadloom.switch.model import (
    Disposition,
    FailureReason,
    IfLost,
    MessageClass,
    MessageId,
    MessageState,
    Pattern,
    Recipient,
    Scope,
    SwitchMessage,
    SwitchReply,
)
from broadloom.switch.patterns import message_scope
from broadloom.switch.program_types import parse_program_types
from broadloom.wire import WireError
from tests.switch.harness import Program, SwitchHarness, settle


async def test_sw_11_ids_name_the_sender_and_are_unique(harness: SwitchHarness) -> None:
    one, two = await harness.add(), await harness.add()
    sent = [program.request("nobody") for program in (one, two) for _ in range(3)]
    await harness.until(lambda: all(each.end for each in sent))
    ids = [each.end.id for each in sent if each.end]
    assert len(set(ids)) == 6
    assert [each.peer_id for each in ids] == [one.id] * 3 + [two.id] * 3
    assert str(ids[0]) == f"{one.id:016x}.1"


def test_sw_12_scope_is_the_session_unless_a_file_is_named() -> None:
    assert message_scope(None, None) is Scope.SESSION
    assert message_scope("alpha", None) is Scope.FILE
    assert message_scope("alpha", "file_in_session") is Scope.FILE_IN_SESSION
    assert message_scope("alpha", Scope.FILE_OR_SESSION) is Scope.FILE_OR_SESSION
    assert [scope for scope in Scope if scope.is_local] == [Scope.SESSION, Scope.FILE_IN_SESSION]
    for file, scope in ((None, "file"), ("alpha", "session"), ("alpha", "galaxy")):
        with pytest.raises(ValueError, match="scope="):
            message_scope(file, scope)


@pytest.mark.parametrize("recipient", list(Recipient))
async def test_sw_13_recipient_is_handler_observers_or_both(harness: SwitchHarness, recipient: Recipient) -> None:
    sender, program, barrier = await harness.add(), await harness.add(), await harness.add()
    program.handle("saved")
    program.observe("saved", state="sent")
    program.observe("barrier")
    await settle(harness)
    sent = sender.notify("saved", recipient=recipient)
    await harness.until(lambda: sent.end)
    sender.notify("barrier")
    await harness.until(lambda: program.observed and program.observed[-1].operation == "barrier")
    assert len(program.handled) == (recipient is not Recipient.OBSERVERS)
    assert len(program.observed) - 1 == (recipient is not Recipient.HANDLER)
    assert not barrier.observed


async def test_sw_14_dispatch_list_has_every_copy_with_session_and_time(harness: SwitchHarness) -> None:
    sender, declining, handling = await harness.add("anna"), await harness.add("ben"), await harness.add("cleo")
    declining.handle("put", file="alpha", rank=2, behavior="decline")
    handling.handle("put", file="alpha", rank=1)
    handling.observe("put", file="alpha")
    await settle(harness)
    sent = sender.request("put", file="alpha")
    await harness.until(lambda: sent.end)
    assert sent.end is not None
    listed = [(each.peer_id, each.session, each.recipient) for each in sent.end.asked]
    assert listed == [
        (handling.id, "cleo", Recipient.OBSERVERS),
        (declining.id, "ben", Recipient.HANDLER),
        (handling.id, "cleo", Recipient.HANDLER),
    ], "a copy for observers does not count as one for handlers"
    times = [each.sent_at_s for each in sent.end.asked]
    assert times == sorted(times)


class Exchange(NamedTuple):
    """A request and a notice of `sender`, which `handler` has got."""

    sender: Program
    handler: Program
    request: SwitchMessage
    notice: SwitchMessage
    reply: SwitchReply


@pytest.fixture
async def exchange(harness: SwitchHarness) -> Exchange:
    sender, handler = await harness.add("anna", "shell"), await harness.add("ben", "editor")
    handler.handle("put", file="alpha")
    await settle(harness)
    request = sender.request("put", b"arguments", file="alpha", scope=Scope.FILE_OR_SESSION)
    await harness.until(lambda: request.end)
    assert request.end is not None
    sender.notify("put", file="alpha")
    await harness.until(lambda: len(handler.handled) == 2)
    got, notice = handler.handled
    return Exchange(sender, handler, got, notice, request.end)


async def test_sw_15_handler_gets_the_session_of_the_sender(exchange: Exchange) -> None:
    assert exchange.request.session == exchange.notice.session == "anna"


async def test_sw_16_handler_gets_the_file_and_the_scope(exchange: Exchange) -> None:
    assert (exchange.request.file, exchange.request.scope) == ("alpha", Scope.FILE_OR_SESSION)
    assert (exchange.notice.file, exchange.notice.scope) == ("alpha", Scope.FILE)


async def test_sw_17_class_is_request_or_notice(exchange: Exchange) -> None:
    assert list(MessageClass) == [MessageClass.REQUEST, MessageClass.NOTICE]
    assert exchange.request.message_class is MessageClass.REQUEST
    assert exchange.notice.message_class is MessageClass.NOTICE


async def test_sw_18_message_is_created_by_default_and_sent_when_a_handler_gets_it(exchange: Exchange) -> None:
    made = SwitchMessage(MessageId(1, 1), MessageClass.REQUEST, Scope.SESSION, Recipient.BOTH, "anna", "", "put", b"")
    assert made.state is MessageState.CREATED
    assert exchange.request.state is exchange.notice.state is MessageState.SENT


async def test_sw_19_handler_gets_the_operation_and_its_arguments(exchange: Exchange) -> None:
    assert (exchange.request.operation, exchange.request.data) == ("put", b"arguments")


async def test_sw_20_sender_and_handler_are_known_with_their_program_types(exchange: Exchange) -> None:
    assert (exchange.request.sender, exchange.request.sender_program) == (exchange.sender.id, "shell")
    assert (exchange.reply.handler, exchange.reply.handler_program) == (exchange.handler.id, "editor")


def test_sw_18_states_are_those_of_the_document_and_accepted() -> None:
    assert [state.name for state in MessageState] == [
        "CREATED", "SENT", "QUEUED", "STARTED", "ACCEPTED", "HANDLED", "FAILED",
    ]  # fmt: skip


def test_sw_21_dispositions_are_queue_start_and_fail() -> None:
    assert {each.name for each in Disposition} == {"DEFAULT", "FAIL", "START", "QUEUE"}


@pytest.mark.parametrize("disposition", [Disposition.DEFAULT, Disposition.FAIL])
async def test_sw_21_request_for_a_program_that_does_not_run_fails_by_default(
    harness: SwitchHarness, disposition: Disposition
) -> None:
    fields = {"start": ["starcalc"], "handles": [{"operation": "calc"}]}
    types = parse_program_types({"programs": {"starcalc": fields}})
    assert types["starcalc"].handles[0].disposition is Disposition.FAIL
    sender = await harness.add()
    await harness.add(programs=types)
    await settle(harness)
    sent = sender.request("calc", disposition=disposition)
    await harness.until(lambda: sent.end)
    assert sent.states == [MessageState.SENT, MessageState.FAILED], "neither queued nor started"
    assert sent.reason is FailureReason.NO_HANDLER


def test_sw_22_failure_reasons_are_a_fixed_list() -> None:
    assert [reason.name for reason in FailureReason] == [
        "NO_HANDLER", "ALL_DECLINED", "REFUSED", "HANDLER_DIED", "TIMED_OUT", "NOT_STARTED", "QUEUE_FULL", "EXPIRED",
        "TOO_LARGE", "NOT_ALLOWED", "DISCONNECTED",
    ]  # fmt: skip


async def test_sw_22_message_has_no_failure_reason_unless_it_has_failed(
    harness: SwitchHarness, exchange: Exchange
) -> None:
    assert (exchange.request.reason, exchange.notice.reason, exchange.reply.reason) == (None, None, None)
    failed = exchange.sender.request("nobody")
    await harness.until(lambda: failed.end)
    assert failed.end is not None
    assert (failed.end.state, failed.end.reason) == (MessageState.FAILED, FailureReason.NO_HANDLER)


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
PATTERNS = st.builds(
    Pattern,
    st.booleans(),
    st.tuples(NAMES),
    st.none() | st.sampled_from(MessageClass),
    st.none() | st.sampled_from(Scope),
    st.none() | st.tuples() | st.tuples(NAMES, NAMES),
    st.none() | st.sampled_from(MessageState),
    st.integers(-1_000_000, 1_000_000),
    NAMES,
    st.sampled_from(Disposition),
)
MESSAGES = st.builds(
    SwitchMessage,
    st.builds(MessageId, st.integers(0, (1 << 64) - 1), st.integers(0, 1 << 40)),
    st.sampled_from(MessageClass),
    st.sampled_from(Scope),
    st.sampled_from(Recipient),
    NAMES,
    NAMES,
    NAMES,
    st.binary(max_size=100),
    NAMES,
    st.sampled_from(MessageState),
    st.sampled_from(Disposition),
    st.sampled_from(IfLost),
    st.booleans(),
    st.integers(0, (1 << 64) - 1),
    NAMES,
    st.none() | st.sampled_from(FailureReason),
    NAMES,
    st.binary(max_size=100),
)


@settings(max_examples=30)
@given(MESSAGES, NAMES, st.integers(0, 1 << 40))
def test_copies_survive_encoding(message: SwitchMessage, program: str, timeout_ms: int) -> None:
    copy = HandlerCopy(message, program, timeout_ms)
    assert decode(encode(copy)) == copy
    assert decode(encode(ObserverCopy(message))) == ObserverCopy(message)


@settings(max_examples=30)
@given(st.lists(PATTERNS, max_size=5), NAMES, NAMES, st.integers(0, 1 << 60))
def test_registrations_survive_encoding(patterns: list[Pattern], session: str, program: str, version: int) -> None:
    body = RecordBody(version, session, program, False, tuple(patterns), ())
    assert unpack_record(pack_record(body)) == body


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_wire_error_or_decode(data: bytes) -> None:
    for candidate in (data, b"BS\x01" + data):
        with contextlib.suppress(WireError):
            decode(candidate)
    with contextlib.suppress(WireError):
        unpack_record(data)


def test_decompression_bomb_is_rejected() -> None:
    import zlib

    with pytest.raises(WireError, match=r"too large|damaged"):
        unpack_record(zlib.compress(bytes(9 << 20)))


def test_failure_text_is_cut_to_what_the_wire_carries() -> None:
    text = cut_text("é" * 10_000 + "\0the end")
    assert text.endswith("the end")
    assert len(text.encode()) <= 4096
    result = Result(Verdict.FAILED, FailureReason.NOT_STARTED, text)
    assert result.text == text
