"""Files that only their owner may read: keys, tickets, authorities, and the stores of groups."""

import logging
import os
import stat
from pathlib import Path

log = logging.getLogger("broadloom")

MODE = 0o600


def open_new(path: Path) -> int:
    """Create a file with mode 600 and open it for writing; raises `FileExistsError`."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)


def warn_if_readable_by_others(path: Path, what: str) -> None:
    """Log a warning if other users of this machine can read a file that exists."""
    if os.name != "posix":
        return
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if stat.S_ISREG(mode) and mode & (stat.S_IRGRP | stat.S_IROTH):
        log.warning("other users of this machine can read %s %s: run chmod 600 %s", what, path, path)
