"""What applications see of an ordered conversation: entries, where a submission was placed, and events."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from broadloom.wire import PeerId


class Mode(StrEnum):
    """What gives way in a partition (docs/order.md)."""

    SAFE = "safe"
    """Agreement stays: only the side with a majority of the voters continues, and no entry is ever revised."""
    AVAILABLE = "available"
    """Progress stays: every side continues, and when they meet again the smaller one rewinds."""


class Epoch(NamedTuple):
    """The term of one sequencer. Epochs are ordered as tuples, and no two sequencers share one."""

    number: int
    sequencer: PeerId

    def __str__(self) -> str:
        return f"{self.number}/{self.sequencer:016x}"


NO_EPOCH = Epoch(0, PeerId(0))
"""Before the first sequencer."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One message at its place in the order."""

    index: int
    """1, 2, 3, … Duplicates of a key are left out, so numbers can be skipped."""
    epoch: Epoch
    author: PeerId
    data: bytes
    is_final: bool
    """True in mode `safe`. In mode `available` nothing is final: a larger side may exist that nobody has met yet."""
    moved_from: int = 0
    """The index at which this entry was delivered here before it was revoked; 0 if it was not."""

    @property
    def text(self) -> str:
        """The data as UTF-8 text. Raises `ValueError` if it is not."""
        return self.data.decode()


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a submission is in the order."""

    index: int
    epoch: Epoch
    is_final: bool
    """As in `Entry`."""


class SequencerChanged(NamedTuple):
    """Another member assigns the order from now on."""

    epoch: Epoch


class Stalled(NamedTuple):
    """Nothing is ordered at the moment, although something waits for it."""

    reason: str


class Resumed(NamedTuple):
    """The order continues."""


class Rewound(NamedTuple):
    """These entries, delivered before, are revoked; the next entry has the index `to_index + 1` or higher. Those of
    authors that are present are ordered again, at other places."""

    to_index: int
    entries: tuple[Entry, ...]


class Skipped(NamedTuple):
    """These entries exist, but no member that could be asked keeps them any more."""

    first_index: int
    last_index: int


class Diverged(NamedTuple):
    """A member broke the rules of the protocol, or voters lost their stores: final entries contradict each other.
    This program delivers nothing more."""

    text: str


OrderEvent = SequencerChanged | Stalled | Resumed | Rewound | Skipped | Diverged
