"""What to do when the process has no file descriptor left: say so, and wait."""

import errno
import logging
from collections.abc import Callable

log = logging.getLogger("broadloom")

OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)
WARN_INTERVAL_S = 60.0
"""Minimum time between two warnings."""
PAUSE_S = 0.5
"""Pause before the next connection is accepted. Doubled each time, up to `PAUSE_S_MAX`."""
PAUSE_S_MAX = 8.0


def files_max() -> int | None:
    """How many files this process may open, if there is a limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def out_of_files_text() -> str:
    limit = f" (this process may open {most:,})" if (most := files_max()) is not None else ""
    return f"out of file descriptors{limit}; raise the limit (ulimit -n), or close some files"


class DescriptorShortage:
    """Whether descriptors are short now. Each failed attempt is noted, and few are logged."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._warn_again_at = float("-inf")
        self._pause_s = 0.0
        self.count = 0
        """Connections that could not be accepted or dialed."""
        self.is_short = False

    def note(self, what: str) -> float:
        """Returns how long to wait before the next attempt."""
        self.count += 1
        self.is_short = True
        if self._now() >= self._warn_again_at:
            self._warn_again_at = self._now() + WARN_INTERVAL_S
            log.warning("cannot %s: %s", what, out_of_files_text())
        self._pause_s = min(PAUSE_S_MAX, 2 * self._pause_s or PAUSE_S)
        return self._pause_s

    def end(self) -> None:
        """A descriptor was available."""
        self.is_short = False
        self._pause_s = 0.0
