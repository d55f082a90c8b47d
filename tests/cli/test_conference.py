"""`broadloom conference`."""

import asyncio
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broadloom import BroadloomError
from broadloom.apps.conference import Meeting, ParticipantsChanged
from broadloom.cli.conference import MeetingSession
from broadloom.cli.exit_codes import CommandFailedError
from tests.channel.joined import connected_channels
from tests.cli.harness import new_channel, run, running_command
from tests.support import eventually


def test_meeting_is_held_in_terminals_and_written_up(tmp_path: Path) -> None:
    channel, page = new_channel(), tmp_path / "minutes.html"
    with (
        running_command("conference", "join", channel, "--as", "Anna") as anna,
        running_command("conference", "join", channel, "--as", "Ben", "--json") as ben,
    ):
        ben.wait_for_output('"joined"')
        anna.type("agenda rib 4; next steps\nfloor\nnote rib-4 A <b>crack</b>?\npoll Release it? yes, no\n")
        ben.wait_for_output('"poll"')
        ben.type("reply 1 No, dust.\nvote 1 1\nhand\n")
        anna.wait_for_output("Ben raises a hand")
        assert "Ben notes at rib-4 [2] (reply to 1): No, dust." in anna.out
        events = [json.loads(line)["event"] for line in ben.out.splitlines()]
        assert [each for each in events if each not in ("joined", "arrive")][:4] == [
            "agenda",
            "request",
            "annotate",
            "poll",
        ]
        ben.type("people\nhelp\nfloor\nrelease\n")
        anna.wait_for_output("Ben leaves the queue")
        ben.wait_for_output("lines that you can type", "err")
        listed = next(each for each in map(json.loads, ben.out.splitlines()) if each["event"] == "people")
        assert sorted(listed["people"]) == ["Anna (leads)", "Ben (hand)"]
        code, out, err = run("conference", "minutes", channel)
        assert (code, err) == (0, "")
        assert "# Minutes of" in out
        assert "A \\<b\\>crack\\</b\\>?" in out
        assert "**yes** 1 vote" in out
        assert run("conference", "minutes", channel, "--format", "html", "--out", str(page)).code == 0
        assert "&lt;b&gt;crack" in page.read_text(encoding="utf-8")
        ben.type("give Anna\n")
        code, _, err = ben.wait()
        assert code == 1
        assert "only the leader can hand over the floor" in err.splitlines()[-1]
        anna.end_of_input()
        assert anna.wait().code == 0


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("release", "you neither lead nor wait for the floor"),
        ("unload rib-4", "rib-4 is not loaded"),
        ("note rib-4", "type `note PART TEXT`"),
        ("poll Ready?", "type `poll QUESTION? A, B`"),
        ("give", "type `give NAME`"),
    ],
)
async def test_line_that_cannot_be_done_is_an_error(line: str, problem: str) -> None:
    async with connected_channels(1) as (channel,), Meeting(channel, "Anna") as meeting:
        session = MeetingSession(meeting, SimpleNamespace(), json=False)  # type: ignore[arg-type]
        before = meeting._order.last_index
        with pytest.raises(CommandFailedError, match=re.escape(problem)):
            await session.send(line.encode())
        assert meeting._order.last_index == before, "nobody else hears of it"


def test_minutes_without_a_meeting_are_an_error() -> None:
    code, out, err = run("conference", "minutes", new_channel())
    assert (code, out) == (1, "")
    assert "there is no meeting" in err


async def test_command_reports_dropped_events_and_ends_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fail() -> None:
        raise BroadloomError("a fault")

    async def done() -> None:
        pass

    async def wait_forever() -> int:
        await asyncio.Event().wait()
        return 0

    monkeypatch.setattr(Meeting, "_events_max", 1)
    async with connected_channels(1) as (channel,), Meeting(channel, "Anna") as meeting:
        out: Any = SimpleNamespace(put=lambda _text: None, flush=done)
        session = MeetingSession(meeting, out, json=False)
        monkeypatch.setattr(session, "_forward_input", wait_forever)
        running = asyncio.create_task(session.run(keep_open=False))
        await eventually(lambda: len(meeting._listeners), "the session reads")
        for _ in range(3):
            meeting.emit(ParticipantsChanged())
        meeting._start(fail)
        with pytest.raises(BroadloomError, match="a fault"):
            await running
        assert "2 events are not shown" in capsys.readouterr().err
