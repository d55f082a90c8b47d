"""The options of `format("broadloom")`. Names follow `broadloom.connect`.

Spark passes strings and ignores case. Unknown options are rejected: a typo in `tls` or `key` must not lead to another
channel than intended.
"""

import json
from collections.abc import Mapping
from typing import Any

from broadloom.channel.options import ConnectOptions
from broadloom.errors import BroadloomError
from broadloom.record import TapeSettings

BATCH_ROWS_MAX = 1_000_000
"""Rows of one micro-batch: what one machine handles in a second or two. A larger row group is a batch by itself."""

LIVE_FILE_S = 1.0
"""How often a live stream finishes a file of its tape: most of the time from a message to its micro-batch."""

CONNECT_TIMEOUT_S = ConnectOptions.timeout_s

DEFAULT_MEMBER = "spark"

OPTION_HELP = {
    "path": "directory of tapes to read",
    "rows_max": f"approximate rows per micro-batch; default {BATCH_ROWS_MAX:,}",
    "quarantine": "directory for reports on files that cannot be read, one small JSON file each",
    "channel": "channel to join: type/instance",
    "bootstrap": "bootstrap hosts: host or host:port, separated by commas",
    "key": "shared key of the channel",
    "ticket": "file with a ticket",
    "tls": "false to disable encryption",
    "signed": "true if messages are signed",
    "advertise_host": "address that other peers dial",
    "timeout_s": f"maximum time to join and to find other peers; default {CONNECT_TIMEOUT_S:g}",
    "tape": "live stream: directory of its own tape, which makes it replayable; keep it with the checkpoint",
    "include_payload": "live stream: false to leave payloads out; default true",
    "file_duration_s": f"live stream: how often a file of its tape is finished; default {LIVE_FILE_S:g}",
    "group": "sink: group to post in, by description or ID",
    "member": f"sink: display name in the group; default {DEFAULT_MEMBER}",
    "rules": "sink: file of rules that every message passes first",
    "stamp": "sink: name of a stamp in front of each message, by which receivers recognize repeated rows",
}

TAPE_READ_OPTIONS = {"path", "rows_max", "quarantine"}
CONNECT_OPTIONS = {"channel", "bootstrap", "key", "ticket", "tls", "signed", "advertise_host", "timeout_s"}
LIVE_READ_OPTIONS = CONNECT_OPTIONS | {"tape", "include_payload", "file_duration_s", "rows_max", "quarantine"}
WRITE_OPTIONS = CONNECT_OPTIONS | {"group", "member", "rules", "stamp"}


class SourceOptionError(BroadloomError):
    """An option of the data source is missing, unknown or invalid."""


class SourceOptions:
    """The options of one `format("broadloom")`. Picklable, because it is sent to tasks."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._values = {name.lower(): str(value) for name, value in given.items()}

    def to_json(self) -> str:
        return json.dumps(self._values)

    def check(self, known: set[str], use: str) -> None:
        for name in sorted(self._values):
            if name not in known:
                options = ", ".join(sorted(known))
                raise SourceOptionError(f'format("broadloom") has no option {name!r} for {use}; options: {options}')

    @property
    def is_live(self) -> bool:
        return "channel" in self._values

    def text(self, name: str, default: str | None = None) -> str:
        value = self._values.get(name, default)
        if not value:
            raise SourceOptionError(f'format("broadloom"): option {name!r} is required: {OPTION_HELP[name]}')
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
            raise SourceOptionError(f"option {name!r} must be a number above 0, not {text!r}: {OPTION_HELP[name]}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        text = self._values.get(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise SourceOptionError(f"option {name!r} must be true or false, not {text!r}: {OPTION_HELP[name]}")
        return text.lower() == "true"

    @property
    def rows_max(self) -> int:
        return int(self.number("rows_max", BATCH_ROWS_MAX))

    def connect_kwargs(self) -> dict[str, Any]:
        """Arguments for `broadloom.connect`."""
        arguments: dict[str, Any] = {
            "tls": self.flag("tls", True),
            "timeout_s": self.number("timeout_s", CONNECT_TIMEOUT_S),
        }
        bootstrap = self.get("bootstrap")
        if bootstrap is not None:
            arguments["bootstrap"] = [each.strip() for each in bootstrap.split(",") if each.strip()]
        for name in ("key", "ticket", "advertise_host"):
            if self.get(name) is not None:
                arguments[name] = self.get(name)
        if self.get("signed") is not None:
            arguments["signed"] = self.flag("signed")
        return arguments

    def tape_settings(self) -> TapeSettings:
        duration_s = self.number("file_duration_s", LIVE_FILE_S)
        return TapeSettings(
            include_payload=self.flag("include_payload", True),
            file_duration_s=duration_s,
            poll_interval_s=min(0.25, duration_s / 4),
        )
