"""Messages and events of a channel as text and as JSON.

Text and names come from other members and may hold anything: terminal escapes, or a line that imitates another author.
In text output control characters are escaped and continuation lines are indented. JSON keeps everything as it is.
"""

import base64
import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broadloom.protocol.events import LinkDown, LinkDownReason, LinkUp, Message, Missed, Rejected, StateChanged
from broadloom.wire.broadcast_frame import PayloadKind

if TYPE_CHECKING:
    from broadloom.channel import Channel, ChannelEvent
    from broadloom.wire import PeerId

SHORT_ID_DIGITS = 8
"""Digits of an ID in text output; `--json` has all 16."""
INDENT = "    "


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


def json_line(fields: dict[str, Any]) -> str:
    """One line of JSON, with the current time."""
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return json.dumps({**fields, "time": now}, ensure_ascii=False)


class EventFormatter:
    """Formats what happens on one channel. Remembers the names of neighbors: a `LinkDown` event has none."""

    def __init__(self, channel: "Channel") -> None:
        self._channel = channel
        self._names: dict[str, str] = {}
        self._learn_names()

    def name(self, peer: "PeerId") -> str:
        """The name on the ticket, or the first digits of the ID."""
        verified_name = self._verified_name(peer)
        return escape_control_chars(verified_name) if verified_name else hex_id(peer)[:SHORT_ID_DIGITS]

    def _verified_name(self, peer: "PeerId") -> str:
        identity = self._channel.identity(peer)
        return identity.name if identity is not None and identity.name else self._names.get(hex_id(peer), "")

    def joined(self) -> str:
        status = self._channel.status()
        count = len(status.neighbors)
        neighbors = "no other peers yet" if not count else "1 neighbor" if count == 1 else f"{count} neighbors"
        me = self.name(self._channel.peer_id)
        return f"joined {escape_control_chars(status.channel)} as {me}, at {status.address}; {neighbors}"

    def message(self, message: Message, saved: Path | None = None) -> str:
        """One message; `saved` is the path of the file it carried."""
        return f"{self.name(message.author)}: {self._content(message, saved)}"

    @staticmethod
    def _content(message: Message, saved: Path | None) -> str:
        if message.kind != PayloadKind.FILE:
            return message_text(message.data)
        try:
            file = message.file
        except ValueError as problem:
            return f"({escape_control_chars(str(problem))})"
        assert file is not None
        saved_note = f", saved as {escape_control_chars(str(saved))}" if saved is not None else ""
        return f"(file {escape_control_chars(file.name)}, {len(file.content):,} bytes{saved_note})"

    def event(self, event: "ChannelEvent") -> str | None:
        """One line, or None for events that need none. The channel itself logs missed messages."""
        match event:
            case LinkUp(neighbor):
                self._learn_names()
                return f"+ {self.name(neighbor.peer_id)} connected, at {neighbor.address}"
            case LinkDown(neighbor, reason):
                return f"- {self.name(neighbor.peer_id)} {_LINK_DOWN_TEXT[reason]}"
            case Rejected(_, text):
                return f"! {escape_control_chars(text)}"
            case _:
                return None

    def message_json(self, message: Message, saved: Path | None = None) -> str:
        fields: dict[str, Any] = {
            "author": hex_id(message.author),
            "name": self._verified_name(message.author),
            "sequence": message.sequence,
        }
        if message.kind == PayloadKind.FILE:
            fields["file"] = _file_json(message, saved)
        else:
            fields |= payload_json(message.data)
        return json_line({**fields, "hops": message.hops})

    def joined_json(self) -> str:
        status = self._channel.status()
        peer_id = str(status.peer_id)
        return json_line(
            {"event": "joined", "channel": status.channel, "peer_id": peer_id, "address": str(status.address)}
        )

    def event_json(self, event: "ChannelEvent") -> str | None:
        match event:
            case Missed(author, first, last):
                return json_line({"event": "missed", "author": hex_id(author), "first": first, "last": last})
            case LinkUp(neighbor):
                self._learn_names()
                return json_line({"event": "link_up", **self._peer_fields(neighbor.peer_id, str(neighbor.address))})
            case LinkDown(neighbor, reason):
                peer = self._peer_fields(neighbor.peer_id, str(neighbor.address))
                return json_line({"event": "link_down", **peer, "reason": reason.value})
            case StateChanged(state):
                return json_line({"event": "state", "state": state.value})
            case Rejected(reject_reason, text):
                return json_line({"event": "rejected", "reason": reject_reason.name.lower(), "text": text})
            case _:
                return None

    def _learn_names(self) -> None:
        for neighbor in self._channel.status().neighbors:
            self._names[str(neighbor.peer_id)] = neighbor.name

    def _peer_fields(self, peer: "PeerId", address: str) -> dict[str, str]:
        return {"peer_id": hex_id(peer), "name": self._verified_name(peer), "address": address}


_LINK_DOWN_TEXT = {
    LinkDownReason.CONNECTION_LOST: "disconnected: connection lost",
    LinkDownReason.HEARTBEAT_TIMEOUT: "disconnected: no heartbeat",
    LinkDownReason.REWIRED: "disconnected: link rewired",
    LinkDownReason.PEER_LEFT: "left",
    LinkDownReason.LOCAL_LEAVE: "disconnected: this peer is leaving",
    LinkDownReason.PROTOCOL_ERROR: "disconnected: protocol error",
    LinkDownReason.TOO_SLOW: "disconnected: too slow",
    LinkDownReason.ACCESS_REVOKED: "disconnected: access revoked",
}


def _file_json(message: Message, saved: Path | None) -> dict[str, Any]:
    """The file without its content."""
    try:
        file = message.file
    except ValueError as problem:
        return {"error": str(problem)}
    assert file is not None
    fields = {"name": file.name, "size": len(file.content), "sha256": hashlib.sha256(file.content).hexdigest()}
    return fields if saved is None else {**fields, "saved": str(saved)}
