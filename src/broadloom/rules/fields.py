"""The fields of a message that conditions test, and their values.

Texts are compared without regard to case. `view.text("subject")` is the field in lower case, computed once per message;
a message that an action has changed gets a new view.
"""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from broadloom.channel.outgoing import Outgoing, Way
from broadloom.rules.model import Number

TEXT, NUMBER, DATE, VALUE = "text", "number", "date", "value"
FIELDS: dict[str, tuple[str, str]] = {
    "channel": (TEXT, "name of the channel, `chess/club-42`"),
    "type": (TEXT, "its type, `chess`"),
    "instance": (TEXT, "its instance, `club-42`"),
    "layer": (TEXT, "mark of the layer that sends; empty for the application"),
    "way": (TEXT, ", ".join(f"`{way}`" for way in Way)),
    "group": (TEXT, "description of the group, for posts"),
    "name": (TEXT, "name of the mailbox, the operation, the conversation or the state"),
    "topic": (TEXT, "topic"),
    "subject": (TEXT, "the header `subject`"),
    "to": (TEXT, "the header `to`, separated by commas; name and peer id of the receiver of a direct message"),
    "from": (TEXT, "name of this program"),
    "role": (TEXT, "role on its ticket"),
    "content-type": (TEXT, "content type"),
    "file-name": (TEXT, "name of the file"),
    "encoding": (TEXT, "what rules did to the data so far, as `zlib, x25519`"),
    "text": (TEXT, "the data as text"),
    "size": (NUMBER, "size of the data in bytes"),
    "priority": (NUMBER, "priority, 0 to 255; `low`, `normal` and `high` are 0, 1 and 2"),
    "ttl": (NUMBER, "time to live in seconds; 0 without"),
    "forwarded": (NUMBER, "how many channels it was forwarded from"),
    "date": (DATE, "date and time of sending, in UTC"),
}
"""Kind and meaning. Also `header.NAME` and `json.PATH`."""
HEADER, JSON = "header.", "json."

_DATE = re.compile(r"(\d{4})[.-](\d{1,2})[.-](\d{1,2})(?:[T ](\d{1,2}):(\d{2})(?::(\d{2}))?)?")


def kind_of(field: str) -> str | None:
    """What a field is compared with; None if there is no such field."""
    if field.startswith(HEADER):
        return TEXT
    if field == "json" or field.startswith(JSON):
        return VALUE
    return FIELDS[field][0] if field in FIELDS else None


def parse_date(text: str) -> float:
    """Seconds since 1970 of `1993.04.20`, `1993-04-20` or `1993-04-20 18:30`. Raises `ValueError`."""
    found = _DATE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f'"{text}" is not a date; write it as 1993.04.20, 1993-04-20 or 1993-04-20 18:30')
    try:
        year, month, day, hour, minute, second = (int(part or 0) for part in found.groups())
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError as problem:
        raise ValueError(f'"{text}" is not a date: {problem}') from None


class MessageView:
    """A message as conditions see it."""

    __slots__ = ("_headers", "_json", "_texts", "now_s", "out")

    def __init__(self, out: Outgoing, now_s: float) -> None:
        self.out = out
        self.now_s = now_s
        self._texts: dict[str, str] = {}
        self._headers: dict[str, str] | None = None
        self._json: list[Any] | None = None

    def text(self, field: str) -> str:
        """In lower case."""
        found = self._texts.get(field)
        if found is None:
            found = self._texts[field] = self.raw_text(field).lower()
        return found

    def raw_text(self, field: str) -> str:
        read = _TEXTS.get(field)
        if read is not None:
            return read(self)
        if field.startswith(HEADER):
            return self.header(field[len(HEADER) :].lower())
        value = self.json_value(field)
        return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)

    def header(self, name: str) -> str:
        """Names of headers have no case, so there may be several values."""
        headers = self._headers
        if headers is None:
            headers = self._headers = {}
            for key, value in self.out.headers.items():
                key = key.lower()
                headers[key] = f"{headers[key]}, {value}" if key in headers else value
        return headers.get(name, "")

    @property
    def data_text(self) -> str:
        """The data as text: UTF-8, or else every byte as one character."""
        found = self._texts.get("data")
        if found is None:
            try:
                found = self.out.data.decode()
            except UnicodeDecodeError:
                found = self.out.data.decode("latin-1")
            self._texts["data"] = found
        return found

    def number(self, field: str) -> Number | None:
        match field:
            case "size":
                return len(self.out.data)
            case "priority":
                return self.out.priority
            case "ttl":
                return self.out.ttl_s or 0
            case "forwarded":
                return len(self.out.forwarded_from)
            case "date":
                return self.now_s
        value = self.json_value(field)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def json_value(self, field: str) -> Any:
        """The value at a path as `json.user.roles.0`; None if there is none."""
        if self._json is None:
            try:
                self._json = [json.loads(self.out.data)]
            except (ValueError, RecursionError):
                self._json = [None]
        value = self._json[0]
        for key in field.split(".")[1:]:
            if isinstance(value, dict):
                value = value.get(key)
            elif isinstance(value, list) and key.isascii() and key.isdigit() and int(key[:9]) < len(value):
                value = value[int(key[:9])]
            else:
                return None
        return value


def parts_of(text: str) -> list[str]:
    """The parts of a field that may have several values, separated by commas."""
    return [part for each in text.split(",") if (part := each.strip())]


def _receivers(view: MessageView) -> str:
    return ", ".join((*parts_of(view.header("to")), *view.out.receiver))


_TEXTS: dict[str, Callable[[MessageView], str]] = {
    "channel": lambda view: view.out.channel,
    "type": lambda view: view.out.channel.partition("/")[0],
    "instance": lambda view: view.out.channel.partition("/")[2],
    "layer": lambda view: view.out.layer,
    "way": lambda view: view.out.way,
    "group": lambda view: view.out.name if view.out.way is Way.POST else "",
    "name": lambda view: view.out.name,
    "topic": lambda view: view.out.topic or "",
    "subject": lambda view: view.header("subject"),
    "to": _receivers,
    "from": lambda view: view.out.sender,
    "role": lambda view: view.out.role,
    "content-type": lambda view: view.out.content_type or "",
    "file-name": lambda view: view.out.file_name,
    "encoding": lambda view: ", ".join(view.out.encodings),
    "text": lambda view: view.data_text,
}
