"""The session of `broadloom group join`, at a terminal or through pipes.

Each message is shown with a number. An input line is posted as it is; `>3 text` replies to message 3. With `--json`,
both directions are JSON objects.
"""

import asyncio
import base64
import binascii
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broadloom.cli.exit_codes import CommandFailedError, UsageError
from broadloom.cli.formatting import escape_control_chars
from broadloom.cli.group_formatting import MessageNumbers, event_json, event_text, joined_json, message_json
from broadloom.cli.output import Output
from broadloom.cli.session import Session
from broadloom.groups import GroupEvent, MemberStatus, MessageId

if TYPE_CHECKING:
    from broadloom.channel import Channel
    from broadloom.groups import Group, GroupMessage, Groups

_REPLY = re.compile(r">([0-9]+|[0-9a-f]{4,16}-[0-9]+) (.*)", re.IGNORECASE | re.DOTALL)


class OutgoingPost(NamedTuple):
    data: bytes
    reply_to: str | None
    """Number or ID of a message, as entered."""


def parse_message_id(text: str) -> MessageId:
    try:
        return MessageId.parse(text.lower())
    except ValueError as problem:
        raise UsageError(f"--reply-to: {problem}; `broadloom group history --json` shows it as `id`") from None


def parse_line(line: bytes) -> OutgoingPost:
    """A line of text, with an optional reply prefix."""
    found = _REPLY.fullmatch(line.decode(errors="replace"))
    if found is None:
        return OutgoingPost(line, None)
    return OutgoingPost(line[len(f">{found[1]} ") :], found[1])


def parse_object(line: bytes) -> OutgoingPost:
    """A JSON object with `text` (or base64 `data`) and an optional `reply_to`; a line that is no object is text. Raises
    `ValueError` for any other object."""
    if not line.lstrip().startswith(b"{"):
        return OutgoingPost(line, None)
    fields = json.loads(line)
    text, data, reply_to = (fields.get(name) for name in ("text", "data", "reply_to"))
    if unknown := sorted(set(fields) - {"text", "data", "reply_to"}):
        raise ValueError(f"unknown field {unknown[0]!r}: expected text (or data) and reply_to")
    if (text is None) == (data is None) or not all(isinstance(each, str | None) for each in (text, data, reply_to)):
        raise ValueError("expected either text or data, and all fields as strings")
    if text is not None:
        return OutgoingPost(text.encode(), reply_to)
    try:
        return OutgoingPost(base64.b64decode(data, validate=True), reply_to)
    except binascii.Error:
        raise ValueError("data is not valid base64") from None


class GroupSession(Session):
    echo_input = False  # a posted message is shown with its number

    def __init__(
        self,
        channel: "Channel",
        groups: "Groups",
        group: "Group",
        out: Output,
        *,
        json: bool,
        reply_to: MessageId | None,
    ) -> None:
        super().__init__("group join", channel, out, json=json, source=group)
        self._groups = groups
        self._group = group
        self._reply_to = reply_to
        self._numbers = MessageNumbers()
        self._changed = asyncio.Event()
        self._line = self._dropped_reported = 0

    @contextmanager
    def subscribed(self) -> Iterator[None]:
        unsubscribe = self._groups.on_event(self._on_group_event)
        try:
            with super().subscribed():
                yield
        finally:
            unsubscribe()

    # -- from the group

    async def show_message(self, message: "GroupMessage") -> None:
        self._show(message)
        self._changed.set()

    def after_message(self) -> None:
        dropped = self._group.dropped_count
        if dropped > self._dropped_reported:
            self.warn(f"{dropped - self._dropped_reported:,} messages were dropped because the output was too slow")
            self._dropped_reported = dropped

    def _show(self, message: "GroupMessage") -> None:
        own = message.author == self._groups.me.id
        if self.json:
            self.terminal.show(message_json(message, own=own))
        elif self.at_terminal or not own:
            self.terminal.show(self._numbers.format_message(message))

    def _on_group_event(self, event: GroupEvent) -> None:
        self._changed.set()
        if getattr(event, "group_id", self._group.id) == self._group.id:
            self.show_event(event_json(event) if self.json else event_text(event))

    def show_joined(self) -> None:
        if self.json:
            self.terminal.show(joined_json(self._group.info, self._groups.me))
            return
        members = self._group.members().items()
        online = [escape_control_chars(str(member)) for member, status in members if status is MemberStatus.ONLINE]
        self.terminal.notice(
            f"in {escape_control_chars(self._group.description)} as {escape_control_chars(self._groups.me.name)}; "
            f"online: {', '.join(online)}"
        )
        if self.at_terminal:
            self.terminal.notice("each line is a message; start it with >3 to reply to message 3; Ctrl-D leaves")

    # -- to the group

    async def send(self, line: bytes) -> None:
        self._line += 1
        try:
            await self._post(parse_object(line) if self.json else parse_line(line))
        except ValueError as problem:
            if self.at_terminal:
                raise
            raise CommandFailedError(f"line {self._line:,} was not posted: {problem}") from None

    async def _post(self, post: OutgoingPost) -> None:
        parent = self._reply_to
        if post.reply_to is not None:
            parent = self._numbers.resolve(post.reply_to) if not self.json else MessageId.parse(post.reply_to)
        if parent is not None and not await self._has_message(parent):
            raise ValueError(f"cannot reply to {parent}: the message is not available")
        message = await self._group.send(post.data, reply_to=parent)
        self.show_in_order(partial(self._show, message))
        await self.out.flush()

    async def _has_message(self, message_id: MessageId) -> bool:
        """Whether the message is available; waits while the history is being fetched."""
        while self._group.get(message_id) is None:
            if not self._group.is_catching_up:
                return False
            self._changed.clear()
            await self._changed.wait()
        return True
