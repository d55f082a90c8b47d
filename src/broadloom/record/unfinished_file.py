"""`UnfinishedFile`: a file that other programs do not see until it is complete.

On Linux it has no name until then (`O_TMPFILE`), so a crash leaves nothing behind, and programs that read whole folders
never meet half a file. Elsewhere, and on file systems without such files, it has a hidden name that does not end in
`.parquet`, and a lock. It is removed by the next process that records in the same folder and gets its lock, so never
under a running writer.
"""

import logging
import os
import shutil
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import BinaryIO, NamedTuple

from broadloom.record.file_locks import lock

logger = logging.getLogger("broadloom.record")

_SUFFIX = ".unfinished"
_MODE = 0o666


class UnfinishedFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        """Its name when it is complete."""
        self.sink: BinaryIO
        self._hidden_path: Path | None = None
        nameless = _create_nameless(path.parent)
        if nameless is not None:
            self.sink = nameless
        else:
            self.sink, self._hidden_path = _create_hidden(path)

    def sync(self) -> None:
        self.sink.flush()
        os.fsync(self.sink.fileno())

    def publish(self) -> None:
        """Give the file its name, atomically. All its data must be on disk."""
        if self._hidden_path is None:
            try:
                # With a folder, Python follows the link in /proc to the file itself.
                number = self.sink.fileno()
                os.link(f"/proc/self/fd/{number}", self.path, src_dir_fd=number, follow_symlinks=True)
                return
            except OSError:  # no /proc, as in some sandboxes
                self._copy()
        assert self._hidden_path is not None
        self._hidden_path.rename(self.path)

    def _copy(self) -> None:
        copy, self._hidden_path = _create_hidden(self.path)
        with copy, os.fdopen(os.dup(self.sink.fileno()), "rb") as source:
            source.seek(0)
            shutil.copyfileobj(source, copy)
            copy.flush()
            os.fsync(copy.fileno())

    def remove(self) -> None:
        for path in (self._hidden_path, self.path):  # it has its name already if only syncing its folder failed
            if path is not None:
                with suppress(OSError):
                    path.unlink()
        with suppress(OSError, ValueError):
            self.sink.close()


def _create_nameless(folder: Path) -> BinaryIO | None:
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        number = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, _MODE)
    except OSError:  # not on this file system; any other reason shows when a hidden file is created
        return None
    return os.fdopen(number, "w+b")


def _create_hidden(path: Path) -> tuple[BinaryIO, Path]:
    """Create and lock a hidden file.

    Between these two steps another process may consider it stale and remove it by its name. Then another name is used.
    """
    for attempt in count():
        hidden = path.with_name(f".{path.stem}.{attempt}{_SUFFIX}")
        sink = hidden.open("xb")
        try:
            is_ours = lock(sink) and os.fstat(sink.fileno()).st_nlink > 0
        except OSError:
            is_ours = True  # no locks on this file system, for other processes either
        if is_ours:
            return sink, hidden
        sink.close()
    raise AssertionError("unreachable")


class StaleFile(NamedTuple):
    """An unfinished file found when a tape is opened."""

    path: Path
    is_removed: bool
    """False if its writer is still running, or if the file cannot be removed."""


def remove_stale_files(directory: Path) -> list[StaleFile]:
    """Remove files left by crashed processes; returns all unfinished files."""
    found = []
    for path in sorted(directory.glob("channel=*/event_date=*/.*")):
        if path.suffix not in (_SUFFIX, ".parquet"):
            continue
        try:
            with path.open("rb+") as file:
                removed = lock(file)
                if removed:
                    size = path.stat().st_size
                    path.unlink()
                    logger.warning("removed %s: its writer crashed before the file was finished (%d bytes)", path, size)
        except FileNotFoundError:
            continue  # finished at this moment
        except OSError as problem:
            logger.warning("%s is unfinished and cannot be removed: %s", path, problem)
            removed = False
        found.append(StaleFile(path, removed))
    return found
