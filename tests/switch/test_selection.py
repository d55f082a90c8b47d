"""Selection of handlers and observers (SW-23 to SW-29), over the simulator and over sockets."""

from broadloom.switch.model import FailureReason, MessageState, Recipient, Scope
from tests.switch.harness import SwitchHarness, settle


async def test_sw_23_at_most_one_handler_and_any_number_of_observers_whatever_the_class(
    harness: SwitchHarness,
) -> None:
    programs = [await harness.add() for _ in range(4)]
    for program in programs[1:]:
        program.handle(["ask", "tell"])
        program.observe(["ask", "tell"], state="sent")
    await settle(harness)
    request, notice = programs[0].request("ask"), programs[0].notify("tell")
    await harness.until(lambda: request.end and notice.end)
    await harness.until(lambda: all(len(program.observed) == 2 for program in programs[1:]))
    handled = [message.operation for program in programs for message in program.handled]
    assert sorted(handled) == ["ask", "tell"]
    assert [[each.operation for each in program.observed] for program in programs[1:]] == [["ask", "tell"]] * 3


async def test_sw_25_session_scope_stays_in_the_session_and_file_scope_does_not(harness: SwitchHarness) -> None:
    sender, remote = await harness.add("anna"), await harness.add("ben")
    remote.handle(["in session", "in file"])
    remote.handle("in file", file="alpha")
    remote.observe(state="sent")
    await settle(harness)
    local, far = sender.request("in session"), sender.request("in file", file="alpha")
    await harness.until(lambda: local.end and far.end)
    await harness.until(lambda: remote.observed)
    assert local.reason is FailureReason.NO_HANDLER
    assert far.reason is None
    assert [each.operation for each in remote.observed] == ["in file"]


async def test_sw_26_of_several_local_handlers_only_the_highest_rank_gets_a_copy(harness: SwitchHarness) -> None:
    sender, low, high = [await harness.add() for _ in range(3)]
    low.handle("put", rank=1)
    high.handle("put", rank=2)
    sender.handle("put", rank=-1)
    await settle(harness)
    sent = [sender.request("put") for _ in range(3)]
    await harness.until(lambda: all(each.end for each in sent))
    assert [len(each.handled) for each in (sender, low, high)] == [0, 0, 3]


async def test_equal_ranks_take_turns(harness: SwitchHarness) -> None:
    sender, *workers = [await harness.add() for _ in range(4)]
    for worker in workers:
        worker.handle("work", behavior="hold")
    await settle(harness)
    sent = [sender.request("work") for _ in range(6)]
    await harness.until(lambda: sum(len(worker.held) for worker in workers) == 6)
    assert [len(worker.held) for worker in workers] == [2, 2, 2]
    for worker in workers:
        while worker.held:
            worker.release()
    await harness.until(lambda: all(each.end for each in sent))


async def test_sw_27_remote_observers_get_one_copy_each_whether_or_not_a_handler_is_found(
    harness: SwitchHarness,
) -> None:
    sender, first, second, other = [await harness.add(session) for session in ("anna", "ben", "cleo", "dan")]
    for program in (first, second):
        program.observe("put", file="alpha", state="sent")
    other.observe("put", file="beta", state="sent")
    await settle(harness)
    unhandled = sender.request("put", file="alpha")
    await harness.until(lambda: unhandled.end)
    sender.handle("put", file="alpha")
    handled = sender.request("put", file="alpha")
    await harness.until(lambda: handled.end)
    await harness.until(lambda: len(first.observed) == len(second.observed) == 2)
    assert (unhandled.reason, handled.reason) == (FailureReason.NO_HANDLER, None)
    assert {each.recipient for each in first.observed} == {Recipient.OBSERVERS}
    assert not other.observed


async def test_sw_28_remote_handlers_are_asked_one_by_one_only_without_a_local_one(harness: SwitchHarness) -> None:
    sender, local = await harness.add("anna"), await harness.add("anna")
    remotes = [await harness.add(session) for session in ("ben", "cleo", "dan")]
    for program in remotes:
        program.handle("put", file="alpha", behavior="decline", rank=100)
    handler = local.handle("put", file="alpha")
    await settle(harness)
    near = sender.request("put", file="alpha")
    await harness.until(lambda: near.end)
    assert not any(program.handled for program in remotes)
    local.core.remove_handler(handler)
    await settle(harness)
    far = sender.request("put", file="alpha")
    await harness.until(lambda: far.end)
    assert far.end is not None
    assert far.reason is FailureReason.ALL_DECLINED
    assert [len(program.handled) for program in remotes] == [1, 1, 1]
    assert sorted(each.peer_id for each in far.end.asked) == sorted(program.id for program in remotes)


async def test_sw_29_program_that_is_asked_never_passes_on(harness: SwitchHarness) -> None:
    sender, asked, other = await harness.add("anna"), await harness.add("ben"), await harness.add("ben")
    asked.handle("put", file="alpha", rank=1, behavior="refuse")
    other.handle("put", file="alpha")
    await settle(harness)
    sent = sender.request("put", file="alpha")
    await harness.until(lambda: sent.end)
    assert sent.end is not None
    assert (sent.reason, sent.end.handler, sent.end.failure_text) == (FailureReason.REFUSED, asked.id, "never")
    assert not other.handled


async def test_pattern_without_a_file_gets_files_of_other_sessions_only_once_its_session_has_joined(
    harness: SwitchHarness,
) -> None:
    sender, program = await harness.add("anna"), await harness.add("ben")
    program.handle("put")
    await settle(harness)
    before = sender.request("put", file="alpha")
    await harness.until(lambda: before.end)
    program.core.add_file("alpha")
    await harness.until(lambda: sender.core.directory.joins("alpha"))
    after = sender.request("put", file="alpha")
    await harness.until(lambda: after.end)
    assert (before.reason, after.reason) == (FailureReason.NO_HANDLER, None)


async def test_observers_get_the_messages_of_a_sender_in_order(harness: SwitchHarness) -> None:
    sender, observer = await harness.add(), await harness.add()
    observer.observe("count", state="sent")
    await settle(harness)
    for number in range(50):
        sender.notify("count", b"%d" % number)
    await harness.until(lambda: len(observer.observed) == 50)
    assert [int(each.data) for each in observer.observed] == list(range(50))


async def test_notice_for_the_session_is_seen_by_programs_of_the_session_alone(harness: SwitchHarness) -> None:
    sender, near, far = await harness.add("anna"), await harness.add("anna"), await harness.add("ben")
    for program in (near, far):
        program.observe()
    await settle(harness)
    far.core.add_file("alpha")
    await harness.until(lambda: sender.core.directory.joins("alpha"))
    sender.notify("private", scope=Scope.SESSION, recipient=Recipient.OBSERVERS)
    sender.notify("public", file="alpha")
    await harness.until(lambda: far.observed and len(near.observed) == 2)
    assert [each.operation for each in far.observed if each.state is MessageState.SENT] == ["public"]
    assert [each.operation for each in near.observed if each.state is MessageState.SENT] == ["private", "public"]
