"""Messages and events of a channel as text and as JSON.

Text and names come from other members and may hold anything: terminal escapes, or a line that imitates another author.
In text output control characters are escaped and continuation lines are indented. JSON keeps every value; characters
that a terminal would act on are written as escapes.
"""

import base64
import hashlib
import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broadloom.channel.subscription import SubscriptionOverflow
from broadloom.protocol.events import (
    AuthorWarning,
    CardChanged,
    ChannelClosed,
    LinkDown,
    LinkDownReason,
    LinkUp,
    Message,
    Missed,
    QuotaExceeded,
    Rejected,
    Revoked,
    StateChanged,
)
from broadloom.protocol.roster.member import MemberJoined, MemberLeft, MemberLost, Merged, Partitioned
from broadloom.wire.payload_kind import PayloadKind

if TYPE_CHECKING:
    from broadloom.channel import Channel, ChannelEvent
    from broadloom.wire import PeerId

SHORT_ID_DIGITS = 8
"""Digits of an ID in text output; `--json` has all 16."""
INDENT = "    "

_EVENT_TEXTS = {
    "link_up": "+ {who} connected, at {address}",
    "link_down": "- {who} {how}",
    "rejected": "! {text}",
    "channel_closed": "! the owner has closed the channel: {text}",
    "quota_exceeded": "! {who} was cut off: {measured:,.0f} {what}, its quota is {allowed:,.0f}",
    "overflow": "! {first} to {last} of {author} were dropped: the output is too slow",
}
"""Other events are only in JSON: the channel itself logs missed messages."""
_LINK_DOWN_TEXTS = {
    LinkDownReason.CONNECTION_LOST: "disconnected: connection lost",
    LinkDownReason.HEARTBEAT_TIMEOUT: "disconnected: no heartbeat",
    LinkDownReason.REWIRED: "disconnected: link rewired",
    LinkDownReason.PEER_LEFT: "left",
    LinkDownReason.LOCAL_LEAVE: "disconnected: this peer is leaving",
    LinkDownReason.PROTOCOL_ERROR: "disconnected: protocol error",
    LinkDownReason.TOO_SLOW: "disconnected: too slow",
    LinkDownReason.ACCESS_REVOKED: "disconnected: access revoked",
    LinkDownReason.QUOTA_EXCEEDED: "disconnected: quota exceeded",
}


def escape_control_chars(text: str) -> str:
    """Make text safe for a terminal: escape control characters, and those that reorder the text around them."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def hex_id(number: int) -> str:
    return f"{number:016x}"


def message_text(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"({len(data):,} bytes of binary data)"
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    return f"\n{INDENT}".join(escape_control_chars(line.replace("\t", INDENT)) for line in lines)


def payload_json(data: bytes) -> dict[str, str]:
    """`text` if the bytes are UTF-8, else `data` in base64."""
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"data": base64.b64encode(data).decode()}


def to_json(value: Any) -> str:
    """One line of JSON. Control characters, also bidirectional ones, are written as `\\uXXXX`."""
    text = json.dumps(value, ensure_ascii=False, default=_json_default)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def _json_default(value: Any) -> str:
    if isinstance(value, date):  # also datetime
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


def json_line(fields: dict[str, Any]) -> str:
    """One line of JSON, with the current time."""
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return to_json({**fields, "time": now})


def _header_fields(message: Message) -> dict[str, Any]:
    """What the author gave beside the data; nothing for a message without headers."""
    given = {"topic": message.topic, "content_type": message.content_type, "headers": dict(message.headers)}
    return {name: value for name, value in given.items() if value}


class EventFormatter:
    """Formats what happens on one channel, as text or JSON. Remembers the names of neighbors: a `LinkDown` event has
    none."""

    def __init__(self, channel: "Channel", *, json: bool) -> None:
        self._channel = channel
        self._json = json
        self._names: dict[str, str] = {}
        self._learn_names()

    def name(self, peer: "PeerId") -> str:
        """The name on the ticket, or the first digits of the ID."""
        return escape_control_chars(self._verified_name(peer)) or hex_id(peer)[:SHORT_ID_DIGITS]

    def _verified_name(self, peer: "PeerId") -> str:
        identity = self._channel.identity(peer)
        return identity.name if identity is not None and identity.name else self._names.get(hex_id(peer), "")

    def _learn_names(self) -> None:
        for neighbor in self._channel.status().neighbors:
            self._names[str(neighbor.peer_id)] = neighbor.name

    def joined(self) -> str:
        status = self._channel.status()
        if self._json:
            peer = {"peer_id": str(status.peer_id), "address": str(status.address)}
            return json_line({"event": "joined", "channel": status.channel, **peer})
        return self.joined_text()

    def joined_text(self) -> str:
        status = self._channel.status()
        count = len(status.neighbors)
        neighbors = "no other peers yet" if not count else "1 neighbor" if count == 1 else f"{count} neighbors"
        me = self.name(self._channel.peer_id)
        return f"joined {escape_control_chars(status.channel)} as {me}, at {status.address}; {neighbors}"

    def message(self, message: Message, saved: Path | None = None) -> str:
        """One message; `saved` is the path of the file it carried."""
        file = _file_fields(message, saved) if message.kind == PayloadKind.FILE else None
        if not self._json:
            content = message_text(message.data) if file is None else escape_control_chars(_file_text(file))
            topic = f" [{escape_control_chars(message.topic)}]" if message.topic is not None else ""
            return f"{self.name(message.author)}{topic}: {content}"
        author = {"author": hex_id(message.author), "name": self._verified_name(message.author)}
        content_fields = payload_json(message.data) if file is None else {"file": file}
        headers = _header_fields(message)
        return json_line({**author, "sequence": message.sequence, **headers, **content_fields, "hops": message.hops})

    def event(self, event: "ChannelEvent") -> str | None:
        """One line, or None for events that need none."""
        fields = self._event_fields(event)
        if self._json:
            return json_line(fields) if fields else None
        template = _EVENT_TEXTS.get(fields.get("event", ""))
        if template is None:
            return None
        who = fields.get("name") or fields.get("peer_id", "")[:SHORT_ID_DIGITS]
        how = _LINK_DOWN_TEXTS.get(fields.get("reason", ""), "")
        return escape_control_chars(template.format(who=who, how=how, **fields))

    def _event_fields(self, event: "ChannelEvent") -> dict[str, Any]:
        match event:
            case Missed(author, first, last):
                return {"event": "missed", "author": hex_id(author), "first": first, "last": last}
            case SubscriptionOverflow(pattern, author, first, last):
                fields = {"pattern": pattern, "author": hex_id(author), "first": first, "last": last}
                return {"event": "overflow", **fields}
            case LinkUp(neighbor):
                self._learn_names()
                return {"event": "link_up", **self._peer_fields(neighbor.peer_id, str(neighbor.address))}
            case LinkDown(neighbor, reason):
                peer = self._peer_fields(neighbor.peer_id, str(neighbor.address))
                return {"event": "link_down", **peer, "reason": reason.value}
            case StateChanged(state):
                return {"event": "state", "state": state.value}
            case AuthorWarning(author, warning_reason, text):
                fields = {"author": hex_id(author), "reason": warning_reason.value, "text": text}
                return {"event": "author_warning", **fields}
            case Rejected(reject_reason, text):
                return {"event": "rejected", "reason": reject_reason.name.lower(), "text": text}
            case CardChanged(card):
                return {"event": "card_changed", **card.as_dict()}
            case ChannelClosed(text):
                return {"event": "channel_closed", "text": text}
            case Revoked(serials, number):
                return {"event": "revoked", "serials": list(serials), "number": number}
            case QuotaExceeded(peer_id, name, what, measured, allowed):
                exceeded = {"what": what, "measured": measured, "allowed": allowed}
                return {"event": "quota_exceeded", "peer_id": hex_id(peer_id), "name": name, **exceeded}
            case _:
                return _member_event_fields(event)

    def _peer_fields(self, peer: "PeerId", address: str) -> dict[str, str]:
        return {"peer_id": hex_id(peer), "name": self._verified_name(peer), "address": address}


def _file_fields(message: Message, saved: Path | None) -> dict[str, Any]:
    """The file without its content."""
    try:
        file = message.file
    except ValueError as problem:
        return {"error": str(problem)}
    assert file is not None
    fields = {"name": file.name, "size": len(file.content), "sha256": hashlib.sha256(file.content).hexdigest()}
    return fields if saved is None else {**fields, "saved": str(saved)}


def _file_text(file: dict[str, Any]) -> str:
    if "error" in file:
        return f"({file['error']})"
    saved = f", saved as {file['saved']}" if "saved" in file else ""
    return f"(file {file['name']}, {file['size']:,} bytes{saved})"


_MEMBER_EVENT_TEXTS = {
    MemberJoined: "+ {who} joined, at {address}",
    MemberLeft: "- {who} left",
    MemberLost: "- {who} lost: {cause}",
    Partitioned: "! partitioned from {count}",
    Merged: "! merged with {count}",
}


def member_event_line(event: "ChannelEvent", *, json: bool) -> str | None:
    """One line for a change of the roster, None for other events."""
    fields = _member_event_fields(event)
    if not fields or json:
        return json_line(fields) if fields else None
    who = fields.get("name") or fields.get("peer_id", "")[:SHORT_ID_DIGITS]
    count = format_count(len(fields.get("peer_ids", ())), "member")
    return escape_control_chars(_MEMBER_EVENT_TEXTS[type(event)].format(who=who, count=count, **fields))


def _member_event_fields(event: "ChannelEvent") -> dict[str, Any]:
    match event:
        case MemberJoined(member):
            return {"event": "member_joined", **member.as_dict()}
        case MemberLeft(member):
            return {"event": "member_left", **member.as_dict()}
        case MemberLost(member, cause):
            return {"event": "member_lost", **member.as_dict(), "cause": cause.value}
        case Partitioned(members) | Merged(members):
            return {"event": type(event).__name__.lower(), "peer_ids": [str(member.peer_id) for member in members]}
        case _:
            return {}


def format_count(count: int, noun: str) -> str:
    """ "1 file", "1,200 files"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
