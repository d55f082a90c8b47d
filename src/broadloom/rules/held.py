"""Copies and held messages on disk: one new file per message, complete or not there at all, never over another."""

import base64
import json
import logging
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from broadloom.channel.outgoing import Outgoing, Way
from broadloom.errors import RulesError
from broadloom.private_files import open_new

log = logging.getLogger("broadloom")

HELD_SUFFIX, SENDING_SUFFIX = ".held", ".sending"
NUMBERS_MAX = 10_000


def write_new(directory: Path, data: bytes, suffix: str) -> Path:
    """Write a file that only its owner may read, under a name made of the time. Raises `OSError`."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    moment = datetime.fromtimestamp(time.time(), UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    for number in range(NUMBERS_MAX):
        path = directory / f"{moment}-{number}{suffix}"
        temporary = directory / f".{path.name}.{os.getpid()}"
        try:
            file = open_new(temporary)
        except FileExistsError:
            continue
        try:
            with os.fdopen(file, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.link(temporary, path)  # fails if it exists, unlike a rename
            return path
        except FileExistsError:
            continue
        finally:
            with suppress(OSError):
                temporary.unlink()
    raise OSError(f"{directory}: no free name for {moment}")


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """A message that waits for a decision."""

    id: str
    rule: str
    reason: str
    out: Outgoing
    is_sending: bool = False
    """It is being released, or its release was interrupted: it may have been sent."""


class HeldMessages:
    """The held messages in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def put(self, out: Outgoing, rule: str, reason: str) -> str:
        """Store a message as it was before all rules, and return its id."""
        fields: dict[str, Any] = asdict(replace(out, data=b"", headers=dict(out.headers)))
        del fields["data"]
        entry = {"rule": rule, "reason": reason, "data": base64.b64encode(out.data).decode(), "message": fields}
        path = write_new(self.directory, json.dumps(entry, ensure_ascii=True, indent=1).encode(), HELD_SUFFIX)
        return path.name.removesuffix(HELD_SUFFIX)

    def list(self) -> list[HeldMessage]:
        """The oldest first. Files that cannot be read are left out, with a warning."""
        if not self.directory.is_dir():
            return []
        names = sorted(path.name for path in self.directory.iterdir() if not path.name.startswith("."))
        messages = []
        for name in names:
            if name.endswith((HELD_SUFFIX, SENDING_SUFFIX)):
                try:
                    messages.append(self._read(self.directory / name))
                except RulesError as problem:
                    log.warning("%s", problem)
        return messages

    def get(self, held_id: str) -> HeldMessage:
        """Raises `RulesError` if there is no such message."""
        for suffix in (HELD_SUFFIX, SENDING_SUFFIX):
            path = self._path(held_id, suffix)
            if path.exists():
                return self._read(path)
        raise RulesError(f"{self.directory}: no message {held_id} is held here (broadloom rules held list)")

    def begin_release(self, held_id: str) -> HeldMessage:
        """Take a message out, so that nobody else releases it too. Raises `RulesError`."""
        message = self.get(held_id)
        if message.is_sending:
            raise RulesError(f"{held_id} is being released, or that was interrupted; drop it, or rename its file")
        try:
            self._path(held_id, HELD_SUFFIX).rename(self._path(held_id, SENDING_SUFFIX))
        except FileNotFoundError:
            raise RulesError(f"{held_id} was released or dropped meanwhile") from None
        return message

    def end_release(self, held_id: str, *, is_sent: bool) -> None:
        path = self._path(held_id, SENDING_SUFFIX)
        if is_sent:
            path.unlink()
        else:
            path.rename(self._path(held_id, HELD_SUFFIX))

    def drop(self, held_id: str) -> None:
        """Delete a message without sending it. Raises `RulesError` if there is none."""
        self.get(held_id)
        for suffix in (HELD_SUFFIX, SENDING_SUFFIX):
            self._path(held_id, suffix).unlink(missing_ok=True)

    def _path(self, held_id: str, suffix: str) -> Path:
        if not held_id or Path(held_id).name != held_id or held_id.startswith("."):
            raise RulesError(f"{held_id!r} is not the id of a held message")
        return self.directory / f"{held_id}{suffix}"

    def _read(self, path: Path) -> HeldMessage:
        try:
            entry = json.loads(path.read_bytes())
            fields: dict[str, Any] = {name: _tuple(value) for name, value in entry["message"].items()}
            fields["way"] = Way(fields["way"])
            out = Outgoing(base64.b64decode(entry["data"]), **fields)
            rule, reason = str(entry["rule"]), str(entry["reason"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
            raise RulesError(f"{path} is not a held message: {problem}") from None
        return HeldMessage(path.stem, rule, reason, out, path.suffix == SENDING_SUFFIX)


def _tuple(value: Any) -> Any:
    """JSON has no tuples."""
    return tuple(value) if isinstance(value, list) else value
