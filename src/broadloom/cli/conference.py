"""`broadloom conference`: take part in the meeting of a channel from a terminal, and write its minutes."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from broadloom.apps.conference import ConferenceError, Done, Meeting, Missed
from broadloom.apps.conference.actions import name_of_action
from broadloom.apps.conference.minutes import FORMATS
from broadloom.apps.conference.transcript import describe
from broadloom.cli.exit_codes import SUCCESS, CommandFailedError, UsageError
from broadloom.cli.formatting import escape_control_chars, json_line
from broadloom.cli.options import ChannelArgument, JoinOptions, JsonOption, KeepOpenOption, command_group, option
from broadloom.cli.output import Output
from broadloom.cli.runner import StopSignal, command, joined_channel, report_end
from broadloom.cli.session import Session
from broadloom.errors import OrderTimeoutError
from broadloom.order import Rewound

conference = command_group(
    "Meet on a channel: floor, hands, notes, polls and minutes. The view is on the page Review of `broadloom web`.\n\n"
    "Examples:\n\n"
    "- `broadloom conference join review/wing-7 --as Anna`\n"
    "- `broadloom conference minutes review/wing-7 --out minutes.md`",
)

HELP = """lines that you can type:
  people                  who is here, with hands and the queue for the floor
  hand, lower             raise your hand, and lower it
  floor, release          ask for the floor, and give it back
  give NAME, back         hand the floor over, and take it back
  load PART, unload PART  add a part to the shared view, and remove it
  note PART TEXT          annotate a part
  reply NUMBER TEXT       reply to a note
  poll QUESTION? A, B     open a poll
  vote NUMBER OPTION      vote in a poll, as in `vote 1 2`
  close NUMBER            close a poll
  agenda A; B             set the agenda"""


WORDS = {
    "give": ["NAME"],
    "load": ["PART"],
    "unload": ["PART"],
    "note": ["PART", "TEXT"],
    "reply": ["NUMBER", "TEXT"],
    "poll": ["QUESTION?", "A, B"],
    "vote": ["NUMBER", "OPTION"],
    "close": ["NUMBER"],
}
"""What has to follow on a line."""


class MeetingSession(Session):
    """A line is a command; what all participants do is shown."""

    def __init__(self, meeting: Meeting, out: Output, *, json: bool) -> None:
        super().__init__("conference join", meeting.channel, out, json=json, source=meeting)
        self._meeting = meeting

    def show_joined(self) -> None:
        if self.json:
            self.terminal.show(json_line({"event": "joined", "name": self._meeting.name, "people": self._people()}))
            return
        self.terminal.notice(f"in {escape_control_chars(self.channel.name)}: {', '.join(self._people())}")
        if self.at_terminal:
            self.terminal.notice("type `help` for what you can do; Ctrl-D leaves")

    async def print_messages(self, count: int | None = None) -> None:
        async for event in self._meeting.events():
            if isinstance(event, Done) and (line := self._line(event)):
                self.terminal.show(line)
                await self.out.flush()
            elif isinstance(event, Rewound):
                self.warn("two parts of the meeting have met: what the larger one did comes first")
            elif isinstance(event, Missed):
                self.warn(f"{event.event_count:,} events are not shown: the output was too slow")
        self.exit_code = report_end(self.command, self.channel)

    def _line(self, done: Done) -> str | None:
        if not self.json:
            text = describe(done, self._meeting)
            return escape_control_chars(text) if text is not None else None
        fields = {"event": name_of_action(done.sent.action), "name": self._meeting.name_of(done.author)}
        return json_line({**fields, "is_permitted": done.is_permitted, **asdict(done.sent.action)})

    def _people(self) -> list[str]:
        return [
            escape_control_chars(each.name)
            + " (leads)" * each.is_leader
            + " (hand)" * each.has_hand_up
            + (f" (floor: {each.queue_place})" if each.queue_place else "")
            for each in self._meeting.participants()
        ]

    async def send(self, line: bytes) -> None:
        text = line.decode(errors="replace").strip()
        if not text:
            return
        try:
            await self._run(*text.partition(" ")[::2])
        except (ConferenceError, OrderTimeoutError, ValueError) as problem:
            if self.at_terminal:
                raise
            raise CommandFailedError(f"{text!r}: {problem}") from None

    async def _run(self, verb: str, rest: str) -> None:
        meeting, first, others = self._meeting, *rest.strip().partition(" ")[::2]
        state = meeting.state
        words = WORDS.get(verb, [])
        if len(rest.split()) < len(words):
            raise ValueError(f"type `{' '.join([verb, *words])}`")
        match verb:
            case "help" if self.json:  # standard output has objects only
                print(HELP, file=sys.stderr, flush=True)
            case "help":
                self.terminal.notice(HELP)
            case "people" if self.json:
                self.terminal.show(json_line({"event": "people", "people": self._people()}))
            case "people":
                self.terminal.notice("\n".join(self._people()))
            case "hand" | "lower":
                await meeting.raise_hand(verb == "hand")
            case "floor":
                await meeting.request_floor()
            case "release" if meeting.me not in (meeting.leader, *state.floor.queue):
                raise ValueError("you neither lead nor wait for the floor")
            case "release":
                await meeting.release_floor()
            case "give":
                await meeting.hand_over(self._person(rest.strip()))
            case "back":
                await meeting.take_back()
            case "load":
                await meeting.load(rest.strip())
            case "unload" if rest.strip() not in state.parts:
                raise ValueError(f"{rest.strip()} is not loaded")
            case "unload":
                await meeting.unload(rest.strip())
            case "note":
                await meeting.annotate(first, others)
            case "reply":
                note = _numbered(list(state.notes), first, "note")
                await meeting.annotate(state.notes[note].part, others, reply_to=note)
            case "poll":
                question, _, options = rest.partition("?")
                await meeting.open_poll(f"{question.strip()}?", [each.strip() for each in options.split(",")])
            case "vote":
                await meeting.vote(_numbered(list(state.polls), first, "poll"), _number(others) - 1)
            case "close":
                await meeting.close_poll(_numbered(list(state.polls), first, "poll"))
            case "agenda":
                await meeting.set_agenda([each.strip() for each in rest.split(";") if each.strip()])
            case _:
                raise ValueError(f"unknown line {verb!r}: type `help`")

    def _person(self, name: str) -> int:
        found = [each.peer_id for each in self._meeting.participants() if each.name == name and not each.is_me]
        if not found:
            raise ValueError(f"nobody else here is called {name!r}: type `people`")
        return found[0]


def _number(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"{text.strip()!r} is not a number")
    return int(text)


def _numbered(ids: Sequence[str], number: str, what: str) -> str:
    if not 1 <= _number(number) <= len(ids):
        raise ValueError(f"there is no {what} {number}")
    return ids[int(number) - 1]


@command("conference join", conference)
async def join(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    keep_open: KeepOpenOption = False,
    json: JsonOption = False,
) -> int:
    """Take part in the meeting of a channel.

    Each input line is a command, such as `hand`, `floor` or `note rib-4 A crack?`; `help` lists them. What all
    participants do is printed. There is no audio and no video.

    Examples:

    - `broadloom conference join review/wing-7 --as Anna`
    - `echo "note rib-4 A crack?" | broadloom conference join review/wing-7 --as Anna`
    """
    async with joined_channel(channel, join_options, stop) as joined, Meeting(joined) as meeting:
        stop.interrupt_is_success = True
        async with Output(stop) as out:
            session = MeetingSession(meeting, out, json=json)
            await session.run(keep_open=keep_open)
    return session.exit_code


@command("conference minutes", conference)
async def minutes(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    format: Annotated[str, option("Output format.", "md|json|html")] = "md",
    out: Annotated[Path | None, option("Output file. Default: standard output.", "FILE", "--out", "-o")] = None,
    json: Annotated[bool, option("Short for `--format json`.", None, "--json", "-j")] = False,
) -> int:
    """Write the minutes of a meeting: participants, agenda, polls, annotations, measurements, and who led.

    The members have them: a meeting must be going on. Exit status 1 if there is none.

    Examples:

    - `broadloom conference minutes review/wing-7`
    - `broadloom conference minutes review/wing-7 --format html --out minutes.html`
    """
    write = FORMATS.get("json" if json else format)
    if write is None:
        raise UsageError(f"unknown format {format!r}: choose one of {', '.join(FORMATS)}")
    async with joined_channel(channel, join_options, stop) as joined, Meeting(joined, listens=True) as meeting:
        state = meeting.state
    if not state.participants:
        raise CommandFailedError(f"{channel}: there is no meeting")
    if out is None:
        sys.stdout.writelines(write(state, channel))
        return SUCCESS
    try:
        with out.open("w", encoding="utf-8") as file:
            file.writelines(write(state, channel))
    except OSError as problem:
        raise UsageError(f"cannot write {out}: {problem.strerror}") from None
    return SUCCESS
