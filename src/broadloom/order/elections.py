"""`Elections`: when to replace the sequencer, and who does it.

Reasons: there is none; it is gone; two members wait for it in vain; another part of the channel has one too; a takeover
did not succeed in time. Each candidate waits according to its rank, so that usually only one tries. A timeout decides
only when a takeover is tried, never what is agreed.
"""

from typing import TYPE_CHECKING

from broadloom.order.messages import Refusal, Suspect, Vote
from broadloom.order.model import NO_EPOCH, Epoch
from broadloom.order.settings import NUMBER_STEP_MAX, PARTICIPANTS_MAX
from broadloom.order.takeover import TakeoverAttempt
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.order.replica import Replica
    from broadloom.protocol.runtime import Timer

FOREIGN_S = 3.0
"""A follower leaves it to its sequencer to react to another one for this long."""
MERGE_S = 0.5
"""When parts of the channel meet, their sequencers wait for this long after the roster has shown the other one, so that
it shows the others too. Then all of them are counted."""


class Elections:
    def __init__(self, replica: "Replica") -> None:
        self._replica = replica
        self.attempt: TakeoverAttempt | None = None
        self.highest = NO_EPOCH
        """The highest epoch that we know of."""
        self.is_suspected = False
        """The sequencer that we follow is gone, or does nothing."""
        self._complaints: dict[PeerId, None] = {}
        self._retry_at: float | None = None
        """No further takeover before: we have voted and wait for the new sequencer, or our own did not succeed."""
        self._foreign: tuple[Epoch, float] | None = None
        """A higher epoch that is not ours, and since when we know of it."""
        self._wants_merge = False
        self._timer: Timer | None = None
        self._entered_at = replica.clock.now()

    # -- what happens

    def is_plausible(self, epoch: Epoch) -> bool:
        """Whether the number of an epoch is not beyond what honest members can have reached."""
        known = max(self.highest.number, self._replica.fence.number)
        if epoch.number > known + NUMBER_STEP_MAX:
            self._replica.rejected["epoch"] += 1
            return False
        self.highest = max(self.highest, epoch)
        return True

    def suspect(self) -> None:
        """The sequencer that we follow is gone."""
        if not self.is_suspected and self._replica.log.lineage:
            self.is_suspected = True
            self._schedule()

    def on_suspect(self, peer_id: PeerId, message: Suspect) -> None:
        if message.epoch != self._replica.log.epoch or len(self._complaints) >= PARTICIPANTS_MAX:
            return
        if peer_id != message.epoch.sequencer:
            self._complaints[peer_id] = None
            others = len(self._replica.participants.others)
            if len(self._complaints) >= min(2, max(1, others)) and not self._replica.is_sequencing:
                self._replica.participants.distrust(message.epoch.sequencer)
                self.suspect()

    def on_voted(self) -> None:
        """We voted for another member's takeover."""
        self._end_attempt()
        self._retry_at = self._replica.clock.now() + self._replica.settings.takeover_timeout_s

    def on_epoch(self) -> None:
        """We follow a new sequencer, or are it."""
        self._end_attempt()
        self.is_suspected = self._wants_merge = False
        self._complaints = {}
        self._retry_at = self._foreign = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_foreign(self, epoch: Epoch) -> None:
        """There is a sequencer with a higher epoch than ours, and it is not certain that its log continues ours. The
        sequencer of the lower epoch unites them; a follower acts only if it does not."""
        if self._foreign is None or epoch > self._foreign[0]:
            since = self._foreign[1] if self._foreign is not None else self._replica.clock.now()
            self._foreign = epoch, since

    def merge(self) -> None:
        """Another log does not continue ours: a takeover decides which one does."""
        self._wants_merge = True
        self._schedule()

    def on_gone(self, peer_id: PeerId) -> None:
        replica = self._replica
        self._complaints.pop(peer_id, None)
        if self.attempt is not None:
            self.attempt.on_gone(peer_id)
        if replica.is_fenced and peer_id == replica.fence.sequencer:
            self._retry_at = replica.clock.now()
            self._schedule()
        elif peer_id == replica.log.epoch.sequencer and not replica.is_sequencing:
            self.suspect()

    def on_vote(self, peer_id: PeerId, message: Vote) -> None:
        if self.attempt is not None and message.epoch == self.attempt.epoch:
            self.attempt.on_vote(peer_id, message)

    def on_refusal(self, message: Refusal) -> None:
        if self.is_plausible(message.fence) and self.attempt is not None and message.fence > self.attempt.epoch:
            self.give_up()

    def give_up(self) -> None:
        """Our takeover did not succeed. Others may try, and we again later."""
        self._end_attempt()
        self._retry_at = self._replica.clock.now() + self._replica.settings.rank_delay_s
        self._replica.on_gave_up()

    def _end_attempt(self) -> None:
        if self.attempt is not None:
            self.attempt.end()
            self.attempt = None

    def close(self) -> None:
        self._end_attempt()
        if self._timer is not None:
            self._timer.cancel()

    # -- when

    def _is_needed(self, now: float) -> bool:
        replica = self._replica
        if self.attempt is not None or replica.clock.was_paused:
            return False
        if self._retry_at is not None and now < self._retry_at:
            return False
        if replica.is_entering:
            return now - self._entered_at >= self._enter_s
        return replica.is_fenced or self._wants_merge or (self.is_suspected and not replica.is_sequencing)

    @property
    def _enter_s(self) -> float:
        return 0.0 if self._replica.runtime.is_alone else self._replica.settings.enter_s

    def tick(self, now: float) -> None:
        replica = self._replica
        if self.attempt is not None:
            self.attempt.tick(now)
        elif replica.is_fenced and self._retry_at is not None and now >= self._retry_at:
            if replica.fence.sequencer != replica.me:
                replica.participants.distrust(replica.fence.sequencer)
        if self._foreign is not None:
            self._handle_foreign(*self._foreign, now)
        if self._is_needed(now):
            self._schedule()

    def _handle_foreign(self, epoch: Epoch, since: float, now: float) -> None:
        replica = self._replica
        if epoch <= replica.log.epoch:
            self._foreign = None
        elif not replica.runtime.is_present(epoch.sequencer):
            self._foreign = epoch, now
        elif replica.is_sequencing and now - since >= MERGE_S:
            self._foreign = None
            if replica.participants.takes_allowance(epoch.sequencer):
                self.start_takeover()
        elif not replica.is_sequencing and now - since >= FOREIGN_S:
            self._foreign = None
            replica.joining.join(epoch, is_binding=False)

    def _schedule(self) -> None:
        replica = self._replica
        if self._timer is None and replica.policy.may_lead(replica.me):
            rank = replica.participants.rank(self._without())
            self._timer = replica.runtime.call_later(rank * replica.settings.rank_delay_s, self._on_due)

    def _on_due(self) -> None:
        self._timer = None
        if self._is_needed(self._replica.clock.now()):
            self.start_takeover()

    def _without(self) -> PeerId:
        """The sequencer that is gone, which is no candidate."""
        replica = self._replica
        if replica.is_fenced and replica.fence.sequencer != replica.me:
            return replica.fence.sequencer
        return replica.log.epoch.sequencer if self.is_suspected else PeerId(0)

    def start_takeover(self) -> None:
        """Try to become the sequencer."""
        replica = self._replica
        if self.attempt is not None or not replica.policy.may_lead(replica.me):
            return
        replica.participants.refresh()
        if not replica.policy.has_quorum(replica.participants.all):
            return
        number = max(self.highest.number, replica.fence.number) + 1
        epoch = self.highest = Epoch(number, replica.me)
        without = replica.log.epoch.sequencer if self.is_suspected else PeerId(0)
        replica.begin_takeover(epoch)
        self.attempt = TakeoverAttempt(replica, epoch, without, is_merge=self._wants_merge)
        self.attempt.start()
