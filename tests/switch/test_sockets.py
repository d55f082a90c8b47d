"""The public API over real sockets."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import broadloom
from broadloom.channel import Channel
from broadloom.switch import (
    DeclinedError,
    FailureReason,
    HandledRequest,
    MessageState,
    Observer,
    ProgramQueue,
    RequestFailedError,
    Switch,
    SwitchMessage,
    settings,
)
from tests.channel.joined import connected_channels, unique_name
from tests.groups.conftest import no_leaks  # noqa: F401
from tests.support import TIMEOUT_S, eventually

pytestmark = pytest.mark.usefixtures("no_leaks")


@asynccontextmanager
async def two_switches() -> AsyncIterator[tuple[Switch, Switch]]:
    async with (
        connected_channels(2) as (here, there),
        Switch(here, session="anna") as one,
        Switch(there, session="anna") as two,
    ):
        yield one, two


async def test_request_is_handled_by_a_decorated_function() -> None:
    async with two_switches() as (sender, program):

        @program.handle("reverse")
        async def reverse(request: HandledRequest) -> bytes:
            assert (request.operation, request.session, request.file) == ("reverse", "anna", "")
            assert request.sender == request.peer_id == sender.channel.peer_id
            assert not request.is_notice
            assert 0 < request.timeout_s <= 20
            return request.text[::-1].encode()

        @program.handle("plain")
        def plain(request: HandledRequest) -> bytes:
            return request.data

        await sender.wait_for_handler("reverse", timeout_s=TIMEOUT_S)
        reply = await sender.request("reverse", b"abc", timeout_s=20)
        assert (reply.text, reply.handler, reply.state) == ("cba", program.channel.peer_id, MessageState.HANDLED)
        assert (await sender.request("plain", b'{"a": 1}', timeout_s=20)).json() == {"a": 1}
        program.unregister(reverse)
        await eventually(lambda: not sender.has_handler("reverse"))
        with pytest.raises(RequestFailedError, match="no program handles 'reverse'") as failed:
            await sender.request("reverse")
        assert failed.value.reason is FailureReason.NO_HANDLER
        with pytest.raises(ValueError, match="not a handler"):
            program.unregister(reverse)


async def test_message_ids_do_not_repeat_when_a_switch_is_opened_again() -> None:
    async with connected_channels(2) as (here, there), Switch(there, session="anna") as program:
        ids = []

        @program.handle("note")
        def note(request: HandledRequest) -> bytes:
            ids.append(request.id)
            return b""

        for _ in range(2):
            async with Switch(here, session="anna") as sender:
                await sender.wait_for_handler("note", timeout_s=TIMEOUT_S)
                await sender.request("note", timeout_s=TIMEOUT_S)
        assert [each.counter for each in ids] == [1, 2]


async def test_handler_declines_refuses_or_fails() -> None:
    async with two_switches() as (sender, program):

        @program.handle("decline", rank=1)
        async def decline(_request: HandledRequest) -> bytes:
            raise DeclinedError("not me")

        @program.handle("refuse")
        async def refuse(_request: HandledRequest) -> bytes:
            raise broadloom.RefusedError("too late")

        @program.handle("crash")
        def crash(_request: HandledRequest) -> bytes:
            raise KeyError("secret")

        @program.handle("nothing")
        async def nothing(_request: HandledRequest) -> None: ...

        @program.handle("text")
        def text(_request: HandledRequest) -> str:
            return "text"

        @sender.handle("decline")
        async def second(_request: HandledRequest) -> bytes:
            return b"second"

        await sender.wait_for_handler("nothing", timeout_s=TIMEOUT_S)
        assert (await sender.request("decline")).data == b"second"
        for operation, message in {
            "refuse": "refused: too late",
            "crash": "the handler raised KeyError$",
            "nothing": "the handler did not reply",
            "text": "the handler raised TypeError",
        }.items():
            with pytest.raises(RequestFailedError, match=message) as failed:
                await sender.request(operation, timeout_s=20)
            assert failed.value.reason is FailureReason.REFUSED
            assert "secret" not in str(failed.value)


async def test_notify_returns_what_became_of_the_notice() -> None:
    async with two_switches() as (sender, program):
        handled: list[bytes] = []
        observed: list[SwitchMessage] = []

        @program.handle("saved")
        def saved(request: HandledRequest) -> None:
            assert request.is_notice
            handled.append(request.data)

        program.observe(callback=observed.append)
        await sender.wait_for_handler("saved", timeout_s=TIMEOUT_S)
        await eventually(lambda: sender.is_complete)
        assert await sender.notify("saved", b"alpha") is MessageState.HANDLED
        assert await sender.notify("nobody") is MessageState.SENT
        assert await sender.notify("saved", b"beta", recipient="observers") is MessageState.SENT
        await eventually(lambda: len(observed) == 4)
        assert handled == [b"alpha"]
        assert [(each.operation, each.state.name) for each in observed] == [
            ("saved", "SENT"), ("saved", "HANDLED"), ("nobody", "SENT"), ("saved", "SENT"),
        ]  # fmt: skip


async def test_observer_is_read_by_iterating() -> None:
    async with two_switches() as (sender, program):
        observer = program.observe(["one", "two"], state="sent", messages_max=2)
        assert isinstance(observer, Observer)
        await eventually(lambda: any(each.patterns for each in sender.registrations()))
        for operation in ("one", "other", "two"):
            await sender.notify(operation)
        async with observer:
            assert [(await observer.receive(TIMEOUT_S)).operation for _ in range(2)] == ["one", "two"]
            assert observer.receive_nowait() is None
            with pytest.raises(TimeoutError, match=r"no message of .* was observed within 0\.01 s"):
                await observer.receive(0.01)
            for operation in ("one", "one", "two"):
                await sender.notify(operation)
            await eventually(lambda: observer.dropped_count == 1)
            assert observer.unread_count == 2
        assert [each.operation async for each in observer] == ["one", "two"], "unread copies can still be read"


async def test_request_all_asks_every_handler() -> None:
    async with connected_channels(4) as channels:
        switches = [Switch(channel, session="anna") for channel in channels]
        sender, *others = switches
        for number, switch in enumerate(others):

            @switch.handle("who", rank=number)
            async def who(_request: HandledRequest, number: int = number) -> bytes:
                if number == 2:
                    raise broadloom.RefusedError("not telling")
                return b"%d" % number

        await eventually(lambda: len([each for each in sender.registrations() if each.patterns]) == 3)
        replies = [reply async for reply in sender.request_all("who", timeout_s=20)]
        assert sorted(reply.data for reply in replies) == [b"", b"0", b"1"]
        assert [reply.reason for reply in replies if not reply.data] == [FailureReason.REFUSED]
        assert [reply async for reply in sender.request_all("nobody")] == []
        for switch in switches:
            await switch.aclose()


async def test_follow_yields_the_states_of_a_request() -> None:
    async with two_switches() as (sender, program):

        @program.handle("convert")
        async def convert(request: HandledRequest) -> bytes:
            return request.data

        await sender.wait_for_handler("convert", timeout_s=TIMEOUT_S)
        steps = [step async for step in sender.follow("convert", b"abc", timeout_s=20)]
        assert [step.state for step in steps] == [MessageState.SENT, MessageState.ACCEPTED, MessageState.HANDLED]
        assert steps[-1].data == b"abc"
        assert {step.id for step in steps} == {steps[0].id}
        failed = [step async for step in sender.follow("nobody", timeout_s=20)]
        assert [step.state for step in failed] == [MessageState.SENT, MessageState.FAILED]


async def test_cancelled_request_is_cancelled_at_its_handler() -> None:
    async with two_switches() as (sender, program):
        cancelled = asyncio.Event()
        started = asyncio.Event()

        @program.handle("wait")
        async def wait(_request: HandledRequest) -> bytes:
            started.set()
            try:
                await asyncio.Event().wait()  # until it is cancelled
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return b""

        await sender.wait_for_handler("wait", timeout_s=TIMEOUT_S)
        task = asyncio.ensure_future(sender.request("wait", timeout_s=1000))
        await asyncio.wait_for(started.wait(), TIMEOUT_S)
        task.cancel()
        await asyncio.wait_for(cancelled.wait(), TIMEOUT_S)
        assert sender.status().open_count == 0


async def test_switch_does_not_disturb_the_readers_of_the_channel() -> None:
    async with two_switches() as (one, two):
        await one.notify("saved")
        await one.channel.broadcast(b"plain")
        assert (await two.channel.receive(TIMEOUT_S)).data == b"plain"


async def test_wrong_arguments_raise_at_once() -> None:
    async with connected_channels(1) as (channel,), Switch(channel, session="anna") as switch:
        for wrong in (
            lambda: switch.handle(""),
            lambda: switch.handle("x" * 300),
            lambda: switch.handle([]),
            lambda: switch.handle("put", scope="galaxy"),
            lambda: switch.handle("put", scope="session", file="alpha"),
            lambda: switch.handle("put", rank=1 << 40),
            lambda: switch.handle("put", concurrency=0),
            lambda: switch.observe("put", state="lost"),
            lambda: switch.observe("put", messages_max=0),
        ):
            with pytest.raises(ValueError, match=r"must be|has no file"):
                wrong()
        for wrong_type in (lambda: switch.handle("put", rank="5"), lambda: switch.handle("put", concurrency=1.5)):  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="whole number"):
                wrong_type()
        with pytest.raises(TypeError, match="a handler must be a function"):
            switch.handle("put")(5)  # type: ignore[type-var]
        with pytest.raises(ValueError, match="timeout_s"):
            await switch.request("put", timeout_s=0)
        with pytest.raises(TypeError):
            await switch.request("put", "text")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="absent"):
            await switch.request("put", absent="wait")
        with pytest.raises(ValueError, match="already in use"):
            Switch(channel, session="anna")


async def test_registration_that_would_be_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "PATTERNS_MAX", 3)
    monkeypatch.setattr(settings, "PATTERNS_BYTES_MAX", 300)
    async with connected_channels(1) as (channel,), Switch(channel, session="anna") as switch:

        def handler(_request: HandledRequest) -> bytes:
            return b""

        for _ in range(5):  # patterns that were removed do not count
            switch.handle("a" * 100)(handler)
            switch.unregister(handler)
        for operation in ("one", "two", "three"):
            switch.handle(operation, file="alpha")(handler)
        with pytest.raises(ValueError, match="too many patterns: at most 3"):
            switch.handle("four")(handler)
        with pytest.raises(ValueError, match="too many patterns"):
            switch.add_file("f" * 100)
        switch.unregister(handler)
        switch.handle("four")(handler)


async def test_open_requests_end_with_the_channel_and_later_ones_raise() -> None:
    async with connected_channels(2) as (here, there):
        sender, program = Switch(here, session="anna"), Switch(there, session="anna")

        @program.handle("wait")
        async def wait(_request: HandledRequest) -> bytes:
            await asyncio.Event().wait()  # until it is cancelled
            return b""

        await sender.wait_for_handler("wait", timeout_s=TIMEOUT_S)
        task = asyncio.ensure_future(sender.request("wait", timeout_s=1000))
        await eventually(lambda: any(each.running for each in program._core.handlers))
        here.abort()
        with pytest.raises(RequestFailedError) as failed:
            await task
        assert failed.value.reason is FailureReason.DISCONNECTED
        with pytest.raises(broadloom.NotConnectedError):
            await sender.request("wait")
        await sender.aclose()
        await program.aclose()


# -- other processes

PROGRAM = """
import asyncio, os, sys
import broadloom
from broadloom.switch import Switch

async def main():
    channel = await broadloom.connect(os.environ.get("BROADLOOM_SWITCH_CHANNEL") or sys.argv[1], tls=False)
    switch = Switch(channel, session=None if "BROADLOOM_SWITCH_SESSION" in os.environ else "anna")

    @switch.handle("calc")
    async def calc(request):
        if request.data == b"wait":
            print("accepted", flush=True)
            await asyncio.sleep(100)
        return b"%d %s" % (os.getpid(), switch.program.encode())

    await asyncio.sleep(100)

asyncio.run(main())
"""


async def test_sender_of_a_killed_process_knows_from_the_reset_and_not_from_silence() -> None:
    name = unique_name()
    async with connected_channels(1, name=name) as (channel,), Switch(channel, session="anna") as switch:
        command = [sys.executable, "-c", PROGRAM, name]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ)  # noqa: ASYNC220
        try:
            await switch.wait_for_handler("calc", timeout_s=TIMEOUT_S)
            task = asyncio.ensure_future(switch.request("calc", b"wait", timeout_s=100))
            assert process.stdout is not None
            assert await asyncio.to_thread(process.stdout.readline) == b"accepted\n"
            process.kill()
            with pytest.raises(RequestFailedError, match="the connection was lost") as failed:
                await task
            assert failed.value.reason is FailureReason.HANDLER_DIED
        finally:
            process.kill()
            process.communicate()


def programs_file(folder: Path, *words: str, absent: str = "start") -> Path:
    path = folder / "programs.toml"
    command = ", ".join(repr(word) for word in words)
    path.write_text(
        f"""
[programs.starcalc]
start = [{command}]
again_after_s = 100
[[programs.starcalc.handles]]
operation = "calc"
absent = "{absent}"
"""
    )
    return path


@asynccontextmanager
async def host_of(programs: Path, store: Path | None = None) -> AsyncIterator[tuple[Channel, Switch]]:
    async with (
        connected_channels(1) as (channel,),
        Switch(channel, session="anna", programs=programs, store=store) as switch,
    ):
        yield channel, switch


async def test_program_is_started_without_a_shell_and_ends_with_the_switch(tmp_path: Path) -> None:
    script = tmp_path / "star calc; exit 1"
    script.write_text(PROGRAM)
    async with host_of(programs_file(tmp_path, sys.executable, str(script))) as (_, switch):
        steps = [step async for step in switch.follow("calc", timeout_s=TIMEOUT_S)]
        assert [step.state for step in steps] == [MessageState.SENT, MessageState.STARTED, MessageState.HANDLED], steps[
            -1
        ]
        pid, program = steps[-1].text.split()
        assert program == "starcalc"
        again = await switch.request("calc", timeout_s=TIMEOUT_S)
        assert again.text == steps[-1].text, "the same process"
        os.kill(int(pid), 0)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


async def test_program_that_exits_at_once_is_reported_with_its_last_lines(tmp_path: Path) -> None:
    code = "import sys; print('no license', file=sys.stderr); sys.exit(3)"
    async with host_of(programs_file(tmp_path, sys.executable, "-c", code)) as (_, switch):
        with pytest.raises(RequestFailedError, match="'starcalc' exited with status 3: no license") as failed:
            await switch.request("calc", timeout_s=TIMEOUT_S)
        assert failed.value.reason is FailureReason.NOT_STARTED
        with pytest.raises(RequestFailedError, match="it is started again in"):
            await switch.request("calc", timeout_s=TIMEOUT_S)


async def test_program_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    async with host_of(programs_file(tmp_path, str(tmp_path / "missing"))) as (_, switch):
        with pytest.raises(RequestFailedError, match="cannot be started: No such file") as failed:
            await switch.request("calc", timeout_s=TIMEOUT_S)
        assert failed.value.reason is FailureReason.NOT_STARTED


async def test_queue_on_disk_is_listed_and_dropped(tmp_path: Path) -> None:
    programs = programs_file(tmp_path, "starcalc", absent="queue")
    async with host_of(programs, tmp_path / "queue.db") as (_, switch):
        assert await switch.notify("calc", b"later") is MessageState.QUEUED
        task = asyncio.ensure_future(switch.request("calc", b"now", timeout_s=TIMEOUT_S))
        await eventually(lambda: len(switch.queue()) == 2)
        assert [(each.program, each.message.data, each.is_shared) for each in switch.queue()] == [
            ("starcalc", b"later", False), ("starcalc", b"now", False),
        ]  # fmt: skip
        assert switch.drop_queue("another") == 0
        assert switch.drop_queue("starcalc") == 2
        with pytest.raises(RequestFailedError) as failed:
            await task
        assert failed.value.reason is FailureReason.EXPIRED
        assert switch.status().queued_count == 0


async def test_lengths_of_all_queues_are_listed(tmp_path: Path) -> None:
    programs = programs_file(tmp_path, "starcalc", absent="queue")
    async with (
        connected_channels(2) as (here, there),
        Switch(here, session="ben") as other,
        Switch(there, session="anna", programs=programs) as host,
    ):
        assert await host.notify("calc", b"later") is MessageState.QUEUED
        await other.wait_until_complete(TIMEOUT_S)
        await eventually(lambda: any(each.patterns for each in other.registrations()))
        expected = [ProgramQueue(there.peer_id, "anna", "starcalc", 1)]
        assert await other.queues(TIMEOUT_S) == await host.queues() == expected
        host.drop_queue()
        assert [each.count for each in await other.queues(TIMEOUT_S)] == [0]
