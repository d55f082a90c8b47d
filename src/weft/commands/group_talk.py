"""`weft group join`: a person at a terminal, or a program at two pipes, talks in a group.

Each message is shown with a number. A line of the input is said as it is; one that begins with `>` and the number (or
the name) of a message answers that message. For a program, `--json` has both sides as objects.
"""

import asyncio
import base64
import binascii
import json as json_module
import re
from collections import deque
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

from weft.commands.ending import complain
from weft.commands.errors import Failed, Mistake
from weft.commands.group_telling import Numbered, event_json, event_text, joined_json, message_json
from weft.commands.output import Output, lines_of_input
from weft.commands.prompt import Prompt
from weft.commands.screen import Screen, at_terminal, typed
from weft.commands.telling import harmless
from weft.fabric.events import LinkUp
from weft.groups import GroupEvent, MessageId

if TYPE_CHECKING:
    from weft.channel import Channel, ChannelEvent
    from weft.groups import Group, Groups, Message

TOGETHER = 1000
"""Messages that are handed to the output before we wait for it."""
WAITING_MAX = 1000
"""Events that wait for messages which came before them."""

_ANSWER = re.compile(r">([0-9]+|[0-9a-f]{4,16}-[0-9]+) (.*)", re.IGNORECASE | re.DOTALL)


class Speech(NamedTuple):
    data: bytes
    answers: str | None
    """The number or name of a message, as it was given."""


def message_named(text: str) -> MessageId:
    try:
        return MessageId.parse(text.lower())
    except ValueError as problem:
        raise Mistake(f"--reply-to: {problem}; `weft group history --json` tells it as `id`") from None


def read_line(line: bytes) -> Speech:
    """A line as a person writes it."""
    found = _ANSWER.fullmatch(line.decode(errors="replace"))
    if found is None:
        return Speech(line, None)
    return Speech(line[len(f">{found[1]} ") :], found[1])


def read_object(line: bytes) -> Speech:
    """A line as a program writes it: an object with `text` (or `data`, in base64) and perhaps `reply_to`; any other is
    text. ValueError if it is no such object."""
    if not line.lstrip().startswith(b"{"):
        return Speech(line, None)
    told = json_module.loads(line)
    text, data, answers = (told.get(name) for name in ("text", "data", "reply_to"))
    if unknown := sorted(set(told) - {"text", "data", "reply_to"}):
        raise ValueError(f"an object has text (or data) and reply_to, not {unknown[0]!r}")
    if (text is None) == (data is None) or not all(isinstance(each, str | None) for each in (text, data, answers)):
        raise ValueError("an object has one of text and data, and both and reply_to are texts")
    if text is not None:
        return Speech(text.encode(), answers)
    try:
        return Speech(base64.b64decode(data, validate=True), answers)
    except binascii.Error:
        raise ValueError("data is no base64") from None


class Talk:
    def __init__(
        self,
        channel: "Channel",
        here: "Groups",
        group: "Group",
        out: Output,
        *,
        json: bool,
        answered: MessageId | None,
    ) -> None:
        self._channel = channel
        self._here = here
        self._group = group
        self._out = out
        self._json = json
        self._answered = answered
        self._numbered = Numbered()
        self._screen = Screen(out)
        self._at_terminal = not json and at_terminal()
        self._had_company = bool(channel.status().neighbours)
        self._news = asyncio.Event()
        self._read_count = self._dropped_told = 0
        self._waiting: deque[tuple[int, str]] = deque()
        """Events that came when messages were unread: how many have to be read before, and the line."""

    async def part(self, *, stay: bool) -> bool:
        """Until the input ends, or (`stay`) for longer, or until the channel is closed. Whether something was said and
        nobody was there to hear it."""
        ends = [self._here.on_event(self._happened), self._channel.on_event(self._on_channel)]
        with self._screen.prompt() if self._at_terminal else nullcontext() as prompt:
            self._tell_joined()
            reading = asyncio.ensure_future(self._read())
            writing = asyncio.ensure_future(self._type(prompt) if prompt is not None else self._pass_on())
            try:
                await asyncio.wait([reading, writing], return_when=asyncio.FIRST_COMPLETED)
                if writing.done():
                    said = writing.result()
                    if not stay:
                        return said > 0 and not self._had_company
                await reading
            finally:
                for end in ends:
                    end()
                for task in (reading, writing):
                    task.cancel()
        complain("group join", "the channel was closed for all")
        return False

    # -- from the group

    async def _read(self) -> None:
        unwritten = 0
        async for message in self._group:
            self._show_message(message)
            self._read_count += 1
            self._news.set()
            while self._waiting and (self._waiting[0][0] <= self._read_count or not self._group.unread):
                self._screen.show(self._waiting.popleft()[1])
            unwritten += 1
            if not self._group.unread or unwritten >= TOGETHER:
                unwritten = 0
                await self._out.write("")  # who reads slowly makes us wait here, and the group counts what it drops
            if self._group.dropped > self._dropped_told:
                more, self._dropped_told = self._group.dropped - self._dropped_told, self._group.dropped
                self._warn(f"{more:,} messages came faster than they were read, and were not shown")

    def _show_message(self, message: "Message") -> None:
        own = message.author == self._here.me.id
        if self._json:
            self._screen.show(message_json(message, own=own))
        elif self._at_terminal or not own:
            self._screen.show(self._numbered.line(message))

    def _happened(self, event: GroupEvent) -> None:
        self._news.set()
        if getattr(event, "group", self._group.id) != self._group.id:
            return
        text = event_text(event)
        line = event_json(event) if self._json else self._screen.as_aside(text) if text is not None else None
        if line is None:
            return
        if not self._group.unread:
            self._screen.show(line)
        elif len(self._waiting) < WAITING_MAX:
            self._waiting.append((self._read_count + self._group.unread, line))
        else:
            self._warn("events came faster than they were read, and were not shown")

    def _on_channel(self, event: "ChannelEvent") -> None:
        self._had_company = self._had_company or isinstance(event, LinkUp)

    def _tell_joined(self) -> None:
        if self._json:
            self._screen.show(joined_json(self._group.info, self._here.me))
            return
        here = [harmless(str(member)) for member, where in self._group.members().items() if where.value == "present"]
        self._screen.aside(
            f"in {harmless(self._group.description)} as {harmless(self._here.me.name)}; here: {', '.join(here)}"
        )
        if self._at_terminal:
            self._screen.aside("a line is said to all; >3 in front of it answers message 3; Ctrl-D leaves")

    def _warn(self, text: str) -> None:
        if self._at_terminal:
            self._screen.aside(f"! {text}")
        else:
            complain("group join", text)

    # -- to the group

    async def _pass_on(self) -> int:
        """Lines from a pipe or a file. A line that cannot be said ends it."""
        said = 0
        async for line in lines_of_input():
            try:
                await self._say(read_object(line) if self._json else read_line(line))
            except ValueError as problem:
                raise Failed(f"line {said + 1:,} was not said: {problem}") from None
            said += 1
        return said

    async def _type(self, prompt: Prompt) -> int:
        """Lines from a person, who is told of one that cannot be said and may try another. What is said is shown when
        it is delivered, with its number, so the line itself is not."""
        said = 0
        async for data in typed(prompt):
            finished = prompt.typing.feed(data)
            prompt.redraw()
            for line in filter(None, finished):
                try:
                    await self._say(read_line(line.encode()))
                    said += 1
                except ValueError as problem:
                    self._screen.aside(f"! {problem}")
        return said

    async def _say(self, speech: Speech) -> None:
        parent = self._answered
        if speech.answers is not None:
            parent = self._numbered.named(speech.answers) if not self._json else MessageId.parse(speech.answers)
        if parent is not None and not await self._holds(parent):
            raise ValueError(f"the message {parent} is not to be had here, so it cannot be answered")
        await self._group.send(speech.data, reply_to=parent)

    async def _holds(self, named: MessageId) -> bool:
        """Whether we have a message; it may still come with the history."""
        while self._group.message(named) is None:
            if not self._group.is_catching_up:
                return False
            self._news.clear()
            await self._news.wait()
        return True
