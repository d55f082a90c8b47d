"""`DeliveryReporter`: reports to authors what this member has delivered, and passes on the reports of others."""

from typing import TYPE_CHECKING

from broadloom.wire import PeerId
from broadloom.wire.fields import MISSED_ENDS_MAX, REPORTS_MAX
from broadloom.wire.receipt_messages import DeliveryReport, DeliveryReports, decode_report, encode_report
from broadloom.wire.types import SignedReport

if TYPE_CHECKING:
    from broadloom.protocol.events import Missed
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.runtime import Timer

REPORT_PURPOSE = b"broadloom receipt\0"
"""Domain separation: the same key signs messages and records of the roster."""
GATHER_S = 0.05
"""Reports are gathered for this time before they are passed on."""
REPORT_COST_S = 50e-6
"""The more members there are, the rarer each one reports: by this time for each, which is what a report costs the
author."""
AUTHORS_MAX = 64
"""Authors whose reports are passed on at a time; the least recently used is forgotten."""
EXPIRY_S = 30.0
"""An author is forgotten when this time has passed since its last message with a receipt."""
UNLISTED_REPORTS_MAX = 64
"""Reports of members that are not in the roster yet, per author."""


class _AuthorReports:
    """What is known about the deliveries of one author's messages."""

    __slots__ = ("first", "is_own_due", "missed", "newest", "reported_at", "source", "timer", "unsent", "used_at")

    def __init__(self, now: float) -> None:
        self.source: Link | None = None
        """The link that brought the last message with a receipt: the way to the author."""
        self.first = 0
        """This member has delivered the messages from here on; 0 if it has delivered none with a receipt..."""
        self.missed: list[tuple[int, int]] = []
        """...except these."""
        self.is_own_due = False
        """Something was delivered since our own last report."""
        self.newest: dict[PeerId, tuple[int, SignedReport]] = {}
        """The newest report of each other member, and how far it reaches."""
        self.unsent: dict[PeerId, None] = {}
        self.timer: Timer | None = None
        self.reported_at = -GATHER_S
        self.used_at = now


class DeliveryReporter:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._authors: dict[PeerId, _AuthorReports] = {}

    # -- our own deliveries

    def on_first_copy(self, author: PeerId, link: "Link") -> None:
        """A message with a receipt arrived over this link."""
        self._used(author).source = link

    def on_delivered(self, author: PeerId, first: int) -> None:
        """Messages with a receipt, from `first` on, were delivered to the application."""
        reports = self._used(author)
        reports.first = reports.first or first
        reports.is_own_due = True
        self._schedule(author, reports)

    def on_missed(self, missed: "Missed") -> None:
        """These messages will not be delivered."""
        reports = self._authors.get(missed.author)
        if reports is not None and reports.first:
            self._add_missed(reports, missed.first_sequence, missed.last_sequence)

    def on_undelivered(self, author: PeerId, sequence: int) -> None:
        """This message arrived, but the application does not get it. Called before `on_delivered` for the same message:
        of several local peers, another one may have got it first."""
        self._add_missed(self._used(author), sequence, sequence)

    @staticmethod
    def _add_missed(reports: _AuthorReports, first: int, last: int) -> None:
        reports.missed.append((first, last))
        if 2 * len(reports.missed) > MISSED_ENDS_MAX:  # claim less
            reports.first = 1 + max(end for _, end in reports.missed)
            reports.missed.clear()

    # -- reports of others

    def on_reports(self, link: "Link", message: DeliveryReports) -> None:
        for signed in message.reports:
            report = decode_report(signed.report)
            if report.author == self._peer.me.peer_id:
                self._peer.receipts.on_report(report, signed)
            elif report.peer_id != self._peer.me.peer_id:
                self._keep(report, signed)

    def _keep(self, report: DeliveryReport, signed: SignedReport) -> None:
        reports = self._authors.get(report.author)
        if reports is None:
            return  # expired, or invented
        newest = reports.newest.get(report.peer_id)
        if newest is not None and newest[0] >= report.last:
            return
        if newest is None and len(reports.newest) >= self._peer.roster.size + UNLISTED_REPORTS_MAX:
            return
        reports.newest[report.peer_id] = report.last, signed
        reports.unsent[report.peer_id] = None
        self._schedule(report.author, reports)

    # -- sending

    def _used(self, author: PeerId) -> _AuthorReports:
        now = self._peer.runtime.now()
        reports = self._authors.pop(author, None)
        if reports is None:
            reports = _AuthorReports(now)
            if len(self._authors) >= AUTHORS_MAX:
                self._forget(next(iter(self._authors)))
        self._authors[author] = reports
        reports.used_at = now
        return reports

    def _forget(self, author: PeerId) -> None:
        timer = self._authors.pop(author).timer
        if timer is not None:
            timer.cancel()

    def _schedule(self, author: PeerId, reports: _AuthorReports) -> None:
        if reports.timer is None:
            now = self._peer.runtime.now()
            pace_s = self._peer.roster.size * REPORT_COST_S if not reports.unsent else 0.0
            delay_s = max(GATHER_S, reports.reported_at + pace_s - now)
            reports.timer = self._peer.runtime.call_later(delay_s, self._flush, author)

    def _flush(self, author: PeerId) -> None:
        reports = self._authors[author]
        reports.timer = None
        links = self._peer.links
        # If the link toward the author is down, send to all neighbors.
        targets = [reports.source] if self._has_return_link(reports) else list(links)
        if not targets or not self._peer.is_present:
            return  # the next link sends everything (`on_links_changed`)
        signed = [reports.newest[each][1] for each in reports.unsent]
        reports.unsent.clear()
        window = self._peer.broadcaster.receiver.windows.get(author)
        if reports.is_own_due and window is not None:
            reports.is_own_due = False
            reports.reported_at = self._peer.runtime.now()
            signed.append(self._own_report(author, reports, window.last_contiguous))
        for start in range(0, len(signed), REPORTS_MAX):
            for link in targets:
                assert link is not None
                link.send(DeliveryReports(tuple(signed[start : start + REPORTS_MAX])))

    def _own_report(self, author: PeerId, reports: _AuthorReports, last: int) -> SignedReport:
        missed = tuple(each for ends in reports.missed for each in ends)
        report = DeliveryReport(self._peer.me.peer_id, author, reports.first, last, missed)
        data = encode_report(report)
        return SignedReport(data, self._peer.roster.sign(REPORT_PURPOSE, data))

    def on_links_changed(self) -> None:
        """The neighbor on the way to an author may have died with our reports: all of them are sent again."""
        for author, reports in self._authors.items():
            if not self._has_return_link(reports):
                reports.unsent.update(dict.fromkeys(reports.newest))
                reports.is_own_due = reports.first > 0
                self._schedule(author, reports)

    def _has_return_link(self, reports: _AuthorReports) -> bool:
        source = reports.source
        return source is not None and self._peer.links.get(source.peer_id) is source

    def tick(self, now: float) -> None:
        for author in [each for each, reports in self._authors.items() if now - reports.used_at > EXPIRY_S]:
            self._forget(author)
