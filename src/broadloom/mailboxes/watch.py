"""`Watch`: the values of some mailboxes as they are, then every change."""

from collections.abc import Callable, Iterable, Mapping

from broadloom.channel.closable import AsyncClosable
from broadloom.channel.item_reader import ItemReader
from broadloom.channel.topics import PatternTrie, checked_pattern
from broadloom.errors import NotConnectedError
from broadloom.mailboxes.limits import WATCH_CHANGES_MAX
from broadloom.mailboxes.model import Change, ChangeKind, Value


class Watch(ItemReader[Change], AsyncClosable):
    """Returned by `Mailboxes.watch`. Iterate over it, or call `receive`."""

    def __init__(
        self, pattern: str, owner: str | None, after: int | Mapping[str, int], on_close: Callable[["Watch"], None]
    ) -> None:
        super().__init__()
        self.pattern = checked_pattern(pattern)
        self.owner = owner
        self.skipped_count = 0
        """Changes that were replaced by later ones, because the program did not read in time."""
        self._after = after
        self._on_close = on_close
        self._changes: list[Change] = []
        """The next one last."""
        self._arrived: list[Change] = []
        self._is_closed = False

    @property
    def unread_count(self) -> int:
        return len(self._changes) + len(self._arrived)

    def _begin(self, present: Iterable[Value]) -> None:
        for value in present:
            after = self._after if isinstance(self._after, int) else self._after.get(value.name, 0)
            if self.owner in (None, value.owner) and value.revision > after:
                self._put(Change(ChangeKind.PRESENT, value))

    def _put(self, change: Change) -> None:
        if self.owner not in (None, change.value.owner) or self._is_closed:
            return
        self._arrived.append(change)
        if len(self._arrived) > WATCH_CHANGES_MAX:
            self._keep_last_ones()
        self._wakeup.set()

    def _keep_last_ones(self) -> None:
        """Of each mailbox. There are as many as fit into the table, at most."""
        last = {(each.value.owner, each.value.name): each for each in self._arrived}
        if len(last) < len(self._arrived):
            self.skipped_count += len(self._arrived) - len(last)
            self._arrived = list(last.values())

    def _take(self) -> Change | None:
        if not self._changes:
            self._changes, self._arrived = self._arrived[::-1], []
        return self._changes.pop() if self._changes else None

    def _check_open(self) -> None:
        if self._is_closed:
            raise NotConnectedError(f"the watch of {self.pattern!r} was closed")

    def _awaited(self) -> str:
        return f"change of {self.pattern!r}"

    async def aclose(self) -> None:
        self._end()
        self._on_close(self)

    def _end(self) -> None:
        self._is_closed = True
        self._wakeup.set()


def check_after(after: object) -> None:
    for revision in after.values() if isinstance(after, Mapping) else (after,):
        if isinstance(revision, bool) or not isinstance(revision, int):
            raise TypeError(f"after must be a revision or a mapping of names to revisions, not {after!r}")


class Watches:
    """The open watches of one program."""

    def __init__(self) -> None:
        self._by_pattern: PatternTrie[Watch] = PatternTrie()
        self._open: dict[Watch, None] = {}

    def add(self, watch: Watch, present: Iterable[Value]) -> None:
        alone: PatternTrie[Watch] = PatternTrie()
        alone.add(watch.pattern, watch)
        watch._begin(value for value in present if alone.readers(value.name))
        self._by_pattern.add(watch.pattern, watch)
        self._open[watch] = None

    def remove(self, watch: Watch) -> None:
        if self._open.pop(watch, self) is not self:
            self._by_pattern.remove(watch.pattern, watch)

    def put(self, change: Change) -> None:
        if self._open:
            for watch in self._by_pattern.readers(change.value.name):
                watch._put(change)

    def close(self) -> None:
        for watch in self._open:
            watch._end()
