"""`DeliveryReporter`: reports to authors what this member has delivered, and passes on the reports of others."""

from typing import TYPE_CHECKING, NamedTuple

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
AUTHORS_MIN = 64
"""Reports about this many authors are passed on at a time, or about as many as there are members; the least recently
used author is forgotten. All are forgotten `retention_s` after their last message with a receipt: until then, members
may still get it."""
UNLISTED_REPORTS_MAX = 64
"""Reports of members that are not in the roster yet, per author."""


class _Kept(NamedTuple):
    """The newest report of another member."""

    last: int
    signed: SignedReport
    is_verified: bool = False


class _AuthorReports:
    """What is known about the deliveries of one author's messages."""

    __slots__ = (
        "first",
        "is_own_due",
        "missed",
        "newest",
        "reported_at",
        "source",
        "timer",
        "unlisted",
        "unsent",
        "used_at",
    )

    def __init__(self, now: float) -> None:
        self.source: Link | None = None
        """The link that brought the last message with a receipt: the way to the author."""
        self.first = 0
        """This member has delivered the messages from here on; 0 if it has delivered none with a receipt..."""
        self.missed: list[tuple[int, int]] = []
        """...except these."""
        self.is_own_due = False
        """Something was delivered since our own last report."""
        self.newest: dict[PeerId, _Kept] = {}
        """By member. They are not verified, so the newest may be a forgery."""
        self.unlisted: dict[PeerId, None] = {}
        """Those of them that were not in the roster when they first reported."""
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
        """Keep the newest report of each member. They are verified only if two of one member conflict, so that a
        forgery does not displace the true one. From then on, only verified ones of this member are kept: otherwise two
        peers could send each other both of them forever."""
        reports = self._authors.get(report.author)
        if reports is None:
            return  # expired, or invented
        member = PeerId(report.peer_id)
        kept = reports.newest.get(member)
        new = _Kept(report.last, signed)
        if kept is None:
            if not self._admit(reports, member):
                return
        elif signed == kept.signed or (kept.is_verified and new.last <= kept.last):
            return
        elif kept.is_verified or new.last <= kept.last:
            if not self._is_valid(member, new):
                return
            new = new._replace(is_verified=True)
            if new.last <= kept.last and self._is_valid(member, kept):
                reports.newest[member] = kept._replace(is_verified=True)
                return
        if member in reports.unsent:
            self._flush(report.author)  # the newer one may be a forgery: both are sent
        reports.newest[member] = new
        reports.unsent[member] = None
        self._schedule(report.author, reports)

    def _admit(self, reports: _AuthorReports, member: PeerId) -> bool:
        """Whether there is room for the first report of a member. Any number of members can be invented."""
        get = self._peer.roster.get
        if get(member) is None:
            if len(reports.unlisted) >= UNLISTED_REPORTS_MAX:
                reports.unlisted = {each: None for each in reports.unlisted if get(each) is None}
            if len(reports.unlisted) >= UNLISTED_REPORTS_MAX:
                return False
            reports.unlisted[member] = None
        return True

    def _is_valid(self, member: PeerId, kept: _Kept) -> bool:
        return self._peer.roster.is_signed_by(member, REPORT_PURPOSE, kept.signed.report, kept.signed.signature)

    # -- sending

    def _used(self, author: PeerId) -> _AuthorReports:
        now = self._peer.runtime.now()
        reports = self._authors.pop(author, None)
        if reports is None:
            reports = _AuthorReports(now)
            if len(self._authors) >= max(AUTHORS_MIN, self._peer.roster.size):
                self._forget(next(iter(self._authors)))
        self._authors[author] = reports
        reports.used_at = now
        return reports

    def _forget(self, author: PeerId) -> None:
        if self._authors[author].timer is not None:
            self._flush(author)
        del self._authors[author]

    def _schedule(self, author: PeerId, reports: _AuthorReports) -> None:
        if reports.timer is None:
            now = self._peer.runtime.now()
            pace_s = self._peer.roster.size * REPORT_COST_S if not reports.unsent else 0.0
            delay_s = max(GATHER_S, reports.reported_at + pace_s - now)
            reports.timer = self._peer.runtime.call_later(delay_s, self._flush, author)

    def _flush(self, author: PeerId) -> None:
        reports = self._authors[author]
        if reports.timer is not None:
            reports.timer.cancel()
            reports.timer = None
        # If the link toward the author is down, send to all neighbors.
        targets = [reports.source] if self._has_return_link(reports) else list(self._peer.links)
        if not targets or not self._peer.is_present:
            return  # the next link sends everything (`on_links_changed`)
        signed = [reports.newest[each].signed for each in reports.unsent]
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
        expiry_s = self._peer.settings.retention_s
        for author in [each for each, reports in self._authors.items() if now - reports.used_at > expiry_s]:
            self._forget(author)
