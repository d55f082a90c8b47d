"""`Timeline`: the latest entries of a game with the table after each of them.

Entries are sorted by key. One that arrives late is inserted at its place, and those behind it are applied again: the
rollback of networked games, known as Time Warp (Jefferson, Virtual Time, 1985). Tables are immutable, so going back
costs nothing. Tables are computed when they are asked for: several late entries cost as much as one. What falls out at
the old end cannot change any more.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Any

from broadloom.apps.game.entry import TIME_MAX, Entry, Key, entry_of
from broadloom.apps.game.errors import IllegalActionError
from broadloom.apps.game.game import Game
from broadloom.apps.game.table import Table

ENTRIES_KEPT = 4096
"""At least this many entries can be taken back; twice as many are kept at most."""


class Timeline:
    def __init__(self, game: Game, seed: str) -> None:
        self.game = game
        self.seed = seed
        self.kept_count = ENTRIES_KEPT
        self._base = Table.new(game)
        self.base_key = Key(0)
        self.base_counts: dict[int, int] = {}
        """Of each author, the number of its last entry up to the base."""
        self.entries: list[Entry] = []
        self._keys: list[Key] = []
        self._tables: list[Table | None] = []
        """After each entry; None from the first one on that was not applied yet."""
        self._problems: list[str | None] = []
        """Why an entry has no effect; empty if it has one."""
        self._first_stale = 0
        """Entries from here on have to be applied, again or for the first time."""
        self._refused: list[Entry] = []

    @property
    def tip(self) -> Table:
        self._replay()
        return self._table(len(self.entries))

    @property
    def tip_key(self) -> Key:
        return self._keys[-1] if self._keys else self.base_key

    def _table(self, end: int) -> Table:
        """The table after this many entries, which have been applied."""
        table = self._tables[end - 1] if end else self._base
        assert table is not None
        return table

    def problem(self, entry: Entry) -> str | None:
        """Why an entry has no effect; None if it is not here."""
        self._replay()
        at = bisect_left(self._keys, entry.key)
        return self._problems[at] if at < len(self._keys) and self._keys[at] == entry.key else None

    def take_refused(self) -> list[Entry]:
        """Entries that had an effect, and lost it because an earlier one came late."""
        self._replay()
        refused, self._refused = self._refused, []
        return refused

    def counts(self, key: Key | None = None) -> dict[int, int]:
        """Of each author, the number of its last entry up to this key."""
        found = dict(self.base_counts)
        end = len(self.entries) if key is None else bisect_right(self._keys, key)
        for entry in self.entries[:end]:
            found[entry.author] = max(found.get(entry.author, 0), entry.number)
        return found

    def times(self) -> dict[int, int]:
        """Of each author, the time of its last entry here."""
        return {each.author: each.time for each in self.entries}

    def table_at(self, key: Key) -> Table | None:
        """The table after all entries up to this key; None if that is too long ago."""
        if key < self.base_key:
            return None
        self._replay()
        return self._table(bisect_right(self._keys, key))

    def insert(self, entry: Entry) -> bool:
        """Returns False if it is too old, or is here already."""
        at = bisect_left(self._keys, entry.key)
        if entry.key <= self.base_key or (at < len(self._keys) and self._keys[at] == entry.key):
            return False
        self.entries.insert(at, entry)
        self._keys.insert(at, entry.key)
        self._tables.insert(at, None)
        self._problems.insert(at, None)
        self._first_stale = min(self._first_stale, at)
        if len(self.entries) > 2 * self.kept_count:
            self._forget(len(self.entries) - self.kept_count)
        return True

    def _replay(self) -> None:
        if self._first_stale >= len(self.entries):
            return
        table = self._table(self._first_stale)
        for at in range(self._first_stale, len(self.entries)):
            entry, problem = self.entries[at], ""
            try:
                table = table.apply(self.game, entry, self.seed)
            except IllegalActionError as illegal:
                problem = str(illegal) or "illegal"
                if self._problems[at] == "":
                    self._refused.append(entry)
            self._tables[at], self._problems[at] = table, problem
        self._first_stale = len(self.entries)

    def _forget(self, count: int) -> None:
        self._replay()
        self.base_counts = self.counts(self._keys[count - 1])
        self._base, self.base_key = self._table(count), self._keys[count - 1]
        for each in (self.entries, self._keys, self._tables, self._problems):
            del each[:count]
        self._first_stale = len(self.entries)

    def remove(self, entry: Entry) -> None:
        at = bisect_left(self._keys, entry.key)
        self._first_stale = min(self._first_stale, at)
        for each in (self.entries, self._keys, self._tables, self._problems):
            del each[at]

    def truncate(self, time: int) -> bool:
        """Take back all entries after this time. Returns False if that is too long ago."""
        end = bisect_left(self._keys, Key(time + 1))
        for each in (self.entries, self._keys, self._tables, self._problems):
            del each[end:]
        self._first_stale = min(self._first_stale, end)
        return time >= self.base_key.time

    # -- as JSON

    def snapshot(self) -> dict[str, Any]:
        return {
            "base": self._base.as_dict(),
            "key": list(self.base_key),
            "counts": [list(each) for each in self.base_counts.items()],
            "entries": [[each.author, *each.fields()] for each in self.entries],
            "tip": self.tip.as_dict(),
        }

    def restore(self, snapshot: Any, *, is_final: bool = False) -> None:
        """Replace everything. With `is_final`, begin with the last table instead of computing it. Raises
        `ValueError`."""
        try:
            tip = Table.parse(snapshot["tip"])
            base, key = Table.parse(snapshot["base"]), Key(*map(int, snapshot["key"]))
            counts = {int(author): int(number) for author, number in snapshot["counts"]}
            entries = [entry_of(author, fields) for author, *fields in snapshot["entries"]]
        except (AttributeError, KeyError, TypeError) as problem:
            raise ValueError(f"not a snapshot of a game: {problem!r}") from None
        if max((each.time for each in entries), default=0) > TIME_MAX or not 0 <= key.time <= TIME_MAX:
            raise ValueError(f"the time of a snapshot is at most {TIME_MAX:,}")
        if list(base.seats) != self.game.seats():
            raise ValueError(f"the snapshot is of another game: it has the roles {', '.join(base.seats)}")
        self._base, self.base_key, self.base_counts = base, key, counts
        self.entries = sorted(entries, key=lambda each: each.key)
        self._keys = [each.key for each in self.entries]
        if is_final:
            self.base_counts, self.base_key, self._base = self.counts(), self.tip_key, tip
            self.entries, self._keys = [], []
        self._tables, self._problems = [None] * len(self.entries), [None] * len(self.entries)
        self._first_stale = 0

    def insert_missing(self, entries: Iterable[Entry]) -> bool:
        """Insert those that continue what is here: of each author, the next ones, each later than the one before.
        Returns whether others are left."""
        counts, times, is_incomplete = self.counts(), self.times(), False
        for entry in sorted(entries, key=lambda each: (each.author, each.number)):
            expected = counts.get(entry.author, 0) + 1
            if entry.number == expected and entry.time > times.get(entry.author, 0):
                counts[entry.author], times[entry.author] = entry.number, entry.time
                self.insert_or_skip(entry)
            elif entry.number >= expected:
                is_incomplete = True
        return is_incomplete

    def insert_or_skip(self, entry: Entry) -> bool:
        """The next entry of its author. If it is too old to be inserted, it is lost, and the following ones count."""
        if entry.key <= self.base_key:
            self.base_counts[entry.author] = entry.number
        return self.insert(entry)
