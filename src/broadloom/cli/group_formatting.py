"""Groups, members and messages, in words for a person and as JSON for a program.

The rule is that of `telling.py`: names, descriptions and messages come from others and are shown, never obeyed. JSON
has them as they came.
"""

import base64
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from broadloom.cli.formatting import INDENT, SHORT_ID_DIGITS, escape_control_chars, message_text
from broadloom.groups import (
    CatchingUp,
    CaughtUp,
    GroupEvent,
    GroupInfo,
    GroupMessage,
    LimitReached,
    Member,
    MemberJoined,
    MemberLeft,
    MemberOffline,
    MemberOnline,
    MemberStatus,
    MessageId,
)

if TYPE_CHECKING:
    from broadloom.groups import RetentionPolicy

NUMBERED_MESSAGES_MAX = 100_000
"""Messages that can be answered by the number they were shown under; then the oldest lose theirs."""


class HistoryEntry(NamedTuple):
    """A message of a history, and how many answers deep it stands."""

    depth: int
    message: GroupMessage


def history_entries(messages: Iterable[GroupMessage]) -> Iterator[HistoryEntry]:
    """All messages, each below what it responds to, the rest in the order in which they were delivered. What responds
    to a message that is not there stands by itself."""
    held = {message.id: message for message in messages}
    replies: dict[MessageId | None, list[MessageId]] = {}
    for message in held.values():
        replies.setdefault(message.parent_id if message.parent_id in held else None, []).append(message.id)
    todo = [(0, message_id) for message_id in reversed(replies.get(None, []))]
    while todo:
        depth, named = todo.pop()
        yield HistoryEntry(depth, held[named])
        todo += [(depth + 1, each) for each in reversed(replies.get(named, []))]


def format_history_entry(entry: HistoryEntry) -> str:
    """One message, indented, with the beginning of its name: enough to answer it."""
    message = entry.message
    margin = INDENT * entry.depth
    note = " (answers what is not held)" if message.parent_id is not None and not entry.depth else ""
    text = message_content(message).replace("\n", f"\n{margin}")
    return f"{margin}{short_id(message.id)} {sent_time(message)} {author_label(message)}{note}: {text}"


def short_id(message_id: MessageId) -> str:
    return f"{message_id.author:016x}"[:SHORT_ID_DIGITS] + f"-{message_id.sequence}"


def author_label(message: GroupMessage) -> str:
    """The name that it gives itself, and the one on its ticket if that is another."""
    name = escape_control_chars(message.author_name) or hex_id(message.author)[:SHORT_ID_DIGITS]
    return (
        name
        if message.verified_name in ("", message.author_name)
        else f"{name} [{escape_control_chars(message.verified_name)}]"
    )


def sent_time(message: GroupMessage) -> str:
    """By the author's clock, which may say anything."""
    try:
        return f"{datetime.fromtimestamp(message.sent_at_ms / 1000).astimezone():%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):
        return "at no time"


def message_content(message: GroupMessage) -> str:
    return "(only its name is kept)" if message.is_stripped else message_text(message.data)


class MessageNumbers:
    """Messages as they are shown one after the other, each with a number by which it can be answered."""

    def __init__(self) -> None:
        self._numbers: dict[MessageId, int] = {}
        self._by_number: dict[int, MessageId] = {}
        self._last = 0

    def format_message(self, message: GroupMessage) -> str:
        self._last += 1
        self._numbers[message.id] = self._last
        self._by_number[self._last] = message.id
        if len(self._by_number) > NUMBERED_MESSAGES_MAX:
            oldest = self._last - NUMBERED_MESSAGES_MAX
            self._numbers.pop(self._by_number.pop(oldest), None)
        parent = ""
        if message.parent_id is not None:
            number = self._numbers.get(message.parent_id)
            parent = f" >{number if number is not None else short_id(message.parent_id)}"
        return f"{self._last} {author_label(message)}{parent}: {message_content(message)}"

    def resolve(self, reference: str) -> MessageId:
        """What is meant by a number, or by the name of a message, or its beginning as `history` shows it. ValueError if
        nothing is."""
        if reference.isascii() and reference.isdigit():
            found = self._by_number.get(int(reference))
            if found is None:
                raise ValueError(f"no message {reference} was shown here")
            return found
        author, _, sequence = reference.lower().partition("-")
        if len(author) == 16:
            return MessageId.parse(reference.lower())
        begins = [each for each in self._numbers if f"{each.author:016x}".startswith(author)]
        fits = [each for each in begins if str(each.sequence) == sequence]
        if len(fits) != 1:
            what = "more than one message that was shown here" if fits else "no message that was shown here"
            raise ValueError(f"{reference} names {what}")
        return fits[0]


def event_text(event: GroupEvent) -> str | None:
    """For a person; None for what need not be told."""
    match event:
        case MemberJoined(_, member):
            return f"+ {escape_control_chars(str(member))} joined the group"
        case MemberLeft(_, member):
            return f"- {escape_control_chars(str(member))} left the group"
        case MemberOffline(member):
            return f"- {escape_control_chars(str(member))} is gone"
        case MemberOnline(member):
            return f"+ {escape_control_chars(str(member))} is back"
        case CaughtUp(_, received, unavailable) if received or unavailable:
            missing = f"; {unavailable:,} more are not to be had" if unavailable else ""
            return f"{received:,} messages of before{missing}"
        case LimitReached(limit):
            return f"! refused: {escape_control_chars(limit)}"
        case _:
            return None


def event_json(event: GroupEvent) -> str | None:
    match event:
        case MemberJoined(group, member):
            return _json_line({"event": "member joined", "group": hex_id(group), **_member_fields(member)})
        case MemberLeft(group, member):
            return _json_line({"event": "member left", "group": hex_id(group), **_member_fields(member)})
        case MemberOffline(member):
            return _json_line({"event": "member gone", **_member_fields(member)})
        case MemberOnline(member):
            return _json_line({"event": "member back", **_member_fields(member)})
        case CatchingUp(group, received, remaining):
            fields = {"event": "catching up", "group": hex_id(group), "received": received, "remaining": remaining}
            return _json_line(fields)
        case CaughtUp(group, received, unavailable):
            fields = {"event": "caught up", "group": hex_id(group), "received": received, "unavailable": unavailable}
            return _json_line(fields)
        case LimitReached(limit):
            return _json_line({"event": "refused", "what": limit})
        case _:
            return None


def joined_json(info: GroupInfo, me: Member) -> str:
    return _json_line(
        {"event": "joined", "group": hex_id(info.id), "description": info.description, **_member_fields(me)}
    )


def message_json(message: GroupMessage, **more: Any) -> str:
    fields: dict[str, Any] = {
        "id": str(message.id),
        "group": hex_id(message.group_id),
        "member": hex_id(message.author),
        "name": message.author_name,
        "number": message.sequence,
        "parent": str(message.parent_id) if message.parent_id is not None else None,
        "sent_ms": message.sent_at_ms,
    }
    if message.is_stripped:
        fields["hollow"] = True
    else:
        try:
            fields["text"] = message.text
        except UnicodeDecodeError:
            fields["data"] = base64.b64encode(message.data).decode()
    if message.is_orphan:
        fields["orphan"] = True
    if message.verified_name:
        fields["proven"] = message.verified_name
    return _json_line({**fields, **more})


def group_json(info: GroupInfo, members: dict[Member, MemberStatus], held: int) -> str:
    counts = {status.value: sum(each is status for each in members.values()) for status in MemberStatus}
    return _json_line(
        {
            "group": hex_id(info.id),
            "description": info.description,
            "joined": info.is_joined,
            **counts,
            "held": held,
            "keep": retention_json(info.retention),
            "members": [{**_member_fields(member), "here": here.value} for member, here in members.items()],
        }
    )


def retention_json(retention: "RetentionPolicy") -> dict[str, Any]:
    return {
        "messages": retention.messages_max,
        "age_s": retention.age_max_s,
        "total_bytes": retention.bytes_max,
        "ids_only": retention.ids_only,
    }


def hex_id(number: int) -> str:
    return f"{number:016x}"


def _member_fields(member: Member) -> dict[str, str]:
    return {"member": hex_id(member.id), "name": member.name}


def _json_line(fields: dict[str, Any]) -> str:
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return json.dumps({**fields, "time": now}, ensure_ascii=False)
