"""Groups, members and group messages as text and as JSON, escaped as in `formatting.py`."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from rich.text import Text

from broadloom.cli.formatting import (
    INDENT,
    SHORT_ID_DIGITS,
    escape_control_chars,
    hex_id,
    json_line,
    message_text,
    payload_json,
)
from broadloom.groups import (
    CaughtUp,
    DirectorySynced,
    GroupDiscovered,
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
    ThreadEntry,
)

NAMES_SHOWN = 5
"""Online members in the table; `--json` has all."""
NUMBERED_MESSAGES_MAX = 100_000
"""Messages that can be referred to by number; then the oldest lose theirs."""


def history_entries(messages: Iterable[GroupMessage]) -> Iterator[ThreadEntry]:
    """All messages in depth-first order; siblings in delivery order. A reply to a message that is not available
    becomes a root."""
    held = {message.id: message for message in messages}
    replies: dict[MessageId | None, list[MessageId]] = {}
    for message in held.values():
        replies.setdefault(message.parent_id if message.parent_id in held else None, []).append(message.id)
    todo = [(0, message_id) for message_id in reversed(replies.get(None, []))]
    while todo:
        depth, message_id = todo.pop()
        yield ThreadEntry(depth, held[message_id])
        todo += [(depth + 1, each) for each in reversed(replies.get(message_id, []))]


def format_history_entry(entry: ThreadEntry) -> str:
    """One message, indented, with the start of its ID, which is enough to reply to it."""
    message = entry.message
    margin = INDENT * entry.depth
    note = " (replies to an unavailable message)" if message.parent_id is not None and not entry.depth else ""
    text = message_content(message).replace("\n", f"\n{margin}")
    sent = f"{message.sent_at:%Y-%m-%d %H:%M}" if message.sent_at is not None else "(invalid time)"
    return f"{margin}{short_id(message.id)} {sent} {author_label(message)}{note}: {text}"


def short_id(message_id: MessageId) -> str:
    return hex_id(message_id.author)[:SHORT_ID_DIGITS] + f"-{message_id.sequence}"


def author_label(message: GroupMessage) -> str:
    """The display name of the author, the name on the ticket if it differs, and whether the message is unproven."""
    name = escape_control_chars(message.author_name) or hex_id(message.author)[:SHORT_ID_DIGITS]
    return f"{name} {escape_control_chars(message.author_note)}".rstrip()


def message_content(message: GroupMessage) -> str:
    return "(content not kept)" if message.is_stripped else message_text(message.data)


class MessageNumbers:
    """Numbers the messages of a session, so that replies can refer to them."""

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
        """The message with this number, ID, or start of an ID as `history` shows it; `ValueError` if there is none."""
        if reference.isascii() and reference.isdigit():
            found = self._by_number.get(int(reference))
            if found is None:
                raise ValueError(f"there is no message number {reference}")
            return found
        author, _, sequence = reference.lower().partition("-")
        if len(author) == 16:
            return MessageId.parse(reference.lower())
        matches = [
            each for each in self._numbers if hex_id(each.author).startswith(author) and str(each.sequence) == sequence
        ]
        if len(matches) != 1:
            raise ValueError(
                f"{reference} matches {'more than one message' if matches else 'no message'} of this session"
            )
        return matches[0]


_EVENT_TEXTS: dict[type, str] = {
    MemberJoined: "+ {member} joined the group",
    MemberLeft: "- {member} left the group",
    MemberOffline: "- {member} went offline",
    MemberOnline: "+ {member} is back online",
    LimitReached: "! limit reached: {limit}",
}


def event_text(event: GroupEvent) -> str | None:
    """One line, or None for events that need none."""
    if isinstance(event, CaughtUp) and (event.received or event.unavailable):
        missing = f"; {event.unavailable:,} more are no longer available" if event.unavailable else ""
        return f"received {event.received:,} earlier messages{missing}"
    template = _EVENT_TEXTS.get(type(event))
    return escape_control_chars(template.format(**event._asdict())) if template is not None else None


def event_json(event: GroupEvent) -> str | None:
    """The name and the fields of an event; None for those about groups that the user has not joined."""
    if isinstance(event, DirectorySynced | GroupDiscovered):
        return None
    fields = event._asdict()
    member, group = fields.pop("member", None), fields.pop("group_id", None)
    return json_line(
        {
            "event": re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower(),
            **({"group": hex_id(group)} if group is not None else {}),
            **(_member_fields(member) if member is not None else {}),
            **fields,
        }
    )


def joined_json(info: GroupInfo, me: Member) -> str:
    return json_line(
        {"event": "joined", "group": hex_id(info.id), "description": info.description, **_member_fields(me)}
    )


def message_json(message: GroupMessage, **more: Any) -> str:
    fields: dict[str, Any] = {
        "id": str(message.id),
        "group": hex_id(message.group_id),
        "author": hex_id(message.author),
        "name": message.author_name,
        "sequence": message.sequence,
        "reply_to": str(message.parent_id) if message.parent_id is not None else None,
        "sent_at_ms": message.sent_at_ms,
    }
    if message.is_stripped:
        fields["is_stripped"] = True
    else:
        fields |= payload_json(message.data)
    if message.is_orphan:
        fields["is_orphan"] = True
    if message.verified_name:
        fields["verified_name"] = message.verified_name
    if message.is_unproven:
        fields["is_unproven"] = True
    return json_line({**fields, **more})


def group_fields(info: GroupInfo, members: dict[Member, MemberStatus], held: int) -> dict[str, Any]:
    counts = {status.value: sum(each is status for each in members.values()) for status in MemberStatus}
    return {
        "group": hex_id(info.id),
        "description": info.description,
        "is_joined": info.is_joined,
        **counts,
        "messages": held,
        "retention": asdict(info.retention),
        "members": [{**_member_fields(member), "status": status.value} for member, status in members.items()],
    }


def group_row(fields: dict[str, Any]) -> list[Text]:
    """One row of the table of groups."""
    online = [each["name"] or each["member_id"] for each in fields["members"] if each["status"] == MemberStatus.ONLINE]
    names = ", ".join(online[:NAMES_SHOWN]) + (", …" if len(online) > NAMES_SHOWN else "")
    cells = (
        fields["group"][:SHORT_ID_DIGITS],
        fields["description"] + (" *" if fields["is_joined"] else ""),
        f"{len(online)}" + (f" ({names})" if names else ""),
        *(f"{fields[name]:,}" for name in ("offline", "left", "messages")),
    )
    return [Text(escape_control_chars(cell)) for cell in cells]


def _member_fields(member: Member) -> dict[str, str]:
    return {"member_id": hex_id(member.id), "name": member.name}
