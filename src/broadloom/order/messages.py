"""The messages of an ordered conversation, each with what it causes. docs/order.md describes the protocol.

Broadcast: `Enter`, `Exit`, `Submit`, `Assign`, `Takeover`, `NewEpoch`, `Status`, `Suspect`. To one member: `Vote`,
`Refusal`, `Ack`, `Fetch`, `Page`, `WatchSequencer`, `Probe`, and `Submit` again if it was not ordered.
"""

from typing import Annotated, NamedTuple

from broadloom.order.codec import OrderMessage
from broadloom.order.log import EpochStart, LogEntry
from broadloom.order.model import Epoch
from broadloom.order.settings import (
    AUTHORS_MAX,
    ENTRY_BYTES_MAX,
    KEY_BYTES_MAX,
    LINEAGE_MAX,
    PAGE_ENTRIES_MAX,
    PARTICIPANTS_MAX,
    RUNS_MAX,
    VOTERS,
)
from broadloom.wire import PeerId, xdr
from broadloom.wire.fields import Bool, Hyper
from broadloom.wire.layer_codec import layer_message
from broadloom.wire.xdr import numbers, structure

CHAIN_BYTES = 16


class Run(NamedTuple):
    """Consecutive submissions of one author."""

    author: int
    first_number: int
    length: int
    original: int
    """For a submission whose key is in the order already: the index of that entry. 0 otherwise."""


class LastNumber(NamedTuple):
    author: int
    number: int


def _epoch(number: int, sequencer: int) -> Epoch:
    return Epoch(number, PeerId(sequencer))


def _epoch_start(number: int, sequencer: int, first_index: int) -> EpochStart:
    return EpochStart(_epoch(number, sequencer), first_index)


_EPOCH_START = numbers(_epoch_start, ">QQQ")._replace(
    pack=lambda value, out: numbers(tuple, ">QQQ").pack((*value.epoch, value.first_index), out)
)
_ENTRY = structure(LogEntry, xdr.HYPER, xdr.HYPER, xdr.HYPER, xdr.opaque(KEY_BYTES_MAX), xdr.opaque(ENTRY_BYTES_MAX))

EpochField = Annotated[Epoch, numbers(_epoch, ">QQ")]
Chain = Annotated[bytes, xdr.fixed_opaque(CHAIN_BYTES)]
Key = Annotated[bytes, xdr.opaque(KEY_BYTES_MAX)]
Data = Annotated[bytes, xdr.opaque(ENTRY_BYTES_MAX)]
Runs = Annotated[tuple[Run, ...], xdr.array(numbers(Run, ">QQIQ"), RUNS_MAX)]
Lineage = Annotated[tuple[EpochStart, ...], xdr.array(_EPOCH_START, LINEAGE_MAX)]
PeerIds = Annotated[tuple[int, ...], xdr.array(xdr.HYPER, PARTICIPANTS_MAX)]
StoreIds = Annotated[tuple[int, ...], xdr.array(xdr.HYPER, max(VOTERS))]
Entries = Annotated[tuple[LogEntry, ...], xdr.array(_ENTRY, PAGE_ENTRIES_MAX)]
LastNumbers = Annotated[tuple[LastNumber, ...], xdr.array(numbers(LastNumber, ">QQ"), AUTHORS_MAX)]


@layer_message(1)
class Enter(OrderMessage):
    """The sender takes part from now on. Causes: the sequencer sends its `Status`."""

    conversation: Hyper


@layer_message(2)
class Exit(OrderMessage):
    """The sender ends its part. Causes: if it was the sequencer, the next candidate takes over at once."""

    conversation: Hyper


@layer_message(3)
class Submit(OrderMessage):
    """A message to be ordered. Causes: the sequencer assigns an index to it, after those with lower numbers."""

    conversation: Hyper
    submission_number: Hyper
    """Counts the submissions of this author, from 1 and without gaps. No number is ordered twice."""
    key: Key
    """Chosen by the application, or empty. No key is ordered twice, from whichever author."""
    data: Data


@layer_message(4)
class Assign(OrderMessage):
    """Indexes for submissions; only from the sequencer of the epoch. Causes: they are delivered (`available`), or
    stored and acknowledged by voters (`safe`)."""

    conversation: Hyper
    epoch: EpochField
    first_index: Hyper
    runs: Runs
    chain: Chain
    """The hash chain of the log after the last of them."""
    committed: Hyper
    """Entries up to here are final (`safe`)."""


@layer_message(5)
class Takeover(OrderMessage):
    """The sender wants to be the sequencer of this epoch. Causes: participants that have not voted for a higher one
    vote: they accept nothing of lower epochs any more, and say what they have."""

    conversation: Hyper
    epoch: EpochField


@layer_message(6)
class Vote(OrderMessage):
    """The answer to `Takeover`, to the candidate only. Causes: with enough of them it decides where its epoch
    begins."""

    conversation: Hyper
    epoch: EpochField
    lineage: Lineage
    end: Hyper
    """The last index of the sender's log."""
    chain: Chain
    store_id: Hyper
    """Names the store of a voter; 0 for others."""


@layer_message(7)
class NewEpoch(OrderMessage):
    """The sender is the sequencer of this epoch. Causes: participants bring their logs to `cut` and follow it."""

    conversation: Hyper
    epoch: EpochField
    cut: Hyper
    """The last index of earlier epochs."""
    chain: Chain
    """The hash chain at `cut`."""
    committed: Hyper
    lineage: Lineage
    """Earlier epochs in this log, and this one."""
    counted: PeerIds
    """Members whose votes were considered: for them the decision is binding."""
    participants: PeerIds
    enrolled: StoreIds
    """The stores of the voters, in the order of their names (`safe`)."""


@layer_message(8)
class Status(OrderMessage):
    """The state of the sequencer. Causes: a participant that lacks something fetches it; a newcomer starts there; the
    sequencer of a lower epoch starts a takeover, so that both sides become one."""

    conversation: Hyper
    epoch: EpochField
    end: Hyper
    chain: Chain
    committed: Hyper
    participants: PeerIds


@layer_message(9)
class Suspect(OrderMessage):
    """Submissions of the sender are not ordered. Causes: if two members say so, the next candidate takes over."""

    conversation: Hyper
    epoch: EpochField


@layer_message(10)
class Ack(OrderMessage):
    """The sender, a voter, has stored the log of this epoch up to `end`. Causes: what a majority has is final."""

    conversation: Hyper
    epoch: EpochField
    end: Hyper
    store_id: Hyper


@layer_message(11)
class Fetch(OrderMessage):
    """What the sender has. Causes: a `Page` in reply, with what follows the last entry that both have."""

    conversation: Hyper
    lineage: Lineage
    end: Hyper
    from_index: Hyper
    """Continue here; 0 for the beginning."""


@layer_message(12)
class Page(OrderMessage):
    """A part of the sender's log."""

    conversation: Hyper
    lineage: Lineage
    first_index: Hyper
    chain_before: Chain
    """The hash chain before the first entry."""
    entries: Entries
    end: Hyper
    """The last index of the whole log."""
    committed: Hyper
    is_snapshot: Bool
    """The sender does not keep what follows the receiver's log: this is the first entry that it has."""
    last_numbers: LastNumbers
    """Of a snapshot: the last submission number of each author before the first entry."""
    enrolled: StoreIds


@layer_message(13)
class WatchSequencer(OrderMessage):
    """Not answered while the receiver is the sequencer of this epoch: the connection shows whether it lives."""

    conversation: Hyper
    epoch: EpochField


@layer_message(14)
class Probe(OrderMessage):
    """Causes: a reply, if the receiver takes part."""

    conversation: Hyper


@layer_message(15)
class Refusal(OrderMessage):
    """The receiver's takeover has too low a number. Causes: its next one is higher."""

    conversation: Hyper
    fence: EpochField
