"""Programs that hang, die, flood, or do not read: the message is not sent, and nothing of them remains."""

import asyncio
import os
from pathlib import Path

import pytest

from broadloom.errors import NotSentError
from broadloom.rules import ProgramLimits, Rules, parse
from tests.channel.joined import connected_channels, receive_texts
from tests.rules.recording import LIMITS, applied, message
from tests.support import TIMEOUT_S, eventually
from tests.transport.connections import each_loop


def rules_for(script: str, limits: ProgramLimits = LIMITS, actions: str = "prg $") -> Rules:
    return Rules(
        parse(f"IF {{ true }} THEN {{ {actions} }}"), programs={"prg": ["/bin/sh", "-c", script]}, limits=limits
    )


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[-1].split()[0] != "Z"
    except OSError:
        return False


@each_loop
async def test_hanging_program_is_ended_with_its_children_and_the_channel_goes_on(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    rules = rules_for(f"sleep 1000 & echo $$ $! > {pids}; sleep 1000", ProgramLimits(timeout_s=0.5))
    async with connected_channels(2) as (author, reader):
        author._use_filter(rules)
        with pytest.raises(NotSentError, match=r"the program prg did not end within 0\.5 s"):
            await author.broadcast_text("plan")
        author._use_filter(None)
        await author.broadcast_text("without rules")
        assert await receive_texts(reader, 1) == ["without rules"]
    if pids.exists():  # a busy machine may not have come that far
        started = [int(each) for each in pids.read_text().split()]
        await eventually(lambda: not any(map(is_running, started)), "end of the program and its child")


@each_loop
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo out of paper >&2; exit 3", "failed with status 3: out of paper"),
        ("kill -9 $$", "was ended by signal 9"),
        ("exec 0<&-; exit 1", "failed with status 1"),
        ("yes", "wrote more than 100,000 bytes"),
    ],
)
async def test_dying_or_flooding_program_fails_closed(script: str, expected: str) -> None:
    limits = ProgramLimits(timeout_s=30, output_bytes_max=100_000)
    with pytest.raises(NotSentError, match=expected):
        await applied(rules_for(script, limits), message(b"x" * 1_000_000))


@each_loop
async def test_program_may_ignore_its_input_and_write_errors_without_end_of_line() -> None:
    script = "head -c 300000 /dev/zero >&2; printf done"
    assert (await applied(rules_for(script), message(b"x" * 1_000_000))).data == b"done"


async def test_large_data_goes_through_a_program() -> None:
    data = os.urandom(3_000_000)
    assert (await applied(rules_for("cat"), message(data))).data == data


async def test_program_that_is_not_there_fails_closed() -> None:
    rules = Rules(parse("IF { true } THEN { prg $ }"), programs={"prg": ["/nonexistent/program"]})
    with pytest.raises(NotSentError, match="cannot start the program prg: No such file"):
        await applied(rules, message())


async def test_program_does_not_see_the_variables_of_broadloom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROADLOOM_KEY", "secret")
    assert b"secret" not in (await applied(rules_for("env"), message())).data


async def test_arguments_are_not_interpreted_by_a_shell() -> None:
    rules = Rules(
        parse("IF { true } THEN { prg \"$(id) `id`; rm -rf *\" '*' }"),
        programs={"prg": ["printf", "%s|%s"]},
        limits=LIMITS,
    )
    assert (await applied(rules, message())).data == b"$(id) `id`; rm -rf *|'*'"


async def test_number_of_programs_at_a_time_is_limited(tmp_path: Path) -> None:
    script = f"mkdir {tmp_path}/one || exit 1; sleep 0.05; rmdir {tmp_path}/one; cat"
    rules = rules_for(script, ProgramLimits(timeout_s=30, at_once_max=1))
    results = await asyncio.gather(*(applied(rules, message(b"%d" % n)) for n in range(4)))
    assert [each.data for each in results] == [b"0", b"1", b"2", b"3"]


async def test_number_of_programs_per_message_is_limited() -> None:
    rules = rules_for("", actions="prg $;" * 33)
    with pytest.raises(NotSentError, match="at most 32 programs"):
        await applied(rules, message())


async def test_waiting_for_another_program_counts_as_time_of_the_program() -> None:
    rules = rules_for("sleep 1000", ProgramLimits(timeout_s=0.2, at_once_max=1))
    async with asyncio.timeout(TIMEOUT_S):
        outcomes = await asyncio.gather(*(applied(rules, message()) for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in outcomes] == [NotSentError] * 3


async def test_cancelled_broadcast_ends_its_program(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    task = asyncio.ensure_future(applied(rules_for(f"echo $$ > {pid}; exec sleep 1000"), message()))
    await eventually(lambda: pid.exists() and pid.read_text().strip())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: not is_running(int(pid.read_text())), "end of the program")


async def test_programs_are_off_by_default_and_must_be_lists() -> None:
    with pytest.raises(ValueError, match="no program of that name is switched on"):
        Rules(parse("IF { true } THEN { rm -rf / }"))
    with pytest.raises(TypeError, match="must be a list of words"):
        Rules(programs={"prg": "rm -rf /"})


def test_broadcast_nowait_does_not_wait_for_a_program() -> None:
    class Nowhere:
        name = "office/hq"
        _observer = None

    with pytest.raises(NotSentError, match="has to wait; send with broadcast"):
        rules_for("cat").apply_nowait(message(), Nowhere())  # type: ignore[arg-type]
