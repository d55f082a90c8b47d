"""Groups, members and messages, in words for a person and as JSON for a program.

The rule is that of `telling.py`: names, descriptions and messages come from others and are shown, never obeyed. JSON
has them as they came.
"""

import base64
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.commands.telling import INDENT, SHORT, harmless, message_text
from weft.groups import (
    CatchingUp,
    CaughtUp,
    GroupEvent,
    GroupInfo,
    Here,
    Member,
    MemberBack,
    MemberGone,
    MemberJoined,
    MemberLeft,
    Message,
    MessageId,
    Refused,
)

if TYPE_CHECKING:
    from weft.groups import Keep

NUMBERED_MAX = 100_000
"""Messages that can be answered by the number they were shown under; then the oldest lose theirs."""


class Line(NamedTuple):
    """A message of a history, and how many answers deep it stands."""

    depth: int
    message: Message


def tree(messages: Iterable[Message]) -> Iterator[Line]:
    """All messages, each below what it responds to, the rest in the order in which they were delivered. What responds
    to a message that is not there stands by itself."""
    held = {message.id: message for message in messages}
    answers: dict[MessageId | None, list[MessageId]] = {}
    for message in held.values():
        answers.setdefault(message.parent if message.parent in held else None, []).append(message.id)
    todo = [(0, named) for named in reversed(answers.get(None, []))]
    while todo:
        depth, named = todo.pop()
        yield Line(depth, held[named])
        todo += [(depth + 1, each) for each in reversed(answers.get(named, []))]


def history_line(line: Line) -> str:
    """One message, indented, with the beginning of its name: enough to answer it."""
    message = line.message
    margin = INDENT * line.depth
    lost = " (answers what is not held)" if message.parent is not None and not line.depth else ""
    text = content(message).replace("\n", f"\n{margin}")
    return f"{margin}{short(message.id)} {when(message)} {speaker(message)}{lost}: {text}"


def short(named: MessageId) -> str:
    return f"{named.author:016x}"[:SHORT] + f"-{named.sequence}"


def speaker(message: Message) -> str:
    """The name that it gives itself, and the one on its ticket if that is another."""
    name = harmless(message.name) or hexed(message.author)[:SHORT]
    return name if message.proven in ("", message.name) else f"{name} [{harmless(message.proven)}]"


def when(message: Message) -> str:
    """By the author's clock, which may say anything."""
    try:
        return f"{datetime.fromtimestamp(message.sent_ms / 1000).astimezone():%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):
        return "at no time"


def content(message: Message) -> str:
    return "(only its name is kept)" if message.hollow else message_text(message.data)


class Numbered:
    """Messages as they are shown one after the other, each with a number by which it can be answered."""

    def __init__(self) -> None:
        self._numbers: dict[MessageId, int] = {}
        self._named: dict[int, MessageId] = {}
        self._last = 0

    def line(self, message: Message) -> str:
        self._last += 1
        self._numbers[message.id] = self._last
        self._named[self._last] = message.id
        if len(self._named) > NUMBERED_MAX:
            oldest = self._last - NUMBERED_MAX
            self._numbers.pop(self._named.pop(oldest), None)
        above = ""
        if message.parent is not None:
            number = self._numbers.get(message.parent)
            above = f" >{number if number is not None else short(message.parent)}"
        return f"{self._last} {speaker(message)}{above}: {content(message)}"

    def named(self, word: str) -> MessageId:
        """What is meant by a number, or by the name of a message, or its beginning as `history` shows it. ValueError if
        nothing is."""
        if word.isascii() and word.isdigit():
            found = self._named.get(int(word))
            if found is None:
                raise ValueError(f"no message {word} was shown here")
            return found
        author, _, sequence = word.lower().partition("-")
        if len(author) == 16:
            return MessageId.parse(word.lower())
        begins = [each for each in self._numbers if f"{each.author:016x}".startswith(author)]
        fits = [each for each in begins if str(each.sequence) == sequence]
        if len(fits) != 1:
            what = "more than one message that was shown here" if fits else "no message that was shown here"
            raise ValueError(f"{word} names {what}")
        return fits[0]


def event_text(event: GroupEvent) -> str | None:
    """For a person; None for what need not be told."""
    match event:
        case MemberJoined(_, member):
            return f"+ {harmless(str(member))} joined the group"
        case MemberLeft(_, member):
            return f"- {harmless(str(member))} left the group"
        case MemberGone(member):
            return f"- {harmless(str(member))} is gone"
        case MemberBack(member):
            return f"+ {harmless(str(member))} is back"
        case CaughtUp(_, received, unavailable) if received or unavailable:
            lacking = f"; {unavailable:,} more are not to be had" if unavailable else ""
            return f"{received:,} messages of before{lacking}"
        case Refused(what):
            return f"! refused: {harmless(what)}"
        case _:
            return None


def event_json(event: GroupEvent) -> str | None:
    match event:
        case MemberJoined(group, member):
            return _line({"event": "member joined", "group": hexed(group), **_member(member)})
        case MemberLeft(group, member):
            return _line({"event": "member left", "group": hexed(group), **_member(member)})
        case MemberGone(member):
            return _line({"event": "member gone", **_member(member)})
        case MemberBack(member):
            return _line({"event": "member back", **_member(member)})
        case CatchingUp(group, received, remaining):
            told = {"event": "catching up", "group": hexed(group), "received": received, "remaining": remaining}
            return _line(told)
        case CaughtUp(group, received, unavailable):
            told = {"event": "caught up", "group": hexed(group), "received": received, "unavailable": unavailable}
            return _line(told)
        case Refused(what):
            return _line({"event": "refused", "what": what})
        case _:
            return None


def joined_json(info: GroupInfo, me: Member) -> str:
    return _line({"event": "joined", "group": hexed(info.id), "description": info.description, **_member(me)})


def message_json(message: Message, **more: Any) -> str:
    told: dict[str, Any] = {
        "id": str(message.id),
        "group": hexed(message.group),
        "member": hexed(message.author),
        "name": message.name,
        "number": message.sequence,
        "parent": str(message.parent) if message.parent is not None else None,
        "sent_ms": message.sent_ms,
    }
    if message.hollow:
        told["hollow"] = True
    else:
        try:
            told["text"] = message.text
        except UnicodeDecodeError:
            told["data"] = base64.b64encode(message.data).decode()
    if message.orphan:
        told["orphan"] = True
    if message.proven:
        told["proven"] = message.proven
    return _line({**told, **more})


def group_json(info: GroupInfo, members: dict[Member, Here], held: int) -> str:
    counts = {here.value: sum(each is here for each in members.values()) for here in Here}
    return _line(
        {
            "group": hexed(info.id),
            "description": info.description,
            "joined": info.joined,
            **counts,
            "held": held,
            "keep": keep_json(info.keep),
            "members": [{**_member(member), "here": here.value} for member, here in members.items()],
        }
    )


def keep_json(keep: "Keep") -> dict[str, Any]:
    return {
        "messages": keep.messages,
        "age_s": keep.age_s,
        "total_bytes": keep.total_bytes,
        "ids_only": keep.ids_only,
    }


def hexed(number: int) -> str:
    return f"{number:016x}"


def _member(member: Member) -> dict[str, str]:
    return {"member": hexed(member.id), "name": member.name}


def _line(told: dict[str, Any]) -> str:
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return json.dumps({**told, "time": now}, ensure_ascii=False)
