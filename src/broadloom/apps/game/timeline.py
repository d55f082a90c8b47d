"""`Timeline`: the latest entries of a game with the table after each of them.

Entries are sorted by key. One that arrives late is inserted at its place, and those behind it are applied again: the
rollback of networked games, known as Time Warp (Jefferson, Virtual Time, 1985). Tables are immutable, so going back
costs nothing. What falls out at the old end cannot change any more.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Any

from broadloom.apps.game.entry import Entry, Key, entry_of
from broadloom.apps.game.errors import IllegalActionError
from broadloom.apps.game.game import Game
from broadloom.apps.game.table import Table

ENTRIES_KEPT = 4096
"""At least this many entries can be taken back; twice as many are kept at most."""


class Timeline:
    def __init__(self, game: Game, seed: str) -> None:
        self.game = game
        self.seed = seed
        self._base = Table.new(game)
        self.base_key = Key(0)
        self.base_counts: dict[int, int] = {}
        """Of each author, the number of its last entry up to the base."""
        self.entries: list[Entry] = []
        self._keys: list[Key] = []
        self._tables: list[Table] = []
        self._problems: list[str] = []
        """Why an entry has no effect; empty if it has one."""

    @property
    def tip(self) -> Table:
        return self._tables[-1] if self._tables else self._base

    @property
    def tip_key(self) -> Key:
        return self._keys[-1] if self._keys else self.base_key

    def problem(self, entry: Entry) -> str | None:
        """Why an entry has no effect; None if it is not here."""
        at = bisect_left(self._keys, entry.key)
        return self._problems[at] if at < len(self._keys) and self._keys[at] == entry.key else None

    def counts(self, key: Key | None = None) -> dict[int, int]:
        """Of each author, the number of its last entry up to this key."""
        found = dict(self.base_counts)
        end = len(self.entries) if key is None else bisect_right(self._keys, key)
        for entry in self.entries[:end]:
            found[entry.author] = max(found.get(entry.author, 0), entry.number)
        return found

    def table_at(self, key: Key) -> Table | None:
        """The table after all entries up to this key; None if that is too long ago."""
        if key < self.base_key:
            return None
        end = bisect_right(self._keys, key)
        return self._tables[end - 1] if end else self._base

    def insert(self, entry: Entry) -> list[Entry]:
        """Returns the entries whose effect was computed: this one and those behind it. Empty if it is too old, or is
        here already."""
        at = bisect_left(self._keys, entry.key)
        if entry.key <= self.base_key or (at < len(self._keys) and self._keys[at] == entry.key):
            return []
        self.entries.insert(at, entry)
        self._keys.insert(at, entry.key)
        self._replay(at)
        changed = self.entries[at:]
        if len(self.entries) > 2 * ENTRIES_KEPT:
            self._forget(len(self.entries) - ENTRIES_KEPT)
        return changed

    def _replay(self, at: int) -> None:
        del self._tables[at:], self._problems[at:]
        for entry in self.entries[at:]:
            table, problem = self.tip, ""
            try:
                table = table.apply(self.game, entry, self.seed)
            except IllegalActionError as illegal:
                problem = str(illegal) or "illegal"
            self._tables.append(table)
            self._problems.append(problem)

    def _forget(self, count: int) -> None:
        self.base_counts = self.counts(self._keys[count - 1])
        self._base, self.base_key = self._tables[count - 1], self._keys[count - 1]
        for each in (self.entries, self._keys, self._tables, self._problems):
            del each[:count]

    def remove(self, entry: Entry) -> None:
        at = bisect_left(self._keys, entry.key)
        del self.entries[at], self._keys[at]
        self._replay(at)

    def truncate(self, time: int) -> bool:
        """Take back all entries after this time. Returns False if that is too long ago."""
        end = bisect_left(self._keys, Key(time + 1))
        for each in (self.entries, self._keys, self._tables, self._problems):
            del each[end:]
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
        if list(base.seats) != self.game.seats():
            raise ValueError(f"the snapshot is of another game: it has the roles {', '.join(base.seats)}")
        self._base, self.base_key, self.base_counts = base, key, counts
        self.entries = sorted(entries, key=lambda each: each.key)
        self._keys = [each.key for each in self.entries]
        if is_final:
            self.base_counts, self.base_key, self._base = self.counts(), self.tip_key, tip
            self.entries, self._keys = [], []
        self._replay(0)

    def insert_missing(self, entries: Iterable[Entry]) -> None:
        """Insert those that continue what is here: of each author, the next ones."""
        counts = self.counts()
        for entry in sorted(entries, key=lambda each: (each.author, each.number)):
            if entry.number == counts.get(entry.author, 0) + 1 and self.insert(entry):
                counts[entry.author] = entry.number
