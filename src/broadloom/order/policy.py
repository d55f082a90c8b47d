"""What differs between the two modes. Everything else is one protocol: a view change with a sequencer.

`available`: an entry is delivered when it is assigned. A takeover asks all participants that are present; if their logs
differ, the log that most members hold continues. `safe`: an entry is delivered when a majority of the voters has stored
it. A takeover needs a majority, and continues the log of the highest epoch among them (as in the view change of
Viewstamped Replication): any two majorities have a voter in common, so that log contains everything that was delivered.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol

from broadloom.order.log import fork_index
from broadloom.order.messages import Vote
from broadloom.order.runtime import OrderRuntime
from broadloom.wire import PeerId


class Policy(Protocol):
    is_final: bool
    """Entries are delivered when they are final, not when they are assigned."""

    def may_lead(self, peer_id: PeerId) -> bool:
        """Whether this member may be the sequencer."""

    def can_decide(self, votes: Mapping[PeerId, Vote], waiting_for: list[PeerId], *, is_late: bool) -> bool:
        """Whether a candidate with these votes may decide where its epoch begins."""

    def choose(self, votes: Mapping[PeerId, Vote]) -> Vote:
        """The vote of the log that continues."""

    def has_quorum(self, present: Iterable[PeerId]) -> bool:
        """Whether a takeover can succeed with these participants."""


class AvailablePolicy:
    is_final = False

    def __init__(self, runtime: OrderRuntime) -> None:
        self._runtime = runtime

    def may_lead(self, peer_id: PeerId) -> bool:
        return self._runtime.may_send(peer_id)

    def can_decide(self, votes: Mapping[PeerId, Vote], waiting_for: list[PeerId], *, is_late: bool) -> bool:
        return is_late or not waiting_for

    def choose(self, votes: Mapping[PeerId, Vote]) -> Vote:
        """Of logs that fork, the one that most members have, or have a part of; then the longer one."""
        counts = Counter((vote.lineage, vote.end) for vote in votes.values())
        support = {
            (lineage, end): sum(
                count
                for (other, other_end), count in counts.items()
                if fork_index(other, other_end, lineage, end) == other_end
            )
            for lineage, end in counts
        }
        return max(
            votes.values(),
            key=lambda each: (support[each.lineage, each.end], each.end, each.lineage[-1:], each.chain),
        )

    def has_quorum(self, present: Iterable[PeerId]) -> bool:
        return True


class SafePolicy:
    is_final = True

    def __init__(self, voters: tuple[str, ...], runtime: OrderRuntime) -> None:
        self.voters = voters
        """Sorted names."""
        self._runtime = runtime
        self.enrolled: tuple[int, ...] = ()
        """The store of each voter, once the conversation was founded. A voter with another store has forgotten what it
        said and stored, so it does not count."""

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    def voter(self, peer_id: PeerId) -> str | None:
        name = self._runtime.name_of(peer_id)
        return name if name in self.voters else None

    def may_lead(self, peer_id: PeerId) -> bool:
        return self.voter(peer_id) is not None

    def is_enrolled(self, voter: str, store_id: int) -> bool:
        return not self.enrolled or self.enrolled[self.voters.index(voter)] == store_id

    def stores_of(self, votes: Mapping[PeerId, Vote]) -> dict[str, int]:
        """The stores of the voters among these votes."""
        found: dict[str, int] = {}
        for peer_id, vote in votes.items():
            voter = self.voter(peer_id)
            if voter is not None and vote.store_id and self.is_enrolled(voter, vote.store_id):
                found[voter] = vote.store_id
        return found

    def can_decide(self, votes: Mapping[PeerId, Vote], waiting_for: list[PeerId], *, is_late: bool) -> bool:
        """The first epoch needs all voters, which enrolls their stores; later ones need a majority."""
        stores = self.stores_of(votes)
        if self.enrolled:
            return len(stores) >= self.majority
        return len(stores) == len(self.voters) and not any(vote.lineage for vote in votes.values())

    def choose(self, votes: Mapping[PeerId, Vote]) -> Vote:
        counted = [
            vote
            for peer_id, vote in votes.items()
            if (voter := self.voter(peer_id)) is not None and self.is_enrolled(voter, vote.store_id)
        ]
        return max(counted, key=lambda each: (each.lineage[-1].epoch if each.lineage else (0, 0), each.end))

    def has_quorum(self, present: Iterable[PeerId]) -> bool:
        names = dict.fromkeys(voter for each in present if (voter := self.voter(each)) is not None)
        return len(names) >= (self.majority if self.enrolled else len(self.voters))
