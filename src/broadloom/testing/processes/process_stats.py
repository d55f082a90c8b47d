"""What a process of a trial uses, and what its log says."""

import logging
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def usage() -> dict[str, float]:
    """CPU seconds; and in MB all that the process maps, and what is its own alone (the rest it shares with others)."""
    sizes: dict[str, int] = {}
    with suppress(OSError):
        for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
            name, _, rest = line.partition(":")
            sizes[name] = int(rest.split()[0])
    own_kb = sizes.get("Private_Clean", 0) + sizes.get("Private_Dirty", 0)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu_s": used.ru_utime + used.ru_stime,
        "memory_mb": sizes.get("Rss", 0) / 1024,
        "own_memory_mb": own_kb / 1024,
    }


class LogCollector(logging.Handler):
    """Broadloom's own log: warnings are counted, errors are faults."""

    def __init__(self, on_warning: Callable[[str], None], on_error: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._on_warning = on_warning
        self._on_error = on_error

    def attach(self) -> None:
        for name in ("broadloom", "asyncio"):
            logger = logging.getLogger(name)
            logger.handlers[:] = [self]
            logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            self._on_error(self.format(record))
        else:
            self._on_warning(str(record.msg))
