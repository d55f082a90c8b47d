"""What a voter keeps on disk: its vote and its log. `OrderStore` is the interface; sqlite_store.py implements it.

Every method is atomic and durable when it returns: a voter answers only afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from broadloom.order.log import NO_CHAIN, EpochStart, LogEntry
from broadloom.order.model import NO_EPOCH, Epoch
from broadloom.wire import PeerId


@dataclass(slots=True)
class StoredLog:
    """The content of a store."""

    fence: Epoch = NO_EPOCH
    lineage: tuple[EpochStart, ...] = ()
    enrolled: tuple[int, ...] = ()
    base: int = 0
    base_chain: bytes = NO_CHAIN
    base_numbers: dict[PeerId, int] = field(default_factory=dict)
    """The last submission number of each author before the first entry that is kept."""
    entries: list[LogEntry] = field(default_factory=list)


class OrderStore(Protocol):
    @property
    def store_id(self) -> int:
        """Random, not 0: tells this store from one that replaced it."""

    def load(self) -> StoredLog: ...

    def set_fence(self, epoch: Epoch) -> None: ...

    def append(self, first_index: int, entries: Sequence[LogEntry]) -> None: ...

    def replace(
        self,
        fork: int,
        entries: Sequence[LogEntry],
        lineage: tuple[EpochStart, ...],
        fence: Epoch,
        enrolled: tuple[int, ...],
        snapshot: tuple[bytes, dict[PeerId, int]] | None,
    ) -> None:
        """Remove what follows `fork`, append these entries, and set the rest. With a snapshot, `fork` is unknown here:
        drop all entries, and continue there with this hash chain and these submission numbers."""

    def trim(self, base: int, chain: bytes, numbers: dict[PeerId, int]) -> None:
        """Drop the entries up to `base`."""

    def close(self) -> None: ...


class MemoryOrderStore:
    """For tests: survives the replica, not the process."""

    def __init__(self, store_id: int) -> None:
        self._store_id = store_id
        self.content = StoredLog()

    @property
    def store_id(self) -> int:
        return self._store_id

    def load(self) -> StoredLog:
        stored = self.content
        return StoredLog(
            stored.fence, stored.lineage, stored.enrolled, stored.base, stored.base_chain,
            dict(stored.base_numbers), list(stored.entries),
        )  # fmt: skip

    def set_fence(self, epoch: Epoch) -> None:
        self.content.fence = epoch

    def append(self, first_index: int, entries: Sequence[LogEntry]) -> None:
        assert first_index == self.content.base + len(self.content.entries) + 1
        self.content.entries.extend(entries)

    def replace(
        self,
        fork: int,
        entries: Sequence[LogEntry],
        lineage: tuple[EpochStart, ...],
        fence: Epoch,
        enrolled: tuple[int, ...],
        snapshot: tuple[bytes, dict[PeerId, int]] | None,
    ) -> None:
        if snapshot is not None:
            self.content.base, self.content.entries = fork, []
            self.content.base_chain, self.content.base_numbers = snapshot
        self.content.entries[fork - self.content.base :] = entries
        self.content.lineage, self.content.fence, self.content.enrolled = lineage, fence, enrolled

    def trim(self, base: int, chain: bytes, numbers: dict[PeerId, int]) -> None:
        del self.content.entries[: base - self.content.base]
        self.content.base, self.content.base_chain, self.content.base_numbers = base, chain, dict(numbers)

    def close(self) -> None:
        pass
