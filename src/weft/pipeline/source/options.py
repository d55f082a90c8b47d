"""The options of `format("weft")`, read once, with a clear word about what is wrong with them.

Spark hands over text, and does not care about upper and lower case. An option that nobody knows is refused: a typing
error in `plain` or `key` must not end as a channel that is something else than its user thinks.
"""

import json
from collections.abc import Mapping
from typing import Any

from weft.errors import WeftError
from weft.record import TapeSettings

BATCH_ROWS_MAX = 1_000_000
"""Rows of one micro-batch: what one machine handles in a second or two. A row group is never cut: a
larger one is a batch by itself."""

LIVE_FILE_S = 1.0
"""A live stream's own tape finishes a file so often; that is most of the time from a message to its micro-batch."""

CONNECT_S = 30.0

MEMBER = "spark"

ABOUT = {
    "path": "the folder of tapes to read",
    "rows_max": f"rows of one micro-batch, about ({BATCH_ROWS_MAX:,})",
    "quarantine": "a folder where files that cannot be read are told of, one small JSON file for each",
    "channel": "the channel to join: type/instance",
    "portal": "where to look for the channel: host or host:port, several with commas",
    "key": "the channel's key",
    "ticket": "a file with a ticket of the channel's owner",
    "plain": "true for a channel without encryption",
    "signed": "true for a channel whose messages are signed",
    "host": "where others can reach this peer",
    "timeout_s": f"how long to look for the channel, and for company ({CONNECT_S:g})",
    "tape": "live stream: the folder of its own tape, which makes it replayable; keep it with the checkpoint",
    "payload": "live stream: true to keep the messages themselves on the tape (true)",
    "file_s": f"live stream: how often a file of its tape is finished ({LIVE_FILE_S:g})",
    "group": "sink: a group of the channel, by what it is called or by its id; rows are then messages of the group",
    "member": f"sink: the name under which they are said in the group ({MEMBER})",
    "stamp": "sink: a name; each message then begins with a stamp by which receivers tell doubles",
}

READS_TAPES = {"path", "rows_max", "quarantine"}
JOINS = {"channel", "portal", "key", "ticket", "plain", "signed", "host", "timeout_s"}
READS_LIVE = JOINS | {"tape", "payload", "file_s", "rows_max", "quarantine"}
WRITES = JOINS | {"group", "member", "stamp"}


class WrongOption(WeftError):
    """An option of the data source is missing, unknown, or does not fit."""


class Options:
    """What the user of `format("weft")` has said. Picklable: it travels to the tasks."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): str(value) for name, value in given.items()}

    def to_json(self) -> str:
        """For another process."""
        return json.dumps(self._given)

    def check(self, known: set[str], use: str) -> None:
        for name in sorted(self._given):
            if name not in known:
                there = ", ".join(sorted(known))
                raise WrongOption(f'format("weft") has no option {name!r} for {use}; there are: {there}')

    @property
    def is_live(self) -> bool:
        return "channel" in self._given

    def text(self, name: str, default: str | None = None) -> str:
        value = self._given.get(name, default)
        if not value:
            raise WrongOption(f'format("weft") needs the option {name!r}: {ABOUT[name]}')
        return value

    def get(self, name: str) -> str | None:
        return self._given.get(name) or None

    def number(self, name: str, default: float) -> float:
        text = self._given.get(name)
        if text is None:
            return default
        try:
            value = float(text.replace("_", ""))
        except ValueError:
            value = 0.0
        if not value > 0:
            raise WrongOption(f"the option {name!r} is a number above 0, not {text!r}: {ABOUT[name]}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        text = self._given.get(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise WrongOption(f"the option {name!r} is true or false, not {text!r}: {ABOUT[name]}")
        return text.lower() == "true"

    @property
    def rows_max(self) -> int:
        return int(self.number("rows_max", BATCH_ROWS_MAX))

    def joining(self) -> dict[str, Any]:
        """The words for `weft.connect`."""
        words: dict[str, Any] = {"plain": self.flag("plain"), "timeout_s": self.number("timeout_s", CONNECT_S)}
        portals = self.get("portal")
        if portals is not None:
            words["portals"] = [each.strip() for each in portals.split(",") if each.strip()]
        words.update({name: self.get(name) for name in ("key", "ticket", "host") if self.get(name) is not None})
        if self.get("signed") is not None:
            words["signed"] = self.flag("signed")
        return words

    def tape_settings(self) -> TapeSettings:
        file_s = self.number("file_s", LIVE_FILE_S)
        return TapeSettings(payload=self.flag("payload", True), file_s=file_s, poll_s=min(0.25, file_s / 4))
