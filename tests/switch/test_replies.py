"""Replies and ends (SW-33 to SW-38), over the simulator and over sockets."""

import pytest

from broadloom.switch.handlers import Handler, HandlerCall
from broadloom.switch.model import FailureReason, IfLost, MessageState
from broadloom.switch.patterns import make_pattern
from tests.switch.harness import Program, SimSwitchHarness, SwitchHarness, settle


@pytest.mark.parametrize(
    ("behavior", "reason"),
    [("reply", None), ("refuse", FailureReason.REFUSED), ("decline", FailureReason.ALL_DECLINED)],
)
async def test_sw_33_request_ends_in_exactly_one_reply_or_failure(
    harness: SwitchHarness, behavior: str, reason: FailureReason | None
) -> None:
    sender, program = await harness.add(), await harness.add()
    program.handle("put", behavior=behavior)
    await settle(harness)
    sent = sender.request("put")
    await harness.until(lambda: sent.end)
    assert (sent.reason, sent.states) == (
        reason,
        [MessageState.SENT, MessageState.FAILED if reason else MessageState.HANDLED],
    )
    assert len(sender.core.sender) == 0


async def test_sw_33_notice_has_no_reply(harness: SwitchHarness) -> None:
    sender, program = await harness.add(), await harness.add()
    program.handle("saved")
    await settle(harness)
    sent = sender.notify("saved")
    await harness.until(lambda: sent.end)
    assert sent.end is not None
    assert sent.end.data == b"", "the handler returned something, which is ignored"


async def test_sw_34_without_a_handler_a_request_fails_at_once(harness: SwitchHarness) -> None:
    sender, other = await harness.add(), await harness.add()
    other.handle("something else")
    await settle(harness)
    sent = sender.request("put", timeout_s=100.0)
    assert sent.reason is FailureReason.NO_HANDLER, "without waiting for anything"


async def test_request_waits_for_the_list_of_handlers_and_does_not_fail_before(harness: SwitchHarness) -> None:
    handler = await harness.add()
    handler.handle("put")
    sender = await harness.add()
    assert not sender.core.directory.is_complete
    sent = sender.request("put")
    assert sent.end is None
    await harness.until(lambda: sent.end)
    assert sent.reason is None


async def test_request_times_out_if_the_list_of_handlers_stays_unknown(harness: SwitchHarness) -> None:
    sender = await harness.add()
    sent = sender.request("put", timeout_s=0.01)
    await harness.until(lambda: sent.end)
    assert sent.end is not None
    assert sent.reason is FailureReason.TIMED_OUT
    assert "not known yet" in sent.end.failure_text


async def test_sw_35_notice_without_a_handler_is_discarded_and_observers_have_it(harness: SwitchHarness) -> None:
    sender, observer = await harness.add(), await harness.add()
    entry = observer.observe("saved")
    await settle(harness)
    seen = sender.notify("saved")
    await harness.until(lambda: seen.end and observer.observed)
    assert sender.core.sender.discarded_count == 0, "an observer got it"
    observer.core.remove_observer(entry)
    await settle(harness)
    unseen = sender.notify("saved")
    await harness.until(lambda: unseen.end)
    assert sender.core.sender.discarded_count == 1
    assert len(observer.observed) == 1, "it was not observed as failed"


async def test_sw_36_request_goes_to_the_next_program_if_one_could_not_select(harness: SwitchHarness) -> None:
    sender = await harness.add("anna")
    others = [await harness.add(f"session {number}") for number in range(3)]
    for number, program in enumerate(others):
        program.handle("put", file="alpha", rank=-number, behavior="reply" if number == 2 else "decline")
    await settle(harness)
    sent = sender.request("put", b"abc", file="alpha")
    await harness.until(lambda: sent.end)
    assert sent.end is not None
    assert (sent.end.data, [each.peer_id for each in sent.end.asked]) == (b"cba", [each.id for each in others])


async def test_sw_37_notice_is_answered_when_a_handler_is_selected_and_a_request_when_it_has_ended(
    harness: SwitchHarness,
) -> None:
    sender, program = await harness.add(), await harness.add()
    program.handle("work", behavior="hold")
    await settle(harness)
    request = sender.request("work")
    notice = sender.notify("work")
    await harness.until(lambda: notice.end and len(program.held) == 2)
    assert notice.states == [MessageState.SENT, MessageState.HANDLED]
    assert request.end is None
    program.release()
    program.release()
    await harness.until(lambda: request.end)


@pytest.mark.parametrize("behavior", ["reply", "refuse"])
async def test_sw_38_replies_are_observable(harness: SwitchHarness, behavior: str) -> None:
    sender, program, remote = await harness.add("anna"), await harness.add("anna"), await harness.add("ben")
    program.handle("put", file="alpha", behavior=behavior)
    state = MessageState.HANDLED if behavior == "reply" else MessageState.FAILED
    for observer in (sender, program, remote):
        observer.observe("put", file="alpha", state=state)
    await settle(harness)
    sent = sender.request("put", b"abc", file="alpha")
    await harness.until(lambda: sent.end)
    for observer in (sender, program, remote):
        await harness.until(lambda observer=observer: observer.observed)  # type: ignore[misc]
        (copy,) = observer.observed
        assert (copy.state, copy.handler, copy.data) == (state, program.id, b"abc")
        assert (copy.reply, copy.reason) == ((b"cba", None) if behavior == "reply" else (b"", FailureReason.REFUSED))


async def test_progress_is_reported_to_senders_that_follow(harness: SwitchHarness) -> None:
    sender, program = await harness.add(), await harness.add("anna", "editor")
    program.handle("put", behavior="hold")
    sender.handle("own")
    await settle(harness)
    followed, own = sender.request("put", wants_progress=True), sender.request("own", wants_progress=True)
    await harness.until(lambda: MessageState.ACCEPTED in followed.states)
    assert followed.steps[-1].handler == program.id
    assert followed.steps[-1].handler_program == "editor"
    program.release()
    await harness.until(lambda: followed.end and own.end)
    assert followed.states == own.states == [MessageState.SENT, MessageState.ACCEPTED, MessageState.HANDLED]


async def test_observers_that_name_a_state_of_progress_get_it_once(harness: SwitchHarness) -> None:
    sender, first, second = await harness.add(), await harness.add(), await harness.add("anna", "editor")
    first.handle("put", behavior="decline", rank=1)
    second.handle("put")
    everything, progress = await harness.add(), await harness.add()
    everything.observe("put")
    progress.observe("put", state="accepted")
    await settle(harness)
    sent = sender.request("put", b"abc")
    await harness.until(lambda: sent.end and len(everything.observed) == 2 and progress.observed)
    assert [each.state for each in everything.observed] == [MessageState.SENT, MessageState.HANDLED]
    [copy] = progress.observed
    assert (copy.state, copy.data, copy.handler) == (MessageState.ACCEPTED, b"", first.id), (
        "the second one is not repeated"
    )
    assert sent.states == [MessageState.SENT, MessageState.ACCEPTED, MessageState.ACCEPTED, MessageState.HANDLED]


async def killed_with_request(harness: SwitchHarness, if_lost: IfLost) -> tuple[Program, Program, Program]:
    sender, victim, other = await harness.add(), await harness.add(), await harness.add()
    victim.handle("work", behavior="hold", rank=1)
    other.handle("work")
    await settle(harness)
    sent = sender.request("work", timeout_s=100.0, if_lost=if_lost)
    await harness.until(lambda: victim.held)
    await harness.kill(victim)
    await harness.until(lambda: sent.end)
    expected = FailureReason.HANDLER_DIED if if_lost is IfLost.FAIL else None
    assert sent.reason is expected
    return sender, victim, other


async def test_request_of_a_killed_handler_fails_and_reaches_no_other(harness: SwitchHarness) -> None:
    _, _, other = await killed_with_request(harness, IfLost.FAIL)
    assert not other.handled


async def test_request_of_a_killed_handler_goes_to_the_next_if_the_sender_asks_for_it(harness: SwitchHarness) -> None:
    _, _, other = await killed_with_request(harness, IfLost.NEXT)
    assert len(other.handled) == 1


async def test_request_that_times_out_is_cancelled_at_its_handler(harness: SwitchHarness) -> None:
    sender, program = await harness.add(), await harness.add()
    handler = program.handle("work", behavior="hold")
    own = sender.handle("own work", behavior="hold")
    await settle(harness)
    far, near = sender.request("work", timeout_s=0.3), sender.request("own work", timeout_s=0.3)
    await harness.until(lambda: far.end and near.end)
    assert far.reason is near.reason is FailureReason.TIMED_OUT
    await harness.until(lambda: not handler.running and not own.running)


async def test_requests_that_are_open_when_the_switch_is_closed_end(harness: SwitchHarness) -> None:
    sender, program = await harness.add(), await harness.add()
    program.handle("work", behavior="hold")
    await settle(harness)
    sent = sender.request("work")
    await harness.until(lambda: program.held)
    sender.core.close()
    assert sent.reason is FailureReason.DISCONNECTED
    await harness.until(lambda: program.core.directory.handlers is not None)


async def test_request_that_ends_because_another_is_cancelled_at_the_close_has_one_end() -> None:
    harness = SimSwitchHarness()
    program = await harness.add()
    calls: list[HandlerCall] = []

    def function(call: HandlerCall) -> None:
        calls.append(call)
        if len(calls) == 1:
            call.on_cancel = call.done
        else:
            call.reply(b"at last")
            call.done()

    pattern = make_pattern(True, "own", file=None, scope=None, message_class=None, state=None, rank=0)
    program.core.add_handler(Handler(pattern, function, 1))
    first, second = program.request("own"), program.request("own")
    program.core.close()
    assert first.reason is FailureReason.DISCONNECTED
    assert second.end is not None


async def test_registrations_of_a_dead_program_end(harness: SwitchHarness) -> None:
    sender, victim = await harness.add(), await harness.add()
    victim.handle("work")
    await settle(harness)
    await harness.kill(victim)
    await harness.until(lambda: sender.core.directory.get(victim.id) is None)
    assert sender.request("work").reason is FailureReason.NO_HANDLER
