"""`Participants`: the members that take part in one conversation, and which of them is next to become the sequencer.

A member takes part from its `Enter` until its `Exit` or until it is gone from the roster. The sequencer's list reaches
everyone with `Status` and `NewEpoch`.
"""

from collections.abc import Callable, Iterable
from itertools import islice

from broadloom.order.runtime import OrderRuntime
from broadloom.order.settings import DISTRUST_S, PARTICIPANTS_MAX, TAKEOVER_REFILL_S, TAKEOVERS_PER_MEMBER
from broadloom.wire import PeerId


class Participants:
    def __init__(self, runtime: OrderRuntime, may_lead: Callable[[PeerId], bool]) -> None:
        self._runtime = runtime
        self._may_lead = may_lead
        self._known: dict[PeerId, None] = {}
        """Without this program."""
        self._unconfirmed: dict[PeerId, None] = {}
        """Listed by another member, and not in the roster yet."""
        self._distrusted: dict[PeerId, float] = {}
        self._takeovers: dict[PeerId, tuple[float, float]] = {}
        """What is left of each member's allowance, and since when."""

    def __contains__(self, peer_id: PeerId) -> bool:
        return peer_id in self._known

    def add(self, peer_ids: Iterable[PeerId]) -> None:
        me = self._runtime.peer_id
        for peer_id in peer_ids:
            if peer_id == me or peer_id in self._known:
                continue
            if not self._runtime.is_present(peer_id):
                if len(self._unconfirmed) < PARTICIPANTS_MAX:
                    self._unconfirmed[peer_id] = None
            elif len(self._known) < PARTICIPANTS_MAX - 1:
                self._known[peer_id] = None
                self._unconfirmed.pop(peer_id, None)

    def replace(self, peer_ids: Iterable[PeerId]) -> None:
        """The list of a new sequencer, which knows best. A member that it leaves out enters again."""
        self._known, self._unconfirmed = {}, {}
        self.add(peer_ids)

    def refresh(self) -> None:
        """After a partition the roster lists members again only after a while."""
        unconfirmed, self._unconfirmed = self._unconfirmed, {}
        self.add(each for each in unconfirmed if self._runtime.is_present(each))
        self._unconfirmed.update(dict.fromkeys(each for each in unconfirmed if each not in self._known))

    def remove(self, peer_id: PeerId) -> None:
        self._known.pop(peer_id, None)
        self._unconfirmed.pop(peer_id, None)

    @property
    def others(self) -> list[PeerId]:
        return list(self._known)

    @property
    def all(self) -> tuple[PeerId, ...]:
        return (self._runtime.peer_id, *self._known)

    def distrust(self, peer_id: PeerId) -> None:
        """It failed as a candidate or as the sequencer: it is the last in line for a while."""
        now = self._runtime.now()
        self._distrusted = {each: until for each, until in self._distrusted.items() if until > now}
        self._distrusted[peer_id] = now + DISTRUST_S

    def is_distrusted(self, peer_id: PeerId) -> bool:
        return self._distrusted.get(peer_id, 0.0) > self._runtime.now()

    def rank(self, without: PeerId, rank_max: int | None = None) -> int:
        """How many candidates come before this program if `without` is no candidate; `rank_max` if there are more. The
        highest id is the first, so that of two takeovers with one number the more likely one wins."""
        me = self._runtime.peer_id
        place = self._place(me) if me != without and self._may_lead(me) else None
        before = (
            each
            for each in self._known
            if each != without and (place is None or self._place(each) < place) and self._may_lead(each)
        )
        return sum(1 for _ in islice(before, rank_max))

    def _place(self, peer_id: PeerId) -> tuple[bool, int]:
        return self.is_distrusted(peer_id), -peer_id

    def takes_allowance(self, peer_id: PeerId) -> bool:
        """Whether this member may try another takeover: each one stops the order for a moment."""
        now = self._runtime.now()
        left, since = self._takeovers.get(peer_id, (float(TAKEOVERS_PER_MEMBER), now))
        left = min(float(TAKEOVERS_PER_MEMBER), left + (now - since) / TAKEOVER_REFILL_S)
        if len(self._takeovers) > PARTICIPANTS_MAX:
            self._takeovers = {each: value for each, value in self._takeovers.items() if self._runtime.is_present(each)}
        self._takeovers[peer_id] = (left - 1 if left >= 1 else left), now
        return left >= 1
