"""`Timeline`: the latest entries of a game with the table after each of them.

Entries are sorted by key. One that arrives late is inserted at its place, and those behind it are applied again: the
rollback of networked games, known as Time Warp (Jefferson, Virtual Time, 1985). Tables are immutable, so going back
costs nothing. Tables are computed when they are asked for: several late entries cost as much as one. Of the older ones
only some are kept, and the rest are computed again. What falls out at the old end cannot change any more.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from broadloom.apps.game.entry import TIME_MAX, Entry, Key, counts_of, entry_of, key_of
from broadloom.apps.game.errors import IllegalActionError
from broadloom.apps.game.game import Game
from broadloom.apps.game.table import Table

ENTRIES_KEPT = 4096
"""At least this many entries can be taken back; twice as many are kept at most."""
TABLES_KEPT = 64
"""This many tables at the end are kept, and of the older ones every 64th."""


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
        self._keys: list[tuple[int, int, int]] = []
        """Plain tuples, which Python's garbage collector leaves alone."""
        self._tables: list[Table | None] = []
        """After each entry; None if it was not applied yet, or its table is not kept."""
        self._first_dense = 0
        """From here to `_first_stale` all tables are kept."""
        self._problems: list[str | None] = []
        """Why an entry has no effect; empty if it has one."""
        self._first_stale = 0
        """Entries from here on have to be applied, again or for the first time."""
        self._refused: list[Entry] = []
        self._last_numbers: dict[int, int] | None = None
        """Of each author, the number of its last entry; None if it has to be computed."""

    @property
    def tip(self) -> Table:
        self._replay()
        table = self._table(len(self.entries))
        if self._tables:
            self._tables[-1] = table  # it is asked for often, also behind a rewind, where it was not kept
        return table

    @property
    def tip_key(self) -> Key:
        return Key(*self._keys[-1]) if self._keys else self.base_key

    def _table(self, end: int) -> Table:
        """The table after this many entries, which have been applied."""
        at, table = end, None
        while at and (table := self._tables[at - 1]) is None:
            at -= 1
        table = table or self._base
        for place in range(at, end):
            if not self._problems[place]:
                with suppress(IllegalActionError):  # a game that is not pure: members find that their states differ
                    table = table.apply(self.game, self.entries[place], self.seed)
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
        """Of each author, the number of its last entry up to this key. The numbers of an author are consecutive, in the
        order of its keys."""
        if self._last_numbers is None:
            self._last_numbers = dict(self.base_counts)
            for entry in self.entries:
                self._count(entry)
        found = dict(self._last_numbers)
        if key is not None:
            for entry in reversed(self.entries[bisect_right(self._keys, key) :]):
                found[entry.author] = entry.number - 1
        return {author: number for author, number in found.items() if number > 0}

    def _count(self, entry: Entry) -> None:
        if self._last_numbers is not None:
            self._last_numbers[entry.author] = max(self._last_numbers.get(entry.author, 0), entry.number)

    def beyond(self, counts: Mapping[int, int]) -> list[Entry]:
        """Entries that are missing at a member with these counts: near the end, if any."""
        missing_count = sum(max(0, number - counts.get(author, 0)) for author, number in self.counts().items())
        found: list[Entry] = []
        for entry in reversed(self.entries):
            if len(found) == missing_count:
                break
            if entry.number > counts.get(entry.author, 0):
                found.append(entry)
        return found[::-1]

    def times(self) -> dict[int, int]:
        """Of each author, the time of its last entry here."""
        return {each.author: each.time for each in self.entries}

    def table_at(self, key: Key) -> Table | None:
        """The table after all entries up to this key; None if that is too long ago."""
        if key < self.base_key:
            return None
        self._replay()
        return self._table(bisect_right(self._keys, key))

    def latest_round(self) -> list[Entry]:
        """Those that have an effect and are still here. Rounds are counted up, so its beginning is found by halving."""
        self._replay()
        count = len(self.entries)
        first = bisect_left(range(count), self.tip.round, key=lambda at: self._table(at + 1).round)
        return [self.entries[at] for at in range(first, count) if not self._problems[at]]

    def insert(self, entry: Entry) -> bool:
        """Returns False if it is too old, or is here already."""
        at = bisect_left(self._keys, entry.key)
        if entry.key <= self.base_key or (at < len(self._keys) and self._keys[at] == entry.key):
            return False
        self.entries.insert(at, entry)
        self._keys.insert(at, entry.key)
        self._tables.insert(at, None)
        self._problems.insert(at, None)
        self._mark_stale(at)
        self._count(entry)
        if len(self.entries) > 2 * self.kept_count:
            self._forget(len(self.entries) - self.kept_count)
        return True

    def _mark_stale(self, at: int) -> None:
        self._first_stale, self._first_dense = min(self._first_stale, at), min(self._first_dense, at)

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
        for at in range(self._first_dense, self._first_stale - TABLES_KEPT):
            if at % TABLES_KEPT:
                self._tables[at] = None
        self._first_dense = max(self._first_dense, self._first_stale - TABLES_KEPT)

    def _forget(self, count: int) -> None:
        self._replay()
        key = Key(*self._keys[count - 1])
        self._base, self.base_key, self.base_counts = self._table(count), key, self.counts(key)
        for each in (self.entries, self._keys, self._tables, self._problems):
            del each[:count]
        self._first_stale, self._first_dense = len(self.entries), max(0, self._first_dense - count)

    def remove(self, entry: Entry) -> None:
        at = bisect_left(self._keys, entry.key)
        self._mark_stale(at)
        self._last_numbers = None
        for each in (self.entries, self._keys, self._tables, self._problems):
            del each[at]

    def truncate(self, time: int) -> bool:
        """Take back all entries after this time. Returns False if that is too long ago."""
        end = bisect_left(self._keys, Key(time + 1))
        for each in (self.entries, self._keys, self._tables, self._problems):
            del each[end:]
        self._mark_stale(end)
        self._last_numbers = None
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
            base, tip = Table.parse(snapshot["base"]), Table.parse(snapshot["tip"])
            key, counts = key_of(snapshot["key"]), counts_of(snapshot["counts"])
            entries = [entry_of(author, fields) for author, *fields in snapshot["entries"]]
        except (AttributeError, KeyError, TypeError) as problem:
            raise ValueError(f"not a snapshot of a game: {problem!r}") from None
        if max((each.time for each in entries), default=0) > TIME_MAX:
            raise ValueError(f"the time of a snapshot is at most {TIME_MAX:,}")
        for table in (base, tip):
            if list(table.seats) != self.game.seats():
                raise ValueError(f"the snapshot is of another game: it has the roles {', '.join(table.seats)}")
        self._base, self.base_key, self.base_counts = base, key, counts
        self.entries = sorted(entries, key=lambda each: each.key)
        self._keys = [each.key for each in self.entries]
        self._last_numbers = None
        if is_final:
            self.base_counts, self.base_key, self._base = self.counts(), self.tip_key, tip
            self.entries, self._keys = [], []
        self._tables, self._problems = [None] * len(self.entries), [None] * len(self.entries)
        self._first_stale = self._first_dense = 0

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
            self._count(entry)
        return self.insert(entry)
