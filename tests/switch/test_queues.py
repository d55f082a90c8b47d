"""Programs that do not run: queues and starts (SW-9, SW-24, SW-30 to SW-32), over the simulator and over sockets."""

from pathlib import Path

import pytest

from broadloom.switch import settings
from broadloom.switch.codec import handler_copy
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
)
from broadloom.switch.program_types import ProgramType
from broadloom.switch.queue_store import MemoryQueue, QueueStore
from broadloom.switch.sqlite_queue import SqliteQueue
from tests.switch.harness import Program, Sent, SimSwitchHarness, SwitchHarness, settle
from tests.switch.sim_runtime import SimProgram, SimSwitchRuntime


def starcalc(absent: Disposition, **options: object) -> dict[str, ProgramType]:
    handles = (Pattern(True, ("calc",), program="starcalc", disposition=absent),)
    return {"starcalc": ProgramType("starcalc", ("starcalc",), handles=handles, **options)}  # type: ignore[arg-type]


QUEUED, STARTED = starcalc(Disposition.QUEUE), starcalc(Disposition.START)


async def add_starcalc(harness: SwitchHarness, session: str = "anna", **options: object) -> Program:
    program = await harness.add(session, "starcalc")
    program.handle("calc", **options)  # type: ignore[arg-type]
    return program


@pytest.fixture(params=["memory", "disk"])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> QueueStore:
    return MemoryQueue() if request.param == "memory" else SqliteQueue(tmp_path / "queue.db")


async def test_sw_9_program_that_registers_its_type_gets_all_pending_messages(
    harness: SwitchHarness, queue: QueueStore
) -> None:
    sender, host = await harness.add(), await harness.add(programs=QUEUED, queue=queue)
    await settle(harness)
    sent = [sender.request("calc", b"%d" % number) for number in range(5)]
    await harness.until(lambda: all(each.states[-1] is MessageState.QUEUED for each in sent))
    assert len(queue.load()) == 5
    other = await harness.add("anna", "another type")
    other.handle("nothing")
    await settle(harness)
    assert len(host.core.host.queued()) == 5
    program = await add_starcalc(harness)
    await harness.until(lambda: all(each.end for each in sent))
    assert [each.data for each in program.handled] == [b"0", b"1", b"2", b"3", b"4"], "in order, and once"
    assert [each.end.handler_program for each in sent if each.end] == ["starcalc"] * 5
    assert queue.load() == []


async def test_queued_and_started_requests_are_observed(harness: SwitchHarness) -> None:
    sender, observer = await harness.add(), await harness.add()
    await harness.add(programs=QUEUED)
    observer.observe("calc")
    await settle(harness)
    sent = sender.request("calc", b"12")
    await harness.until(lambda: sent.states[-1] is MessageState.QUEUED and len(observer.observed) == 2)
    assert [(each.state, each.data) for each in observer.observed] == [
        (MessageState.SENT, b"12"),
        (MessageState.QUEUED, b"12"),
    ]
    assert observer.observed[-1].handler_program == "starcalc"


async def test_sw_24_running_programs_come_before_those_that_must_be_started(harness: SwitchHarness) -> None:
    sender, host, running = await harness.add(), await harness.add(programs=STARTED), await harness.add()
    running.handle("calc")
    await settle(harness)
    sent = sender.request("calc")
    await harness.until(lambda: sent.end)
    assert len(running.handled) == 1
    assert not host.core.host.queued()


async def test_sw_30_message_waits_for_a_busy_handler_which_gets_it_when_it_is_free(harness: SwitchHarness) -> None:
    sender, program = await harness.add(), await harness.add()
    program.handle("work", behavior="hold", concurrency=1)
    await settle(harness)
    first, second = sender.request("work", b"1"), sender.request("work", b"2")
    await harness.until(lambda: program.held)
    assert [each.data for each in program.handled] == [b"1"]
    program.release()
    await harness.until(lambda: first.end and len(program.handled) == 2)
    assert second.end is None
    program.release()
    await harness.until(lambda: second.end)


async def test_busy_handler_declines_beyond_its_limit_and_another_is_asked(
    harness: SwitchHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "HANDLER_WAITING_MAX", 2)
    sender, busy, other = await harness.add(), await harness.add(), await harness.add()
    busy.handle("work", behavior="hold", concurrency=1, rank=1)
    other.handle("work")
    await settle(harness)
    sent = [sender.request("work") for _ in range(5)]
    await harness.until(lambda: sum(each.end is not None for each in sent) == 2)
    assert len(other.handled) == 2
    other.core.close()
    await harness.until(lambda: sender.core.handler_ids("work", Scope.SESSION, "") != [other.id])
    await harness.until(lambda: sender.core.handler_ids("work", Scope.SESSION, "") == [busy.id])
    full = sender.request("work")
    await harness.until(lambda: full.end)
    assert full.reason is FailureReason.QUEUE_FULL
    for _ in range(3):
        await harness.until(lambda: busy.held)
        busy.release()
    await harness.until(lambda: all(each.end for each in sent))


async def test_sw_31_session_messages_are_private_and_file_messages_shared(harness: SwitchHarness) -> None:
    sender, host = await harness.add("anna"), await harness.add("anna", programs=QUEUED)
    await settle(harness)
    private, shared = sender.request("calc", b"private"), sender.request("calc", b"shared", file="alpha")
    await harness.until(lambda: len(host.core.host.queued()) == 2)
    stranger = await harness.add("ben", "starcalc")
    stranger.handle("calc", file="alpha")
    await harness.until(lambda: shared.end)
    assert [each.data for each in stranger.handled] == [b"shared"]
    assert private.end is None
    own = await add_starcalc(harness)
    await harness.until(lambda: private.end)
    assert [each.data for each in own.handled] == [b"private"]


async def test_sw_31_queued_notice_survives_its_sender(harness: SwitchHarness, queue: QueueStore) -> None:
    sender, host = await harness.add(), await harness.add(programs=QUEUED, queue=queue)
    await settle(harness)
    sent = sender.notify("calc", b"later")
    await harness.until(lambda: sent.states[-1] is MessageState.QUEUED)
    await harness.kill(sender)
    program = await add_starcalc(harness)
    await harness.until(lambda: program.handled)
    assert [each.data for each in program.handled] == [b"later"]
    await harness.until(lambda: not host.core.host.queued())


async def test_queue_on_disk_survives_its_holder(harness: SwitchHarness, tmp_path: Path) -> None:
    sender, host = await harness.add(), await harness.add(programs=QUEUED, queue=SqliteQueue(tmp_path / "queue.db"))
    await settle(harness)
    notice, request = sender.notify("calc", b"a notice"), sender.request("calc", b"a request")
    await harness.until(lambda: notice.states[-1] is request.states[-1] is MessageState.QUEUED)
    host.core.host._store.close()
    await harness.kill(host)
    await harness.until(lambda: request.end)
    assert notice.states[-1] is MessageState.QUEUED
    assert request.reason is FailureReason.HANDLER_DIED
    await harness.add(programs=QUEUED, queue=SqliteQueue(tmp_path / "queue.db"))
    program = await add_starcalc(harness)
    await harness.until(lambda: len(program.handled) == 2)
    assert [each.data for each in program.handled] == [b"a notice", b"a request"]


def stored_copy(number: int) -> bytes:
    message = SwitchMessage(
        MessageId(5, number), MessageClass.NOTICE, Scope.SESSION, Recipient.HANDLER, "anna", "", "calc", b"%d" % number
    )
    return handler_copy(message, "starcalc", 100)


async def test_message_on_its_way_during_a_crash_is_not_repeated(tmp_path: Path) -> None:
    queue = SqliteQueue(tmp_path / "queue.db")
    in_a_year_ms = 1_800_000_000_000
    rows = [queue.add("starcalc", stored_copy(number), 0, in_a_year_ms) for number in range(3)]
    queue.mark(rows[0], True)
    queue.close()
    harness = SimSwitchHarness()
    host = await harness.add(programs=QUEUED, queue=SqliteQueue(tmp_path / "queue.db"))
    program = await add_starcalc(harness)
    await harness.until(lambda: len(program.handled) == 2)
    assert [each.data for each in program.handled] == [b"1", b"2"]
    assert host.core.host.uncertain_count == 1


async def test_request_that_no_program_takes_in_time_expires(harness: SwitchHarness) -> None:
    sender, host = await harness.add(), await harness.add(programs=QUEUED)
    await settle(harness)
    sent = sender.request("calc", timeout_s=0.5)
    await harness.until(lambda: sent.end)
    assert sent.reason in (FailureReason.EXPIRED, FailureReason.TIMED_OUT)
    await harness.until(lambda: not host.core.host.queued())


# -- starting programs, whose processes are simulated


class Starts:
    """A host in the simulator, and the programs it starts."""

    def __init__(self, harness: SimSwitchHarness, sender: Program, host: Program) -> None:
        self.harness, self.sender, self.host = harness, sender, host

    @property
    def started(self) -> list[SimProgram]:
        runtime = self.host.core.runtime
        assert isinstance(runtime, SimSwitchRuntime)
        return runtime.started

    async def end(self, sent: Sent) -> FailureReason | None:
        await self.harness.until(lambda: sent.end, 60.0)
        return sent.reason

    @property
    def now(self) -> float:
        return self.host.core.runtime.now()

    async def until_time(self, at: float) -> None:
        await self.harness.until(lambda: self.now >= at, 1000.0)


async def open_starts(**options: object) -> Starts:
    harness = SimSwitchHarness()
    sender = await harness.add()
    host = await harness.add(programs=starcalc(Disposition.START, **options))
    await settle(harness)
    return Starts(harness, sender, host)


async def test_sw_32_program_is_started_and_gets_the_message_without_a_signal() -> None:
    starts = await open_starts()
    sent = starts.sender.request("calc", b"abc", wants_progress=True)
    second = starts.sender.request("calc", b"def")
    await starts.harness.until(lambda: len(starts.host.core.host.queued()) == 2)
    assert [each.program.name for each in starts.started] == ["starcalc"], "started once"
    program = await add_starcalc(starts.harness)
    assert await starts.end(sent) is None
    assert await starts.end(second) is None
    assert [each.data for each in program.handled] == [b"abc", b"def"]
    assert sent.states == [MessageState.SENT, MessageState.STARTED, MessageState.HANDLED]


async def test_program_that_exits_at_once_fails_the_request_with_its_last_lines() -> None:
    starts = await open_starts()
    sent = starts.sender.request("calc")
    await starts.harness.until(lambda: starts.started)
    starts.started[0].exit("exited with status 3: no license")
    assert await starts.end(sent) is FailureReason.NOT_STARTED
    assert sent.end is not None
    assert sent.end.failure_text == "'starcalc' exited with status 3: no license"


async def test_failed_start_does_not_wait_for_a_switch_that_was_just_opened() -> None:
    harness = SimSwitchHarness()
    host = await harness.add(programs=starcalc(Disposition.START))
    starts = Starts(harness, host, host)
    sent = host.request("calc")
    starts.started[0].exit("exited with status 3")
    exited_at = starts.now
    assert not host.core.directory.is_complete
    assert await starts.end(sent) is FailureReason.NOT_STARTED
    assert starts.now - exited_at < 0.1


async def test_handler_that_becomes_known_after_a_failed_start_gets_the_request() -> None:
    harness = SimSwitchHarness()
    host = await harness.add(programs=starcalc(Disposition.START))
    starts = Starts(harness, host, host)
    sent = host.request("calc")
    starts.started[0].exit("exited with status 3")
    host.handle("calc")
    assert await starts.end(sent) is None
    assert len(host.handled) == 1


async def test_program_that_does_not_register_in_time_is_ended() -> None:
    starts = await open_starts(ready_s=2.0)
    sent = starts.sender.request("calc", timeout_s=30.0)
    await starts.harness.until(lambda: starts.started)
    started_at = starts.now
    starts.started[0].last_lines = "waiting for a license"
    assert await starts.end(sent) is FailureReason.NOT_STARTED
    assert 1.9 < starts.now - started_at < 2.2
    assert starts.started[0].on_exit is None, "terminated"
    assert sent.end is not None
    assert sent.end.failure_text.endswith("did not register within 2 s: waiting for a license")


async def test_failed_starts_back_off_and_meanwhile_fail_at_once() -> None:
    starts = await open_starts(again_after_s=5.0)
    for attempt, pause_s in enumerate((5.0, 10.0, 20.0)):
        sent = starts.sender.request("calc")
        await starts.harness.until(lambda attempt=attempt: len(starts.started) == attempt + 1)  # type: ignore[misc]
        starts.started[-1].exit("exited with status 1")
        failed_at = starts.now
        assert await starts.end(sent) is FailureReason.NOT_STARTED
        again = starts.sender.request("calc")
        assert await starts.end(again) is FailureReason.NOT_STARTED
        assert starts.now - failed_at < 0.5
        assert len(starts.started) == attempt + 1, "not started again during the pause"
        await starts.until_time(failed_at + pause_s + 0.1)


async def test_idle_program_is_terminated_and_started_again_for_the_next_message() -> None:
    starts = await open_starts(idle_s=5.0)
    sent = starts.sender.request("calc")
    await starts.harness.until(lambda: starts.started)
    program = await add_starcalc(starts.harness)
    assert await starts.end(sent) is None
    await starts.harness.until(lambda: starts.started[0].on_exit is None, 20.0)
    await starts.harness.kill(program)
    await starts.harness.until(lambda: starts.host.core.directory.get(program.id) is None)
    starts.sender.request("calc")
    await starts.harness.until(lambda: len(starts.started) == 2)


async def test_program_is_not_started_for_other_sessions_unless_allowed() -> None:
    for start_for, expected in (((), FailureReason.NOT_ALLOWED), (("ops-*",), None)):
        harness = SimSwitchHarness()
        sender = await harness.add("ops-1")
        host = await harness.add("anna", programs=starcalc(Disposition.START, start_for=start_for))
        host.core.add_file("alpha")
        await settle(harness)
        await harness.until(lambda sender=sender: sender.core.directory.joins("alpha"))  # type: ignore[misc]
        sent = sender.request("calc", file="alpha")
        starts = Starts(harness, sender, host)
        if expected is None:
            await harness.until(lambda starts=starts: starts.started)  # type: ignore[misc]
            program = await harness.add("anna", "starcalc")
            program.handle("calc", file="alpha")
        assert await starts.end(sent) is expected
        assert len(starts.started) == (expected is None)


@pytest.mark.parametrize("if_lost", list(IfLost))
async def test_started_program_that_dies_with_a_request_fails_it_or_is_started_again(if_lost: IfLost) -> None:
    starts = await open_starts()
    sent = starts.sender.request("calc", if_lost=if_lost, timeout_s=30.0)
    await starts.harness.until(lambda: starts.started)
    program = await add_starcalc(starts.harness, behavior="hold")
    await starts.harness.until(lambda: program.held)
    killed_at = starts.now
    await starts.harness.kill(program)
    starts.started[0].exit("was ended by signal 9")
    if if_lost is IfLost.FAIL:
        assert await starts.end(sent) is FailureReason.HANDLER_DIED
        assert starts.now - killed_at < 0.5
    else:
        await starts.harness.until(lambda: len(starts.started) == 2)
        await add_starcalc(starts.harness)
        assert await starts.end(sent) is None


async def test_message_disposition_overrides_that_of_the_type() -> None:
    starts = await open_starts()
    fail = starts.sender.request("calc", disposition=Disposition.FAIL)
    queued = starts.sender.request("calc", disposition=Disposition.QUEUE)
    assert await starts.end(fail) is FailureReason.NO_HANDLER
    await starts.harness.until(lambda: queued.states[-1] is MessageState.QUEUED)
    assert not starts.started
