"""`Receipts`: the receipts that this peer waits for as an author."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broadloom.protocol.receipts.reporter import REPORT_PURPOSE
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
    """Which members have a message. Counted are those that were present when it was sent, without its author."""

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

    @property
    def is_complete(self) -> bool:
        """Every member has the message."""
        return not (self.missing or self.gone or self.unreachable)


class OpenReceipt:
    """A receipt that is waited for."""

    __slots__ = ("confirmed", "count", "expected", "first", "last", "on_done", "timer", "unreachable")

    def __init__(
        self,
        first: int,
        last: int,
        expected: dict[PeerId, None],
        unreachable: frozenset[PeerId],
        count: int | None,
        on_done: Callable[[Receipt], None],
    ) -> None:
        self.first = first
        self.last = last
        self.expected = expected
        self.unreachable = unreachable
        self.count = count
        """How many members must have it; None: all."""
        self.on_done = on_done
        self.confirmed: dict[PeerId, None] = {}
        self.timer: Timer | None = None


class Receipts:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._open: dict[OpenReceipt, None] = {}

    def open(
        self, first: int, last: int, count: int | None, timeout_s: float, on_done: Callable[[Receipt], None]
    ) -> OpenReceipt:
        """Wait until `count` members, or all, have confirmed messages `first` to `last` of this peer. `on_done` is
        called exactly once, later, unless the receipt is closed."""
        roster = self._peer.roster
        expected = {PeerId(each): None for each in roster.primary_ids() if each != self._peer.me.peer_id}
        receipt = OpenReceipt(first, last, expected, roster.unreachable_ids(), count, on_done)
        self._open[receipt] = None
        receipt.timer = self._peer.runtime.call_later(timeout_s, self._end, receipt)
        if not expected or count == 0:
            self._peer.runtime.call_soon(lambda: self._end(receipt))
        return receipt

    @property
    def open_count(self) -> int:
        return len(self._open)

    def close(self, receipt: OpenReceipt) -> None:
        """Nobody waits for it any more."""
        if self._open.pop(receipt, receipt) is None and receipt.timer is not None:
            receipt.timer.cancel()

    def on_report(self, report: DeliveryReport, signed: SignedReport) -> None:
        waiting = [
            each
            for each in self._open
            if report.peer_id in each.expected
            and report.peer_id not in each.confirmed
            and report.covers(each.first, each.last)
        ]
        if not waiting:
            return
        if not self._peer.roster.is_signed_by(PeerId(report.peer_id), REPORT_PURPOSE, signed.report, signed.signature):
            self._peer.counters.bad_signatures += 1  # relays do not verify it, so the neighbor is not to blame
            return
        for receipt in waiting:
            receipt.confirmed[PeerId(report.peer_id)] = None
            self._check(receipt)

    def _check(self, receipt: OpenReceipt) -> None:
        """End it if nobody is left to wait for."""
        enough = receipt.count is not None and len(receipt.confirmed) >= receipt.count
        if enough or all(each in receipt.confirmed or self._peer.roster.get(each) is None for each in receipt.expected):
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
            )
        )

    def tick(self) -> None:
        for receipt in list(self._open):
            self._check(receipt)  # members may have left

    def end_all(self) -> None:
        """This peer leaves."""
        for receipt in list(self._open):
            self._end(receipt)
