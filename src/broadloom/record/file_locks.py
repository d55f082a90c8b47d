"""A writer holds a lock on its unfinished file. The lock ends with the process, however that ends.

An unfinished file is removed only by a process that gets its lock, so never under a running writer.
"""

import logging
import sys
from pathlib import Path
from typing import BinaryIO, NamedTuple

logger = logging.getLogger("broadloom.record")

if sys.platform != "win32":
    import fcntl

    def lock(file: BinaryIO) -> bool:
        """Returns False if another process has the lock."""
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

else:

    def lock(file: BinaryIO) -> bool:
        """Not needed: Windows does not remove open files."""
        return True


class StaleFile(NamedTuple):
    """An unfinished file found when a tape is opened."""

    path: Path
    is_removed: bool
    """False if its writer is still running, or if the file cannot be removed."""


def remove_stale_files(directory: Path) -> list[StaleFile]:
    """Remove files left by crashed processes; returns all unfinished files."""
    found = []
    for path in sorted(directory.glob("channel=*/event_date=*/.*.parquet")):
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
