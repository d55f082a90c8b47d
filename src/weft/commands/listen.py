"""`weft listen`: what members of a channel broadcast, to standard output."""

import asyncio
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from weft.commands.ending import End, complain, hint, run
from weft.commands.errors import FAILED, FINE, Failed
from weft.commands.output import Output
from weft.commands.saving import directory_for
from weft.commands.saving import save as save_file
from weft.commands.taking_part import taking_part
from weft.commands.telling import Telling, harmless
from weft.fabric.events import Message, Missed
from weft.wire.broadcast import Kind

if TYPE_CHECKING:
    from weft.channel import Channel, ChannelEvent
    from weft.commands.options import Joining

TOGETHER = 1000
"""Messages that are written at once, if so many have come."""


def listen(
    channel: str,
    joining: "Joining",
    *,
    json: bool,
    events: bool,
    count: int | None,
    for_s: float | None,
    save: Path | None,
) -> int:
    async def work(end: End) -> int:
        directory = directory_for(save) if save is not None else None
        async with taking_part(channel, joining, end) as joined:
            listener = _Listener(joined, end, json=json, events=events, count=count, save=directory)
            return await listener.listen(for_s)

    return run("listen", work)


class _Listener:
    def __init__(
        self, channel: "Channel", end: End, *, json: bool, events: bool, count: int | None, save: Path | None
    ) -> None:
        self._channel = channel
        self._end = end
        self._json = json
        self._events = events
        self._left = count
        self._save = save
        self._has_lost_a_file = False
        self._telling = Telling(channel)
        self._out = Output(end)
        self._read = 0
        self._waiting: deque[tuple[int, str]] = deque()
        """Events that came when messages were unread: how many have to be read before, and the line."""

    async def listen(self, for_s: float | None) -> int:
        self._end.by_hand_is_fine = self._left is None
        stop_telling = self._channel.on_event(self._happened)
        self._tell_joined()
        try:
            async with self._out, asyncio.timeout(for_s):
                await self._messages()
        except TimeoutError:
            pass
        finally:
            stop_telling()
        if self._left:
            complain("listen", f"{self._left} of the messages that were waited for did not come")
            return FAILED
        return FAILED if self._has_lost_a_file else FINE

    async def _messages(self) -> None:
        """As many as were asked for, or until the channel is closed."""
        if self._left == 0:
            return
        lines: list[str] = []
        messages = 0
        async for message in self._channel:
            lines.append(await self._shown(message))
            messages += 1
            self._read += 1
            lines += self._due()
            is_last = self._left is not None and messages >= self._left
            if is_last or not self._channel.unread or messages >= TOGETHER:
                if self._left is not None:
                    self._left -= messages
                text, messages = "\n".join(lines) + "\n", 0
                lines.clear()
                await self._out.write(text)
                if is_last:
                    return
        complain("listen", "the channel was closed for all")

    async def _shown(self, message: Message) -> str:
        """The line for it. A file is put where files go, beside the event loop, because it may be large."""
        show = self._telling.message_json if self._json else self._telling.message
        if message.kind != Kind.FILE:
            return show(message)
        saved = None
        if self._save is not None:
            try:
                saved = await asyncio.to_thread(_saved, self._save, message)
            except (Failed, ValueError) as problem:
                self._has_lost_a_file = True
                who = self._telling.name(message.author)
                complain("listen", f"a file of {who} was not saved: {harmless(str(problem))}")
        return show(message, saved)

    def _tell_joined(self) -> None:
        if self._events:
            self._out.put((self._telling.joined_json() if self._json else self._telling.joined()) + "\n")
        else:
            hint(self._telling.joined())

    def _happened(self, event: "ChannelEvent") -> None:
        """Missed messages are always told: in JSON here, else by the warning that the channel itself gives."""
        if not self._events and not isinstance(event, Missed):
            return
        line = self._telling.event_json(event) if self._json else self._telling.event(event)
        if line is None:
            return
        if self._channel.unread:
            self._waiting.append((self._read + self._channel.unread, line))
        else:
            self._out.put(line + "\n")

    def _due(self) -> list[str]:
        """Events whose turn it is: an event is told after the messages that came before it."""
        due = []
        while self._waiting and (self._waiting[0][0] <= self._read or not self._channel.unread):
            due.append(self._waiting.popleft()[1])
        return due


def _saved(directory: Path, message: Message) -> Path:
    file = message.file
    assert file is not None
    return save_file(directory, file.name, file.content)
