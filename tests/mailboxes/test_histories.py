"""Histories with faults: all members agree, no acknowledged value is lost, watchers see every change in order.

The mutants show that the checks can fail.
"""

from collections.abc import Callable
from typing import Any

import pytest

from broadloom.mailboxes.anti_entropy import AntiEntropy
from broadloom.mailboxes.keeping import Copies, KeeperStore
from broadloom.mailboxes.post_office import PostOffice
from broadloom.mailboxes.record import Record
from broadloom.mailboxes.table import MailboxTable
from tests.histories import HistoryError
from tests.mailboxes.histories import run_seed
from tests.mailboxes.sim_runtime import Disk

BATCHES = [range(first, first + 5) for first in range(1, 201, 5)]
"""`make soak` runs thousands."""


@pytest.mark.parametrize("seeds", BATCHES, ids=str)
def test_acknowledged_values_survive_kills_splits_and_joins(seeds: range) -> None:
    assert sum(len(run_seed(seed).acknowledged) for seed in seeds) > 5


def test_neighbor_is_not_lost_because_others_beyond_a_partition_dropped_it() -> None:
    """A member that was paused, and then cut off from all its neighbors but one: that one saw it as lost."""
    run_seed(2236)


def test_value_on_its_way_to_keepers_does_not_bring_back_a_mailbox_that_was_unbound() -> None:
    run_seed(20026)


def _acknowledge_at_once(self: Any) -> None:
    self._end(None)


def _merge_by_revision(real: Callable[..., bool]) -> Callable[..., bool]:
    def merge(self: MailboxTable, record: Record, now_s: float, wall_ms: int) -> bool:
        known = self.known(record)
        return (known is None or record.revision > known.revision) and real(self, record, now_s, wall_ms)

    return merge


def _ignore(*_args: object) -> None:
    pass


MUTANTS = {
    "a keeper acknowledges what is not on its disk": (3, Disk, "commit", lambda _real: _ignore, "lost"),
    "a value is acknowledged before keepers have it": (
        7, Copies, "start", lambda _real: _acknowledge_at_once, "lost"
    ),
    "a keeper does not store what is published": (3, KeeperStore, "put", lambda _real: _ignore, "lost"),
    "tables are never compared": (1, AntiEntropy, "on_digest", lambda _real: _ignore, "not equal"),
    "the first of two records with one revision counts": (1, MailboxTable, "merge", _merge_by_revision, "not equal"),
    "the loser is not notified": (1, PostOffice, "_check_overruled", lambda _real: _ignore, "was overruled"),
    "presence is not considered": (
        1, MailboxTable, "on_member_gone", lambda _real: _ignore, "without its owner|not equal|has seen"
    ),
}  # fmt: skip
"""The first seed that shows it, what is changed, and what the check says."""


def _run_seeds(first: int) -> None:
    """More than one, so that another order of events elsewhere does not hide a mutant."""
    for seed in range(first, first + 60):
        run_seed(seed)


@pytest.mark.parametrize("name", MUTANTS)
def test_checks_find_mutant(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seed, kind, method, mutate, problem = MUTANTS[name]
    monkeypatch.setattr(kind, method, mutate(getattr(kind, method)))
    with pytest.raises(HistoryError, match=problem):
        _run_seeds(seed)
