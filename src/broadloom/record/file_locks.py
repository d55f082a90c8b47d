"""Who is alive: a writer holds a lock on its unfinished file, and the lock ends with the process however it ends.

The rule: a hidden file is removed only by whoever has got its lock, so never under a living writer.
"""

import logging
import sys
from pathlib import Path
from typing import BinaryIO, NamedTuple

logger = logging.getLogger("broadloom.record")

if sys.platform != "win32":
    import fcntl

    def lock(file: BinaryIO) -> bool:
        """Take the lock; False if another has it."""
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

else:

    def lock(file: BinaryIO) -> bool:
        """No such locks here, and none needed: the system lets nobody remove an open file."""
        return True


class StaleFile(NamedTuple):
    """An unfinished file that was found when a tape was opened."""

    path: Path
    is_removed: bool
    """Its writer is gone. Otherwise it is alive and still writes, or the file may not be touched."""


def remove_stale_files(directory: Path) -> list[StaleFile]:
    """Remove what runs that died have left, and tell of all that is unfinished."""
    found = []
    for path in sorted(directory.glob("channel=*/event_date=*/.*.parquet")):
        try:
            with path.open("rb+") as file:
                removed = lock(file)
                if removed:
                    size = path.stat().st_size
                    path.unlink()
                    logger.warning("removed %s: its writer died before it was finished (%d bytes)", path, size)
        except FileNotFoundError:
            continue  # finished at this moment
        except OSError as problem:
            logger.warning("%s is unfinished and cannot be removed: %s", path, problem)
            removed = False
        found.append(StaleFile(path, removed))
    return found
