"""Registrations and their patterns (SW-1 to SW-10), over the simulator and over sockets."""

import pytest

from broadloom.switch import HandledRequest, Switch
from broadloom.switch.model import FailureReason, MessageClass, MessageState, Scope
from tests.channel.joined import connected_channels
from tests.support import TIMEOUT_S, eventually
from tests.switch.harness import SwitchHarness, settle

NO_HANDLER = FailureReason.NO_HANDLER


async def test_sw_1_programs_of_one_session_are_local_to_each_other(harness: SwitchHarness) -> None:
    sender, local, remote = await harness.add("anna"), await harness.add("anna"), await harness.add("ben")
    local.handle("open")
    remote.handle("open", rank=100)
    await settle(harness)
    sent = sender.request("open")
    await harness.until(lambda: sent.end)
    assert (len(local.handled), len(remote.handled)) == (1, 0)


async def test_sw_2_sender_names_a_scope_and_no_receiver(harness: SwitchHarness) -> None:
    sender, handler = await harness.add("anna"), await harness.add("ben")
    handler.handle("put", file="alpha")
    await settle(harness)
    sent = sender.request("put", b"abc", file="alpha")
    await harness.until(lambda: sent.end)
    assert sent.end is not None
    assert (sent.end.state, sent.end.data, sent.end.handler) == (MessageState.HANDLED, b"cba", handler.id)


async def test_sw_3_program_registers_once_and_replies_reach_it(harness: SwitchHarness) -> None:
    one, two = await harness.add(), await harness.add()
    one.handle("to one")
    two.handle("to two")
    await settle(harness)
    sent = [one.request("to two"), two.request("to one"), one.request("to one")]
    await harness.until(lambda: all(each.end for each in sent))
    assert [each.end.handler for each in sent if each.end] == [two.id, one.id, one.id]
    registered = one.core.directory.registrations()
    assert [each.peer_id for each in registered] == sorted([one.id, two.id]), "one registration each"


async def test_sw_4_registration_has_patterns_and_a_program_type(harness: SwitchHarness) -> None:
    one, two = await harness.add("anna", "editor"), await harness.add("ben")
    one.handle(["open", "close"], file="alpha")
    one.observe("saved")
    await settle(harness)
    body = two.core.directory.get(one.id)
    assert body is not None
    assert (body.session, body.program, len(body.patterns)) == ("anna", "editor", 2)


async def test_sw_4_program_is_signaled_in_the_ways_that_it_has_registered() -> None:
    async with (
        connected_channels(2) as (here, there),
        Switch(here, session="anna") as sender,
        Switch(there, session="anna") as program,
    ):
        called: list[str] = []

        @program.handle("saved")
        def handle(request: HandledRequest) -> None:
            called.append(f"handler of {request.operation}")

        program.observe("saved", lambda message: called.append(f"observer of {message.operation}"), state="sent")
        iterated = program.observe("saved", state="sent")
        polled = program.observe("saved", state="sent")
        await sender.wait_for_handler("saved", timeout_s=TIMEOUT_S)
        await sender.wait_until_complete(timeout_s=TIMEOUT_S)
        assert await sender.notify("saved", timeout_s=TIMEOUT_S) is MessageState.HANDLED
        await eventually(lambda: len(called) == 2 and polled.unread_count)
        assert sorted(called) == ["handler of saved", "observer of saved"]
        assert (await anext(aiter(iterated))).operation == "saved"
        copy = polled.receive_nowait()
        assert copy is not None
        assert copy.operation == "saved"
        assert polled.receive_nowait() is None


async def test_sw_5_registrations_are_added_and_removed_in_parts(harness: SwitchHarness) -> None:
    sender, program = await harness.add(), await harness.add()
    first = program.handle("first")
    await settle(harness)
    program.handle("second")
    program.core.remove_handler(first)
    await settle(harness)
    gone, there = sender.request("first"), sender.request("second")
    await harness.until(lambda: gone.end and there.end)
    assert (gone.reason, there.reason) == (NO_HANDLER, None)


@pytest.mark.parametrize(
    ("pattern", "is_matched"),
    [
        ({"operation": None}, True),
        ({"operation": ["other", "put"]}, True),
        ({"operation": "other"}, False),
        ({"operation": "put", "message_class": "request"}, True),
        ({"operation": "put", "message_class": "notice"}, False),
        ({"operation": "put", "scope": "file"}, True),
        ({"operation": "put", "scope": "session"}, False),
        ({"operation": "put", "file": ["beta", "alpha"]}, True),
        ({"operation": "put", "file": "beta"}, False),
        ({"operation": "put", "state": "sent"}, True),
        ({"operation": "put", "state": "failed"}, False),
    ],
)
async def test_sw_6_what_a_pattern_does_not_name_matches_everything(pattern: dict, is_matched: bool) -> None:
    from broadloom.switch.model import MessageId, Recipient, SwitchMessage
    from broadloom.switch.patterns import make_pattern

    message = SwitchMessage(
        MessageId(1, 1), MessageClass.REQUEST, Scope.FILE, Recipient.BOTH, "anna", "alpha", "put", b""
    )._replace(state=MessageState.SENT)
    options = {"file": None, "scope": None, "message_class": None, "state": None, **pattern}
    made = make_pattern(False, options.pop("operation"), rank=0, **options)
    assert made.matches(message, is_local=True) == is_matched


@pytest.mark.parametrize("scope", ["file_in_session", "file_or_session"])
async def test_sw_7_pattern_may_name_an_intersection_or_a_union(harness: SwitchHarness, scope: str) -> None:
    sender, program = await harness.add(), await harness.add()
    program.handle("put", file="alpha", scope=scope)
    await settle(harness)
    matching = sender.request("put", file="alpha", scope=Scope[scope.upper()])
    other = sender.request("put", file="alpha", scope=Scope.FILE)
    await harness.until(lambda: matching.end and other.end)
    assert (matching.reason, other.reason) == (None, NO_HANDLER)


async def test_sw_8_adding_a_file_widens_all_file_patterns_and_removing_narrows_them(harness: SwitchHarness) -> None:
    sender, program = await harness.add(), await harness.add()
    scopes = {"one": "file", "two": "file_in_session", "three": "file_or_session"}
    for operation, scope in scopes.items():
        program.handle(operation, file="alpha", scope=scope)
    program.handle("four", scope="session")
    program.core.add_file("beta")
    program.core.remove_file("alpha")
    await settle(harness)
    wide = [sender.request(name, file="beta", scope=Scope[each.upper()]) for name, each in scopes.items()]
    narrow = [sender.request(name, file="alpha", scope=Scope[each.upper()]) for name, each in list(scopes.items())[:2]]
    session = sender.request("four")
    await harness.until(lambda: session.end and all(each.end for each in wide + narrow))
    assert [each.reason for each in wide] == [None] * 3
    assert [each.reason for each in narrow] == [NO_HANDLER] * 2
    assert session.reason is None


async def test_sw_10_session_joins_a_file_with_its_first_program_and_quits_with_its_last(
    harness: SwitchHarness,
) -> None:
    one, two, other = await harness.add("anna"), await harness.add("anna"), await harness.add("ben")
    handler = one.handle("put", file="alpha")
    observer = two.observe("put", file="alpha")
    await settle(harness)
    (join,) = other.core.directory.joins("alpha")
    assert join.session == "anna"
    assert join.joined_at_ms == max(
        each.joined_at_ms
        for program in (one, two)
        for each in other.core.directory.get(program.id).files  # type: ignore[union-attr]
    ), "the most recent join"
    one.core.remove_handler(handler)
    await settle(harness)
    assert [each.session for each in other.core.directory.joins("alpha")] == ["anna"]
    two.core.remove_observer(observer)
    await settle(harness)
    assert other.core.directory.joins("alpha") == []
