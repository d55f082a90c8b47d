"""`TakeoverAttempt`: becoming the sequencer of a new epoch.

1. Broadcast `Takeover`. A member that votes accepts nothing of lower epochs any more, and says what it has.
2. With enough votes (policy.py), choose the log that continues. Fetch what we lack of it.
3. Only then broadcast `NewEpoch`, with the index at which the epoch begins.

Everything that a member which voted has delivered is in the log that continues, unless their logs fork.
"""

from typing import TYPE_CHECKING

from broadloom.order.catch_up import FetchedLog
from broadloom.order.codec import encode
from broadloom.order.log import EpochStart
from broadloom.order.messages import NewEpoch, Probe, Takeover, Vote
from broadloom.order.model import Epoch
from broadloom.order.policy import SafePolicy
from broadloom.order.settings import LINEAGE_MAX, PARTICIPANTS_MAX
from broadloom.protocol.requests.outgoing import OutcomeKind
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.order.replica import Replica
    from broadloom.protocol.runtime import Timer

REPEAT_S = 0.5
PROBE_TIMEOUT_S = 1.0
PROBES_MAX = 32


class TakeoverAttempt:
    def __init__(self, replica: "Replica", epoch: Epoch, without: PeerId, *, is_merge: bool = False) -> None:
        self._replica = replica
        self.epoch = epoch
        self._is_merge = is_merge
        """Logs have forked, so all that are there must vote: two members that distrusted each other would go on taking
        over from each other, each without the other's vote."""
        self._started_at = self._sent_at = replica.clock.now()
        self._votes: dict[PeerId, Vote] = {replica.me: replica.make_vote(epoch)}
        self._absent: dict[PeerId, None] = {without: None}
        """Participants that are not waited for: the former sequencer, and those that are gone."""
        self._is_fetching = False
        self._has_ended = False
        self._timers: list[Timer] = []

    def start(self) -> None:
        runtime, settings = self._replica.runtime, self._replica.settings
        self._replica.broadcast(Takeover(self._replica.id, self.epoch))
        self._timers = [
            runtime.call_later(settings.probe_s, self._probe),
            runtime.call_later(settings.takeover_s, self._check),
        ]
        self._check()

    def end(self) -> None:
        self._has_ended = True
        if self._is_fetching:
            self._replica.catch_up.cancel()
        for timer in self._timers:
            timer.cancel()

    def on_vote(self, peer_id: PeerId, vote: Vote) -> None:
        if not self._is_fetching and (peer_id in self._votes or len(self._votes) < PARTICIPANTS_MAX):
            self._votes[peer_id] = vote
            self._replica.participants.add((peer_id,))
            self._check()

    def on_gone(self, peer_id: PeerId) -> None:
        """This member is not there any more. Its vote stays: it accepts nothing of lower epochs."""
        self._absent[peer_id] = None
        self._check()

    def tick(self, now: float) -> None:
        if now - self._sent_at >= REPEAT_S and not self._is_fetching:
            self._sent_at = now
            self._replica.broadcast(Takeover(self._replica.id, self.epoch))
        if now - self._started_at >= self._replica.settings.takeover_timeout_s:
            self._replica.elections.give_up()
        else:
            self._check()  # the clock stops during a pause, so the timer may have fired before the deadline

    def _waiting_for(self) -> list[PeerId]:
        participants = self._replica.participants
        return [
            each
            for each in participants.others
            if each not in self._votes
            and each not in self._absent
            and (self._is_merge or not participants.is_distrusted(each))
        ]

    def _probe(self) -> None:
        """Ask those that are silent: a process that ended is recognized at once, before the roster drops it."""
        for peer_id in self._waiting_for()[:PROBES_MAX]:
            self._replica.runtime.request(
                peer_id,
                encode(Probe(self._replica.id)),
                PROBE_TIMEOUT_S,
                lambda kind, _data, peer_id=peer_id: self._on_probed(peer_id, kind),  # type: ignore[misc]
            )

    def _on_probed(self, peer_id: PeerId, kind: OutcomeKind) -> None:
        if kind in (OutcomeKind.GONE, OutcomeKind.REFUSED, OutcomeKind.UNKNOWN_PEER) and not self._has_ended:
            self.on_gone(peer_id)

    def _check(self) -> None:
        if self._has_ended or self._is_fetching:
            return
        replica = self._replica
        is_late = (
            not replica.clock.was_paused
            and replica.clock.now() - self._started_at >= replica.settings.takeover_s * 0.999
        )
        if replica.policy.can_decide(self._votes, self._waiting_for(), is_late=is_late):
            self._decide()

    def _decide(self) -> None:
        replica, log = self._replica, self._replica.log
        for each in self._waiting_for():
            replica.participants.distrust(each)  # it is not waited for again for a while
        chosen = replica.policy.choose(self._votes)
        if (chosen.lineage, chosen.end) == (log.lineage, log.end):
            self._install(None, chosen)
            return
        holder = next(
            peer_id for peer_id, vote in self._votes.items() if (vote.lineage, vote.end) == (chosen.lineage, chosen.end)
        )
        self._is_fetching = True
        replica.catch_up.start(holder, lambda fetched: self._on_fetched(holder, chosen, fetched))

    def _on_fetched(self, holder: PeerId, chosen: Vote, fetched: FetchedLog | None) -> None:
        self._is_fetching = False
        if self._has_ended:
            return
        if fetched is None or (fetched.lineage, fetched.end, fetched.chain) != (
            chosen.lineage, chosen.end, chosen.chain,
        ):  # fmt: skip
            # Its log is not available: decide without it.
            del self._votes[holder]
            self._absent[holder] = None
            self._check()
            return
        self._install(fetched, chosen)

    def _install(self, fetched: FetchedLog | None, chosen: Vote) -> None:
        replica, cut = self._replica, chosen.end
        lineage = (*chosen.lineage, EpochStart(self.epoch, cut + 1))[-LINEAGE_MAX:]
        enrolled = self._enrolled()
        if fetched is None:
            fetched = FetchedLog(replica.me, lineage, cut, [], replica.committed, enrolled, replica.log.chain)
        self.end()
        for peer_id in self._absent:
            replica.participants.remove(peer_id)
        replica.lead(
            fetched._replace(lineage=lineage, enrolled=enrolled),
            NewEpoch(
                replica.id,
                self.epoch,
                cut,
                chosen.chain,
                max(replica.committed, fetched.committed),
                lineage,
                tuple(self._votes),
                replica.participants.all[:PARTICIPANTS_MAX],
                enrolled,
            ),
        )

    def _enrolled(self) -> tuple[int, ...]:
        policy = self._replica.policy
        if not isinstance(policy, SafePolicy):
            return ()
        if policy.enrolled:
            return policy.enrolled
        stores = policy.stores_of(self._votes)
        return tuple(stores[voter] for voter in policy.voters)
