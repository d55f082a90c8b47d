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

from weft.fabric.events import Barred, LinkDown, LinkUp, Message, Missed, StateChanged, Why
from weft.wire.broadcast import Kind

if TYPE_CHECKING:
    from weft.channel import Channel, ChannelEvent
    from weft.wire import PeerId

SHORT = 8
"""Digits of a peer id that tell people apart; `--json` has all."""
INDENT = "    "


def harmless(text: str) -> str:
    """Fit for a terminal: signs that steer it are spelled out."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def message_text(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"({len(data):,} bytes that are no text)"
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    return f"\n{INDENT}".join(harmless(line.replace("\t", INDENT)) for line in lines)


def file_text(message: Message, saved: Path | None = None) -> str:
    """A file in one line, in place of its bytes; ValueError if it is damaged."""
    file = message.file
    assert file is not None
    kept = f", saved as {harmless(str(saved))}" if saved is not None else ""
    return f"(file {harmless(file.name)}, {len(file.content):,} bytes{kept})"


class Telling:
    """Of one channel. Remembers the names of neighbours, because a link that is gone tells no name."""

    def __init__(self, channel: "Channel") -> None:
        self._channel = channel
        self._names: dict[PeerId, str] = {}
        for neighbour in channel.status().neighbours:
            self._names[int(neighbour.peer, 16)] = neighbour.name

    def name(self, peer: "PeerId") -> str:
        """As on the ticket, or the first digits of the id."""
        proven = self._proven(peer)
        return harmless(proven) if proven else f"{peer:016x}"[:SHORT]

    def _proven(self, peer: "PeerId") -> str:
        identity = self._channel.identity(peer)
        return identity.name if identity is not None and identity.name else self._names.get(peer, "")

    def joined(self) -> str:
        status = self._channel.status()
        count = len(status.neighbours)
        company = "nobody else is here yet" if not count else "1 neighbour" if count == 1 else f"{count} neighbours"
        return f"joined {harmless(status.channel)} as {self.name(self._channel.peer)}, at {status.address}; {company}"

    def message(self, message: Message, saved: Path | None = None) -> str:
        """`saved`: where the file was put that the message is."""
        return f"{self.name(message.author)}: {self._content(message, saved)}"

    @staticmethod
    def _content(message: Message, saved: Path | None) -> str:
        if message.kind != Kind.FILE:
            return message_text(message.data)
        try:
            return file_text(message, saved)
        except ValueError as problem:
            return f"({harmless(str(problem))})"

    def event(self, event: "ChannelEvent") -> str | None:
        """One line, or None for what a person need not know (or is warned of anyway: missed messages)."""
        match event:
            case LinkUp(neighbour):
                self._learn(neighbour.peer)
                return f"+ {self.name(neighbour.peer)} is a neighbour, at {neighbour.address}"
            case LinkDown(neighbour, why):
                return f"- {self.name(neighbour.peer)} {_HOW_IT_ENDED[why]}"
            case Barred(_, text):
                return f"! {harmless(text)}"
            case _:
                return None

    def message_json(self, message: Message, saved: Path | None = None) -> str:
        told: dict[str, Any] = {
            "author": f"{message.author:016x}",
            "name": self._proven(message.author),
            "sequence": message.sequence,
        }
        if message.kind == Kind.FILE:
            told["file"] = _file_json(message, saved)
        else:
            try:
                told["text"] = message.data.decode()
            except UnicodeDecodeError:
                told["data"] = base64.b64encode(message.data).decode()
        return _line({**told, "hops": message.hops})

    def joined_json(self) -> str:
        status = self._channel.status()
        return _line({"event": "joined", "channel": status.channel, "peer": status.peer, "address": status.address})

    def event_json(self, event: "ChannelEvent") -> str | None:
        match event:
            case Missed(author, first, last):
                return _line({"event": "missed", "author": f"{author:016x}", "first": first, "last": last})
            case LinkUp(neighbour):
                self._learn(neighbour.peer)
                return _line({"event": "neighbour", **self._contact(neighbour.peer, str(neighbour.address))})
            case LinkDown(neighbour, why):
                who = self._contact(neighbour.peer, str(neighbour.address))
                return _line({"event": "neighbour lost", **who, "why": why.value})
            case StateChanged(state):
                return _line({"event": "state", "state": state.value})
            case Barred(refusal, text):
                return _line({"event": "refused", "why": refusal.name.lower(), "text": text})
            case _:
                return None

    def _learn(self, peer: "PeerId") -> None:
        digits = f"{peer:016x}"
        for neighbour in self._channel.status().neighbours:
            if neighbour.peer == digits:
                self._names[peer] = neighbour.name

    def _contact(self, peer: "PeerId", address: str) -> dict[str, str]:
        return {"peer": f"{peer:016x}", "name": self._proven(peer), "address": address}


_HOW_IT_ENDED = {
    Why.LOST: "is lost: the connection broke",
    Why.SILENT: "is lost: nothing was heard of it",
    Why.CUT: "is no neighbour any more",
    Why.LEFT: "left",
    Why.LEAVING: "is no neighbour any more, because we leave",
    Why.PROTOCOL: "broke the protocol",
    Why.SLOW: "was too slow",
    Why.BARRED: "is no longer admitted",
}


def _file_json(message: Message, saved: Path | None) -> dict[str, Any]:
    """What it is, without its content."""
    try:
        file = message.file
    except ValueError as problem:
        return {"damaged": str(problem)}
    assert file is not None
    told = {"name": file.name, "size": len(file.content), "sha256": hashlib.sha256(file.content).hexdigest()}
    return told if saved is None else {**told, "saved": str(saved)}


def _line(told: dict[str, Any]) -> str:
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return json.dumps({**told, "time": now}, ensure_ascii=False)
