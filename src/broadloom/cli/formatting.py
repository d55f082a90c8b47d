"""What happens on a channel, in words for a person and as JSON for a program.

The rule: what others send is shown, never obeyed. Their text and names can hold anything, such as the signs by which a
terminal is steered, or a line that looks like another's: for a person such signs are spelled out and further lines
are indented. JSON has it all as it came.
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
"""Digits of a peer id that tell people apart; `--json` has all."""
INDENT = "    "


def escape_control_chars(text: str) -> str:
    """Fit for a terminal: signs that steer it are spelled out."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def message_text(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"({len(data):,} bytes that are no text)"
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    return f"\n{INDENT}".join(escape_control_chars(line.replace("\t", INDENT)) for line in lines)


def file_text(message: Message, saved: Path | None = None) -> str:
    """A file in one line, in place of its bytes; ValueError if it is damaged."""
    file = message.file
    assert file is not None
    saved_note = f", saved as {escape_control_chars(str(saved))}" if saved is not None else ""
    return f"(file {escape_control_chars(file.name)}, {len(file.content):,} bytes{saved_note})"


class EventFormatter:
    """Of one channel. Remembers the names of neighbours, because a link that is gone tells no name."""

    def __init__(self, channel: "Channel") -> None:
        self._channel = channel
        self._names: dict[PeerId, str] = {}
        for neighbor in channel.status().neighbors:
            self._names[neighbor.peer_id] = neighbor.name

    def name(self, peer: "PeerId") -> str:
        """As on the ticket, or the first digits of the id."""
        verified_name = self._verified_name(peer)
        return escape_control_chars(verified_name) if verified_name else f"{peer:016x}"[:SHORT_ID_DIGITS]

    def _verified_name(self, peer: "PeerId") -> str:
        identity = self._channel.identity(peer)
        return identity.name if identity is not None and identity.name else self._names.get(peer, "")

    def joined(self) -> str:
        status = self._channel.status()
        count = len(status.neighbors)
        neighbors = "nobody else is here yet" if not count else "1 neighbour" if count == 1 else f"{count} neighbours"
        me = self.name(self._channel.peer_id)
        return f"joined {escape_control_chars(status.channel)} as {me}, at {status.address}; {neighbors}"

    def message(self, message: Message, saved: Path | None = None) -> str:
        """`saved`: where the file was put that the message is."""
        return f"{self.name(message.author)}: {self._content(message, saved)}"

    @staticmethod
    def _content(message: Message, saved: Path | None) -> str:
        if message.kind != PayloadKind.FILE:
            return message_text(message.data)
        try:
            return file_text(message, saved)
        except ValueError as problem:
            return f"({escape_control_chars(str(problem))})"

    def event(self, event: "ChannelEvent") -> str | None:
        """One line, or None for what a person need not know (or is warned of anyway: missed messages)."""
        match event:
            case LinkUp(neighbor):
                self._learn_name(neighbor.peer_id)
                return f"+ {self.name(neighbor.peer_id)} is a neighbour, at {neighbor.address}"
            case LinkDown(neighbor, reason):
                return f"- {self.name(neighbor.peer_id)} {_LINK_DOWN_TEXT[reason]}"
            case Rejected(_, text):
                return f"! {escape_control_chars(text)}"
            case _:
                return None

    def message_json(self, message: Message, saved: Path | None = None) -> str:
        fields: dict[str, Any] = {
            "author": f"{message.author:016x}",
            "name": self._verified_name(message.author),
            "sequence": message.sequence,
        }
        if message.kind == PayloadKind.FILE:
            fields["file"] = _file_json(message, saved)
        else:
            try:
                fields["text"] = message.data.decode()
            except UnicodeDecodeError:
                fields["data"] = base64.b64encode(message.data).decode()
        return _json_line({**fields, "hops": message.hops})

    def joined_json(self) -> str:
        status = self._channel.status()
        return _json_line(
            {"event": "joined", "channel": status.channel, "peer": str(status.peer_id), "address": status.address}
        )

    def event_json(self, event: "ChannelEvent") -> str | None:
        match event:
            case Missed(author, first, last):
                return _json_line({"event": "missed", "author": f"{author:016x}", "first": first, "last": last})
            case LinkUp(neighbor):
                self._learn_name(neighbor.peer_id)
                return _json_line({"event": "neighbour", **self._peer_fields(neighbor.peer_id, str(neighbor.address))})
            case LinkDown(neighbor, reason):
                peer = self._peer_fields(neighbor.peer_id, str(neighbor.address))
                return _json_line({"event": "neighbour lost", **peer, "why": reason.value})
            case StateChanged(state):
                return _json_line({"event": "state", "state": state.value})
            case Rejected(reject_reason, text):
                return _json_line({"event": "refused", "why": reject_reason.name.lower(), "text": text})
            case _:
                return None

    def _learn_name(self, peer: "PeerId") -> None:
        for neighbor in self._channel.status().neighbors:
            if neighbor.peer_id == peer:
                self._names[peer] = neighbor.name

    def _peer_fields(self, peer: "PeerId", address: str) -> dict[str, str]:
        return {"peer": f"{peer:016x}", "name": self._verified_name(peer), "address": address}


_LINK_DOWN_TEXT = {
    LinkDownReason.CONNECTION_LOST: "is lost: the connection broke",
    LinkDownReason.HEARTBEAT_TIMEOUT: "is lost: nothing was heard of it",
    LinkDownReason.REWIRED: "is no neighbour any more",
    LinkDownReason.PEER_LEFT: "left",
    LinkDownReason.LOCAL_LEAVE: "is no neighbour any more, because we leave",
    LinkDownReason.PROTOCOL_ERROR: "broke the protocol",
    LinkDownReason.TOO_SLOW: "was too slow",
    LinkDownReason.ACCESS_REVOKED: "is no longer admitted",
}


def _file_json(message: Message, saved: Path | None) -> dict[str, Any]:
    """What it is, without its content."""
    try:
        file = message.file
    except ValueError as problem:
        return {"damaged": str(problem)}
    assert file is not None
    fields = {"name": file.name, "size": len(file.content), "sha256": hashlib.sha256(file.content).hexdigest()}
    return fields if saved is None else {**fields, "saved": str(saved)}


def _json_line(fields: dict[str, Any]) -> str:
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return json.dumps({**fields, "time": now}, ensure_ascii=False)
