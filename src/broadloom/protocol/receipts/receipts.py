"""`Receipts`: the receipts that this peer waits for as an author."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broadloom.protocol.receipts.reporter import REPORT_PURPOSE, STRANGERS_MAX
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
    """A receipt that is waited for."""

    __slots__ = (
        "confirmed", "count", "expected", "first", "is_roster_complete", "last", "on_done", "timer", "unreachable",
    )  # fmt: skip

    def __init__(
        self,
        first: int,
        last: int,
        expected: dict[PeerId, None],
        unreachable: frozenset[PeerId],
        is_roster_complete: bool,
        count: int | None,
        on_done: Callable[[Receipt], None],
    ) -> None:
        self.first = first
        self.last = last
        self.expected = expected
        self.unreachable = unreachable
        self.is_roster_complete = is_roster_complete
        self.count = count
        """How many members must have it; None: all."""
        self.on_done = on_done
        self.confirmed: dict[PeerId, None] = {}
        self.timer: Timer | None = None

    def waits_for(self, report: DeliveryReport) -> bool:
        """If a number of members was asked for, any of them counts: the author may not know of all of them yet."""
        return (
            (self.count is not None or report.peer_id in self.expected)
            and report.peer_id not in self.confirmed
            and report.covers(self.first, self.last)
        )


class Receipts:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._open: dict[OpenReceipt, None] = {}
        self._of_strangers: dict[PeerId, tuple[DeliveryReport, SignedReport]] = {}
        """The newest reports of peers that are not in the roster yet, while a number of members is waited for."""

    def open(
        self, first: int, last: int, count: int | None, timeout_s: float, on_done: Callable[[Receipt], None]
    ) -> OpenReceipt:
        """Wait until `count` members, or all, have confirmed messages `first` to `last` of this peer. `on_done` is
        called exactly once, later, unless the receipt is closed."""
        roster = self._peer.roster
        expected = {PeerId(each): None for each in roster.primary_ids() if each != self._peer.me.peer_id}
        receipt = OpenReceipt(first, last, expected, roster.unreachable_ids(), roster.is_complete, count, on_done)
        self._open[receipt] = None
        receipt.timer = self._peer.runtime.call_later(timeout_s, self._end, receipt)
        if not expected and count is None:
            self._peer.runtime.call_soon(lambda: self._end(receipt))
        return receipt

    @property
    def open_count(self) -> int:
        return len(self._open)

    def close(self, receipt: OpenReceipt) -> None:
        """Nobody waits for it any more."""
        if self._open.pop(receipt, receipt) is None and receipt.timer is not None:
            receipt.timer.cancel()
        if not self._open:
            self._of_strangers.clear()

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
        if report.peer_id in self._of_strangers or len(self._of_strangers) < STRANGERS_MAX:
            self._of_strangers[PeerId(report.peer_id)] = report, signed

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
                receipt.last,
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
        for peer_id in [each for each in self._of_strangers if self._peer.roster.get(each) is not None]:
            self.on_report(*self._of_strangers.pop(peer_id))
        for receipt in list(self._open):
            self._check(receipt)  # members may have left

    def end_all(self) -> None:
        """This peer leaves."""
        for receipt in list(self._open):
            self._end(receipt)
