"""`Receipts`: the receipts that this peer waits for as an author."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broadloom.protocol.receipts.reporter import REPORT_PURPOSE, UNLISTED_REPORTS_MAX
from broadloom.wire import PeerId
from broadloom.wire.receipt_messages import DeliveryReport
from broadloom.wire.types import SignedReport

if TYPE_CHECKING:
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.runtime import Timer

OPEN_MAX = 65_536
"""Receipts that a program can wait for at a time."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """Which members have a message. Only members that were present when it was sent count, without its author."""

    sequence: int
    confirmed: frozenset[PeerId]
    """The message was delivered to these programs. Whether they have read it is not known."""
    missing: frozenset[PeerId]
    """They have not confirmed it in time."""
    gone: frozenset[PeerId]
    """They left or were lost before they confirmed it."""
    unreachable: frozenset[PeerId]
    """They were on the other side of a partition when it was sent. They get it if the partition heals in time."""
    is_proven: bool
    """Each member has signed that it has the message. On a channel without TLS it is only claimed."""
    count: int | None = None
    """How many members were asked for; None: all."""
    is_roster_complete: bool = True
    """The roster was complete when the message was sent. Otherwise there may be members that are not counted."""

    @property
    def is_complete(self) -> bool:
        """As many members as were asked for have the message: all of them, or this number."""
        if self.count is not None:
            return len(self.confirmed) >= self.count
        return self.is_roster_complete and not (self.missing or self.gone or self.unreachable)


class OpenReceipt:
    """A receipt that is waited for, or will be once its message is sent."""

    __slots__ = (
        "confirmed", "count", "expected", "is_roster_complete", "on_done", "sequence", "timer", "unreachable",
    )  # fmt: skip

    def __init__(
        self,
        count: int | None,
        expected: dict[PeerId, None],
        unreachable: frozenset[PeerId],
        is_roster_complete: bool,
    ) -> None:
        self.count = count
        """How many members must have it; None: all."""
        self.expected = expected
        self.unreachable = unreachable
        self.is_roster_complete = is_roster_complete
        self.sequence = 0
        self.on_done: Callable[[Receipt], None]
        self.confirmed: dict[PeerId, None] = {}
        self.timer: Timer | None = None

    def waits_for(self, report: DeliveryReport) -> bool:
        """If a number of members was asked for, any of them counts: the author may not know of all of them yet."""
        return (
            (self.count is not None or report.peer_id in self.expected)
            and report.peer_id not in self.confirmed
            and report.covers(self.sequence)
        )


class Receipts:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._open: dict[OpenReceipt, None] = {}
        self._from_unlisted: dict[PeerId, tuple[DeliveryReport, SignedReport]] = {}
        """The newest reports of peers that are not in the roster yet, while a number of members is waited for."""

    def prepare(self, count: int | None) -> OpenReceipt:
        """A receipt of `count` members, or of all that are present now. To be called when the message is sent: of a
        large one, the first fragment."""
        roster = self._peer.roster
        expected = {PeerId(each): None for each in roster.primary_ids() if each != self._peer.me.peer_id}
        return OpenReceipt(count, expected, roster.unreachable_ids(), roster.is_complete)

    def open(self, receipt: OpenReceipt, sequence: int, timeout_s: float, on_done: Callable[[Receipt], None]) -> None:
        """Wait until the members have confirmed this message: of a large one, the last fragment. To be called as soon
        as it is sent. `on_done` is called exactly once, later, unless the receipt is closed."""
        receipt.sequence, receipt.on_done = sequence, on_done
        self._open[receipt] = None
        receipt.timer = self._peer.runtime.call_later(timeout_s, self._end, receipt)
        if not receipt.expected and receipt.count is None:
            self._peer.runtime.call_soon(lambda: self._end(receipt))

    @property
    def open_count(self) -> int:
        return len(self._open)

    def close(self, receipt: OpenReceipt) -> None:
        """Nobody waits for it any more."""
        if receipt in self._open:
            del self._open[receipt]
            if receipt.timer is not None:
                receipt.timer.cancel()
        if not self._open:
            self._from_unlisted.clear()

    def on_report(self, report: DeliveryReport, signed: SignedReport) -> None:
        waiting = [each for each in self._open if each.waits_for(report)]
        member = self._peer.roster.get(PeerId(report.peer_id))
        if member is None and any(report.peer_id not in each.expected for each in waiting):
            self._keep(report, signed)
        waiting = [each for each in waiting if report.peer_id in each.expected or (member and not member.is_secondary)]
        if not waiting:
            return
        if not self._peer.roster.is_signed_by(PeerId(report.peer_id), REPORT_PURPOSE, signed.report, signed.signature):
            self._peer.counters.bad_signatures += 1  # relays do not verify it, so the neighbor is not to blame
            return
        for receipt in waiting:
            receipt.confirmed[PeerId(report.peer_id)] = None
            self._check(receipt)

    def _keep(self, report: DeliveryReport, signed: SignedReport) -> None:
        if report.peer_id in self._from_unlisted or len(self._from_unlisted) < UNLISTED_REPORTS_MAX:
            self._from_unlisted[PeerId(report.peer_id)] = report, signed

    def _check(self, receipt: OpenReceipt) -> None:
        """End it if nobody is left to wait for."""
        if receipt.count is not None:
            is_done = len(receipt.confirmed) >= receipt.count
        else:
            get = self._peer.roster.get
            is_done = all(each in receipt.confirmed or get(each) is None for each in receipt.expected)
        if is_done:
            self._end(receipt)

    def _end(self, receipt: OpenReceipt) -> None:
        if receipt not in self._open:
            return
        self.close(receipt)
        confirmed = frozenset(receipt.confirmed)
        left = [each for each in receipt.expected if each not in confirmed]
        gone = frozenset(each for each in left if self._peer.roster.get(each) is None)
        receipt.on_done(
            Receipt(
                receipt.sequence,
                confirmed,
                frozenset(left) - gone,
                gone,
                receipt.unreachable - confirmed,
                self._peer.roster.is_signing,
                receipt.count,
                receipt.is_roster_complete,
            )
        )

    def tick(self) -> None:
        for peer_id in [each for each in self._from_unlisted if self._peer.roster.get(each) is not None]:
            self.on_report(*self._from_unlisted.pop(peer_id))
        for receipt in list(self._open):
            self._check(receipt)  # members may have left

    def end_all(self) -> None:
        """This peer leaves, or is gone."""
        for receipt in list(self._open):
            self._end(receipt)
