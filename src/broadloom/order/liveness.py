"""`Liveness`: what to do about our own submissions that are not ordered, and telling the application about it."""

from typing import TYPE_CHECKING

from broadloom.order.codec import encode
from broadloom.order.messages import Enter, Submit, Suspect
from broadloom.order.model import Resumed, Stalled
from broadloom.order.policy import SafePolicy
from broadloom.order.settings import TICK_S

if TYPE_CHECKING:
    from broadloom.order.replica import Replica

RESENT_MAX = 64
"""Submissions that are sent to the sequencer directly at a time."""
ABANDONED_S = 60.0
"""Submissions of others that were not ordered in this time are dropped. Their authors send them again, or are gone."""


class Liveness:
    def __init__(self, replica: "Replica") -> None:
        self._replica = replica
        now = replica.clock.now()
        self._resent_at = self._progress_at = self._entered_at = self._dropped_at = now
        self._is_stalled = False

    def on_epoch(self) -> None:
        """What is pending goes to the new sequencer soon: it may not have received it."""
        self._resent_at = self._replica.clock.now() - self._replica.settings.resend_s + TICK_S

    def on_progress(self) -> None:
        self._progress_at = self._replica.clock.now()
        if self._is_stalled:
            self._is_stalled = False
            self._replica.runtime.emit(Resumed())

    def tick(self, now: float) -> None:
        replica = self._replica
        if replica.is_entering and now - self._entered_at >= replica.settings.enter_s:
            self._entered_at = now
            replica.broadcast(Enter(replica.id))
        if now - self._dropped_at > ABANDONED_S:
            self._dropped_at = now
            replica.submissions.drop_older_than(now - ABANDONED_S)
        self._resend(now)
        self._check_stall(now)

    def _resend(self, now: float) -> None:
        """Our submissions that are not ordered go to the sequencer directly; if that does not help, we complain."""
        replica = self._replica
        own = replica.submissions.own
        if not own or not replica.is_following or now - self._resent_at < replica.settings.resend_s:
            return
        since = next(iter(own.values())).since_s
        if now - since < TICK_S:
            return
        self._resent_at = now
        for number, submission in list(own.items())[:RESENT_MAX]:
            message = Submit(replica.id, number, submission.key, submission.data)
            replica.runtime.tell(replica.log.epoch.sequencer, encode(message))
        if now - max(since, self._progress_at) > replica.settings.stall_s:
            complaint = Suspect(replica.id, replica.log.epoch)
            replica.broadcast(complaint)
            replica.elections.on_suspect(replica.me, complaint)

    def _check_stall(self, now: float) -> None:
        replica = self._replica
        own = replica.submissions.own
        waits_since = next(iter(own.values())).since_s if own else None
        if replica.policy.is_final and replica.is_sequencing and replica.committed < replica.log.end:
            waits_since = self._progress_at
        if waits_since is None and (replica.is_sequencing or replica.is_following):
            self.on_progress()
        elif not self._is_stalled and now - max(waits_since or 0.0, self._progress_at) > replica.settings.stall_s:
            self._is_stalled = True
            replica.runtime.emit(Stalled(self.stall_reason()))

    def stall_reason(self) -> str:
        policy = self._replica.policy
        if isinstance(policy, SafePolicy) and not policy.has_quorum(self._replica.participants.all):
            needed = "a majority" if policy.enrolled else "all"
            return f"{needed} of the {len(policy.voters)} voters must be connected"
        return "the sequencer does not answer" if self._replica.is_following else "there is no sequencer"
