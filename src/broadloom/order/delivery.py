"""`Delivery`: how far the application is in the log, and what is revoked if the log changes behind that point."""

from broadloom.order.log import LogEntry, OrderLog
from broadloom.order.model import Diverged, Entry, Placed, Rewound, Skipped
from broadloom.order.runtime import OrderRuntime
from broadloom.wire import PeerId

MOVED_MAX = 65_536
"""Revoked entries whose former index is remembered."""


class Delivery:
    def __init__(self, runtime: OrderRuntime, log: OrderLog, from_index: int | None, *, is_final: bool) -> None:
        self._runtime = runtime
        self._log = log
        self._from_index = from_index
        self._is_final = is_final
        self._position: int | None = None
        self._start = 0
        """Entries up to here were not delivered."""
        self._last_delivered = 0
        self.fetched_end = 0
        """Entries up to here came all at once, when the log was last fetched or loaded."""
        self._moved_from: dict[tuple[PeerId, int], int] = {}
        self.has_diverged = False

    @property
    def position(self) -> int:
        """Entries up to here were delivered, or are not wanted."""
        return self._position if self._position is not None else self._log.end

    @property
    def has_started(self) -> bool:
        return self._position is not None

    def start(self, end: int) -> None:
        """This program has the log up to here. The first time decides where the application begins: by default with
        what follows, and its own entries."""
        self.fetched_end = end
        if self._position is None:
            self._position = self._before_own(end) if self._from_index is None else max(self._from_index - 1, 0)
            self._start = self._position
            self._skip_to(self._log.base)

    def _before_own(self, end: int) -> int:
        me = self._runtime.peer_id
        own = (index for index in range(self._log.base + 1, end + 1) if self._log.entry(index).author == me)
        return next(own, end + 1) - 1

    def advance(self, limit: int) -> bool:
        """Deliver up to this index. Returns whether there was something."""
        if self._position is None or self.has_diverged:
            return False
        before, limit = self._position, min(limit, self._log.end)
        while self._position < limit:
            self._position = self._last_delivered = self._position + 1
            self._deliver(self._position, self._log.entry(self._position))
        return self._position > before

    def _deliver(self, index: int, entry: LogEntry) -> None:
        placed = entry.original or index
        moved_from = self._moved_from.pop((entry.author, entry.number), 0)
        if not entry.original:
            self._runtime.deliver(self._entry(index, entry, moved_from))
        if entry.author == self._runtime.peer_id:
            self._runtime.on_placed(entry.number, Placed(placed, self._log.epoch_at(placed), self._is_final))

    def _entry(self, index: int, entry: LogEntry, moved_from: int) -> Entry:
        author = PeerId(entry.author)
        return Entry(index, self._log.epoch_at(index), author, entry.data, self._is_final, moved_from)

    def prepare_rewind(self, fork: int) -> bool:
        """The log will continue differently after `fork`. Returns False if that would revoke final entries."""
        position = self._position
        if position is None or position <= fork:
            return True
        if self._is_final:
            if self._last_delivered > fork:
                self.has_diverged = True
                last = self._last_delivered
                self._runtime.emit(Diverged(f"entries {fork + 1} to {last} were final, and the sequencer has others"))
                return False
            self._position = fork  # what we did not want was not final yet, and is another entry now
            return True
        revoked = []
        for index in range(max(fork, self._log.base, self._start) + 1, position + 1):
            entry = self._log.entry(index)
            if entry.original:
                continue
            revoked.append(self._entry(index, entry, 0))
            self._moved_from[entry.author, entry.number] = index
        while len(self._moved_from) > MOVED_MAX:
            del self._moved_from[next(iter(self._moved_from))]
        self._position = fork
        self._start = min(self._start, fork)
        if revoked:
            self._runtime.emit(Rewound(fork, tuple(revoked)))
        return True

    def on_restart(self) -> None:
        """The log begins at a later place than before."""
        self._skip_to(self._log.base)

    def _skip_to(self, base: int) -> None:
        if self._position is not None and self._position < base:
            self._runtime.emit(Skipped(self._position + 1, base))
            self._position = self._start = base
