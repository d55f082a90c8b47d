"""`SequencerWatch`: the next candidates keep a request open at the sequencer.

It is not answered. If the process of the sequencer ends, the connection is reset, which is noticed within milliseconds,
long before the roster drops the member.
"""

from typing import TYPE_CHECKING

from broadloom.order.codec import encode
from broadloom.order.messages import WatchSequencer
from broadloom.order.model import NO_EPOCH, Epoch
from broadloom.order.settings import WATCH_S, WATCHERS
from broadloom.protocol.requests.outgoing import OutcomeKind

if TYPE_CHECKING:
    from broadloom.order.replica import Replica
    from broadloom.order.runtime import GiveUp

FAILURES = 2
"""A connection may also be lost while the sequencer lives. Then the second attempt succeeds."""


class SequencerWatch:
    def __init__(self, replica: "Replica") -> None:
        self._replica = replica
        self._watched = NO_EPOCH
        self._is_open = False
        self._failures = 0
        self._give_up: GiveUp = lambda: None

    def close(self) -> None:
        """Otherwise the channel waits for the request when it is left."""
        self._is_open = False
        self._give_up()

    def update(self) -> None:
        """Called when the epoch or the candidates have changed, and now and then."""
        replica = self._replica
        epoch = replica.log.epoch
        if self._watched != epoch:
            self._watched, self._is_open, self._failures = epoch, False, 0
        if self._is_open or not replica.is_following or replica.elections.is_suspected:
            return
        if not replica.policy.may_lead(replica.me) or replica.participants.rank(epoch.sequencer, WATCHERS) >= WATCHERS:
            return
        self._is_open = True
        self._give_up = replica.runtime.request(
            epoch.sequencer,
            encode(WatchSequencer(replica.id, epoch)),
            WATCH_S,
            lambda kind, _data: self._on_outcome(epoch, kind),
        )

    def _on_outcome(self, epoch: Epoch, kind: OutcomeKind) -> None:
        if epoch != self._watched or not self._is_open:
            return
        self._is_open = False
        if kind is OutcomeKind.GONE:
            self._failures += 1
            if self._failures >= FAILURES:
                self._replica.elections.suspect()
            else:
                self.update()
        elif kind is OutcomeKind.NO_ANSWER:
            self._failures = 0
            self.update()
