"""The session of `broadloom group join`, at a terminal or through pipes.

Each message is shown with a number. An input line is posted as it is; `>3 text` replies to message 3. With `--json`,
both directions are JSON objects.
"""

import asyncio
import base64
import binascii
import json
import re
from collections import deque
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

from broadloom.cli.exit_codes import CommandFailedError, UsageError
from broadloom.cli.formatting import escape_control_chars
from broadloom.cli.group_formatting import MessageNumbers, event_json, event_text, joined_json, message_json
from broadloom.cli.output import Output, input_lines
from broadloom.cli.prompt import PromptLine, Terminal, at_terminal, typed_input
from broadloom.cli.runner import print_error
from broadloom.groups import GroupEvent, MemberStatus, MessageId
from broadloom.protocol.events import LinkUp

if TYPE_CHECKING:
    from broadloom.channel import Channel, ChannelEvent
    from broadloom.groups import Group, GroupMessage, Groups

BATCH_MESSAGES = 1000
"""Messages handed to the output before waiting for it."""
PENDING_EVENTS_MAX = 1000
"""Events that wait for earlier messages to be shown."""

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


class GroupSession:
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
        self._channel = channel
        self._groups = groups
        self._group = group
        self._out = out
        self._json = json
        self._reply_to = reply_to
        self._numbers = MessageNumbers()
        self._terminal = Terminal(out)
        self._at_terminal = not json and at_terminal()
        self._had_peers = bool(channel.status().neighbors)
        self._changed = asyncio.Event()
        self._read_count = self._dropped_reported = 0
        self._pending_events: deque[tuple[int, str]] = deque()
        """Events that occurred while messages were unread: the number of messages to show first, and the line."""

    async def run(self, *, keep_open: bool) -> bool:
        """Run until the end of the input, unless `keep_open`, or until the channel is closed. Returns whether messages
        were posted while there were no other peers."""
        unsubscribers = [self._groups.on_event(self._on_event), self._channel.on_event(self._on_channel_event)]
        with self._terminal.prompt() if self._at_terminal else nullcontext() as prompt:
            self._show_joined()
            reading = asyncio.ensure_future(self._read())
            writing = asyncio.ensure_future(
                self._read_terminal(prompt) if prompt is not None else self._forward_input()
            )
            try:
                await asyncio.wait([reading, writing], return_when=asyncio.FIRST_COMPLETED)
                if writing.done():
                    sent = writing.result()
                    if not keep_open:
                        return sent > 0 and not self._had_peers
                await reading
            finally:
                for unsubscribe in unsubscribers:
                    unsubscribe()
                for task in (reading, writing):
                    task.cancel()
        print_error("group join", "the channel was closed for all members")
        return False

    # -- from the group

    async def _read(self) -> None:
        unwritten = 0
        async for message in self._group:
            self._show_message(message)
            self._read_count += 1
            self._changed.set()
            while self._pending_events and (
                self._pending_events[0][0] <= self._read_count or not self._group.unread_count
            ):
                self._terminal.show(self._pending_events.popleft()[1])
            unwritten += 1
            if not self._group.unread_count or unwritten >= BATCH_MESSAGES:
                unwritten = 0
                await self._out.flush()  # a slow reader holds us up here, and the group counts what it drops
            if self._group.dropped_count > self._dropped_reported:
                more, self._dropped_reported = (
                    self._group.dropped_count - self._dropped_reported,
                    self._group.dropped_count,
                )
                self._warn(f"{more:,} messages were dropped because the output was too slow")

    def _show_message(self, message: "GroupMessage") -> None:
        own = message.author == self._groups.me.id
        if self._json:
            self._terminal.show(message_json(message, own=own))
        elif self._at_terminal or not own:
            self._terminal.show(self._numbers.format_message(message))

    def _on_event(self, event: GroupEvent) -> None:
        self._changed.set()
        if getattr(event, "group", self._group.id) != self._group.id:
            return
        text = event_text(event)
        line = event_json(event) if self._json else self._terminal.format_notice(text) if text is not None else None
        if line is None:
            return
        if not self._group.unread_count:
            self._terminal.show(line)
        elif len(self._pending_events) < PENDING_EVENTS_MAX:
            self._pending_events.append((self._read_count + self._group.unread_count, line))
        else:
            self._warn("events were dropped because the output was too slow")

    def _on_channel_event(self, event: "ChannelEvent") -> None:
        self._had_peers = self._had_peers or isinstance(event, LinkUp)

    def _show_joined(self) -> None:
        if self._json:
            self._terminal.show(joined_json(self._group.info, self._groups.me))
            return
        online = [
            escape_control_chars(str(member))
            for member, status in self._group.members().items()
            if status is MemberStatus.ONLINE
        ]
        self._terminal.notice(
            f"in {escape_control_chars(self._group.description)} as {escape_control_chars(self._groups.me.name)}; "
            f"online: {', '.join(online)}"
        )
        if self._at_terminal:
            self._terminal.notice("each line is a message; start it with >3 to reply to message 3; Ctrl-D leaves")

    def _warn(self, text: str) -> None:
        if self._at_terminal:
            self._terminal.notice(f"! {text}")
        else:
            print_error("group join", text)

    # -- to the group

    async def _forward_input(self) -> int:
        """Post lines from a pipe or a file. An error stops the command."""
        sent = 0
        async for line in input_lines():
            try:
                await self._send(parse_object(line) if self._json else parse_line(line))
            except ValueError as problem:
                raise CommandFailedError(f"line {sent + 1:,} was not posted: {problem}") from None
            sent += 1
        return sent

    async def _read_terminal(self, prompt: PromptLine) -> int:
        """Post typed lines. An error is shown, and the user can go on. A message is shown with its number when it is
        delivered, so the typed line itself is not kept on the screen."""
        sent = 0
        async for data in typed_input(prompt):
            finished = prompt.editor.feed(data)
            prompt.redraw()
            for line in filter(None, finished):
                try:
                    await self._send(parse_line(line.encode()))
                    sent += 1
                except ValueError as problem:
                    self._terminal.notice(f"! {problem}")
        return sent

    async def _send(self, post: OutgoingPost) -> None:
        parent = self._reply_to
        if post.reply_to is not None:
            parent = self._numbers.resolve(post.reply_to) if not self._json else MessageId.parse(post.reply_to)
        if parent is not None and not await self._has_message(parent):
            raise ValueError(f"cannot reply to {parent}: the message is not available")
        await self._group.send(post.data, reply_to=parent)

    async def _has_message(self, message_id: MessageId) -> bool:
        """Whether the message is available; waits while the history is being fetched."""
        while self._group.get(message_id) is None:
            if not self._group.is_catching_up:
                return False
            self._changed.clear()
            await self._changed.wait()
        return True
