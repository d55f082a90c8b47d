"""The options of `format("broadloom")`, read once, with a clear word about what is wrong with them.

Spark hands over text, and does not care about upper and lower case. An option that nobody knows is refused: a typing
error in `tls` or `key` must not end as a channel that is something else than its user thinks.
"""

import json
from collections.abc import Mapping
from typing import Any

from broadloom.channel.options import ConnectOptions
from broadloom.errors import BroadloomError
from broadloom.record import TapeSettings

BATCH_ROWS_MAX = 1_000_000
"""Rows of one micro-batch: what one machine handles in a second or two. A row group is never cut: a
larger one is a batch by itself."""

LIVE_FILE_S = 1.0
"""A live stream's own tape finishes a file so often; that is most of the time from a message to its micro-batch."""

CONNECT_TIMEOUT_S = ConnectOptions.timeout_s

DEFAULT_MEMBER = "spark"

OPTION_HELP = {
    "path": "the folder of tapes to read",
    "rows_max": f"rows of one micro-batch, about ({BATCH_ROWS_MAX:,})",
    "quarantine": "a folder where files that cannot be read are told of, one small JSON file for each",
    "channel": "the channel to join: type/instance",
    "portal": "where to look for the channel: host or host:port, several with commas",
    "key": "the channel's key",
    "ticket": "a file with a ticket of the channel's owner",
    "tls": "false for a channel without encryption",
    "signed": "true for a channel whose messages are signed",
    "host": "where others can reach this peer",
    "timeout_s": f"how long to look for the channel, and for company ({CONNECT_TIMEOUT_S:g})",
    "tape": "live stream: the folder of its own tape, which makes it replayable; keep it with the checkpoint",
    "payload": "live stream: true to keep the messages themselves on the tape (true)",
    "file_s": f"live stream: how often a file of its tape is finished ({LIVE_FILE_S:g})",
    "group": "sink: a group of the channel, by what it is called or by its id; rows are then messages of the group",
    "member": f"sink: the name under which they are said in the group ({DEFAULT_MEMBER})",
    "stamp": "sink: a name; each message then begins with a stamp by which receivers tell doubles",
}

TAPE_READ_OPTIONS = {"path", "rows_max", "quarantine"}
CONNECT_OPTIONS = {"channel", "portal", "key", "ticket", "tls", "signed", "host", "timeout_s"}
LIVE_READ_OPTIONS = CONNECT_OPTIONS | {"tape", "payload", "file_s", "rows_max", "quarantine"}
WRITE_OPTIONS = CONNECT_OPTIONS | {"group", "member", "stamp"}


class SourceOptionError(BroadloomError):
    """An option of the data source is missing, unknown, or does not fit."""


class SourceOptions:
    """What the user of `format("broadloom")` has said. Picklable: it travels to the tasks."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._values = {name.lower(): str(value) for name, value in given.items()}

    def to_json(self) -> str:
        """For another process."""
        return json.dumps(self._values)

    def check(self, known: set[str], use: str) -> None:
        for name in sorted(self._values):
            if name not in known:
                there = ", ".join(sorted(known))
                raise SourceOptionError(f'format("broadloom") has no option {name!r} for {use}; there are: {there}')

    @property
    def is_live(self) -> bool:
        return "channel" in self._values

    def text(self, name: str, default: str | None = None) -> str:
        value = self._values.get(name, default)
        if not value:
            raise SourceOptionError(f'format("broadloom") needs the option {name!r}: {OPTION_HELP[name]}')
        return value

    def get(self, name: str) -> str | None:
        return self._values.get(name) or None

    def number(self, name: str, default: float) -> float:
        text = self._values.get(name)
        if text is None:
            return default
        try:
            value = float(text.replace("_", ""))
        except ValueError:
            value = 0.0
        if not value > 0:
            raise SourceOptionError(f"the option {name!r} is a number above 0, not {text!r}: {OPTION_HELP[name]}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        text = self._values.get(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise SourceOptionError(f"the option {name!r} is true or false, not {text!r}: {OPTION_HELP[name]}")
        return text.lower() == "true"

    @property
    def rows_max(self) -> int:
        return int(self.number("rows_max", BATCH_ROWS_MAX))

    def connect_kwargs(self) -> dict[str, Any]:
        """The words for `broadloom.connect`."""
        words: dict[str, Any] = {
            "tls": self.flag("tls", True),
            "timeout_s": self.number("timeout_s", CONNECT_TIMEOUT_S),
        }
        portals = self.get("portal")
        if portals is not None:
            words["bootstrap"] = [each.strip() for each in portals.split(",") if each.strip()]
        words.update({name: self.get(name) for name in ("key", "ticket") if self.get(name) is not None})
        if self.get("host") is not None:
            words["advertise_host"] = self.get("host")
        if self.get("signed") is not None:
            words["signed"] = self.flag("signed")
        return words

    def tape_settings(self) -> TapeSettings:
        file_s = self.number("file_s", LIVE_FILE_S)
        return TapeSettings(
            include_payload=self.flag("payload", True), file_duration_s=file_s, poll_interval_s=min(0.25, file_s / 4)
        )
