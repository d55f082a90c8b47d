"""Anti-entropy between tables: late joiners, members that missed something, and the two sides of a partition.

Members broadcast a digest of their table now and then: one member at a time, because everyone whose table is the same
is satisfied with that one. A member that hears another digest than its own does two things, after a random delay: it
broadcasts its own, unless somebody else has done so, and it pulls from the author what it does not have. So nobody has
to push, and both sides of a partition learn from each other.

A newcomer pulls the whole table from one member before its program can use mailboxes: from a keeper if there is one.
"""

from typing import TYPE_CHECKING

from broadloom.errors import RefusedError
from broadloom.mailboxes.limits import (
    BUCKETS,
    CREDENTIALS_MAX,
    SYNC_PAGE_BYTES,
    SYNC_PAGES_BURST,
    SYNC_PAGES_PER_S,
)
from broadloom.mailboxes.messages import Digest, MailboxWireMessage, Page, PageRequest, decode, encode
from broadloom.mailboxes.table import Slot, slot_of
from broadloom.mailboxes.vouching import Vouching
from broadloom.wire.xdr import WireError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broadloom.mailboxes.post_office import PostOffice
    from broadloom.mailboxes.record import Record
    from broadloom.mailboxes.runtime import Answer
    from broadloom.protocol.runtime import Timer
    from broadloom.wire import PeerId

FIRST_SOURCES_MAX = 4
"""Members that a newcomer asks before it goes on with what it has."""
RECORD_OVERHEAD_BYTES = 64
PAGES_MAX = 4096
"""Pages of one member in a row; a member that sends more is not asked further."""
PULL_PAUSE_S = 1.0
"""Least time between two pulls from the same member, doubled up to a minute if they bring nothing."""
PULL_PAUSE_MAX_S = 60.0
REFUSED_PAUSE_S = 0.25
REFUSED_MAX = 40
"""A newcomer that a member refuses a page, because it has sent many, goes on after this time, this often in a row."""


def with_credentials(records: "Sequence[Record]") -> tuple[tuple[tuple["Record", int], ...], tuple[bytes, ...]]:
    """Records and their certificates, as in a message."""
    numbers: dict[bytes, int] = {}
    numbered = tuple(
        (each, numbers.setdefault(each.credential, len(numbers) + 1) if each.credential else 0) for each in records
    )
    return numbered, tuple(numbers)


def without_credentials(records: "Sequence[tuple[Record, int]]", credentials: "Sequence[bytes]") -> "list[Record]":
    """The reverse. Raises `WireError`."""
    found = []
    for record, number in records:
        if number > len(credentials):
            raise WireError("a record refers to a certificate that is not there")
        found.append(record._replace(credential=credentials[number - 1]) if number else record)
    return found


class AntiEntropy:
    def __init__(self, office: "PostOffice") -> None:
        self._office = office
        self._runtime = office.runtime
        self._settings = office.settings
        self.is_synced = False
        """Whether the first pull has ended."""
        self._last_sent = 0, -1e9
        """Our last digest, and when it was broadcast."""
        self._timer: Timer | None = None
        self._digest_due: Timer | None = None
        self._pull_due: Timer | None = None
        self._pull_from: PeerId | None = None
        self._has_waited = False
        """The last pull was left out, because values were on their way."""
        self._asked: list[PeerId] = []
        """Members that were asked by this newcomer."""
        self._pages = 0
        self._refused_count = 0
        self._page_due: Timer | None = None
        self._pauses: dict[PeerId, tuple[float, float]] = {}
        """Per member: when it may be pulled from again, and the pause after that."""
        self._served: dict[PeerId, tuple[float, float]] = {}
        """Per member: pages that it may still get, and since when."""
        self.vouching = Vouching(office)

    # -- the newcomer

    def start(self) -> None:
        """Called when the roster is complete."""
        self._ask_next()

    def _ask_next(self) -> None:
        keepers = [each for each in self._runtime.keepers() if each not in self._asked]
        others = [each for each in self._runtime.peers() if each not in self._asked]
        if len(self._asked) >= FIRST_SOURCES_MAX or not (keepers or others):
            self._finish_first()
            return
        source = self._runtime.random.choice(keepers or others)
        self._asked.append(source)
        self._pages = 0
        self._request_page(source, 0, ("", "", 0))

    def _finish_first(self) -> None:
        if not self.is_synced:
            self.is_synced = True
            self._office.on_synced()
        self.broadcast_digest()

    # -- digests

    def broadcast_digest(self) -> None:
        if self._digest_due is not None:
            self._digest_due.cancel()
            self._digest_due = None
        digest = self._office.table.digest
        self._last_sent = digest, self._runtime.now()
        self._runtime.broadcast(encode(Digest(digest)))
        self._restart_timer()

    def announce_soon(self) -> None:
        """Something may have been missed, or two parts of the channel have found each other."""
        if self.is_synced and self._digest_due is None and not self._was_just_sent():
            self._digest_due = self._runtime.call_later(self._delay_s(), self._on_digest_due)

    def _on_digest_due(self) -> None:
        self._digest_due = None
        if not self._was_just_sent():
            self.broadcast_digest()

    def _was_just_sent(self) -> bool:
        """Two members whose tables cannot become equal do not answer each other forever."""
        digest, at_s = self._last_sent
        return digest == self._office.table.digest and self._runtime.now() < at_s + self._settings.digest_interval_s / 2

    def _restart_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_s = self._settings.digest_interval_s * (1 + self._runtime.random.random())
        self._timer = self._runtime.call_later(delay_s, self._on_interval)

    def _on_interval(self) -> None:
        self._office.purge()
        now = self._runtime.now()
        self._pauses = {peer: pause for peer, pause in self._pauses.items() if pause[0] + PULL_PAUSE_MAX_S > now}
        self._served = {peer: served for peer, served in self._served.items() if self._runtime.is_member(peer)}
        self.broadcast_digest()

    def _delay_s(self) -> float:
        scale = max(1.0, len(self._runtime.peers()) / 16)
        return self._runtime.random.random() * self._settings.digest_reply_s * scale

    def on_digest(self, author: "PeerId", message: Digest) -> None:
        if not self.is_synced:
            return
        if message.digest == self._office.table.digest:
            if self._digest_due is not None:
                self._digest_due.cancel()
                self._digest_due = None
            self._restart_timer()
            return
        self.announce_soon()
        if self._pull_due is None and self._pull_from is None and self._may_pull(author):
            digests = message.digest, self._office.table.digest
            self._pull_due = self._runtime.call_later(self._delay_s(), self._pull, author, digests)

    def _may_pull(self, author: "PeerId") -> bool:
        return self._pauses.get(author, (0.0, 0.0))[0] <= self._runtime.now()

    def _pull(self, author: "PeerId", digests: tuple[int, int]) -> None:
        """`digests`: the author's, and ours at that time."""
        self._pull_due = None
        current = self._office.table.digest
        if current == digests[0] or not self._runtime.is_member(author):
            return
        if current != digests[1] and not self._has_waited:
            self._has_waited = True  # values are on their way: another digest shows whether some are missing
            self.announce_soon()
        else:
            self._has_waited = False
            self._pages = 0
            self._request_page(author, 0, ("", "", 0))

    # -- pulling

    def _request_page(self, source: "PeerId", bucket: int, after: Slot) -> None:
        self._pull_from = source
        self._pages += 1
        request = encode(PageRequest(tuple(self._office.table.hashes), bucket, *after))
        self._runtime.request(
            source, request, self._settings.sync_timeout_s, lambda answer: self._on_page(source, bucket, after, answer)
        )

    def _on_page(self, source: "PeerId", bucket: int, after: Slot, answer: "Answer") -> None:
        if self._pull_from != source:
            return
        page: MailboxWireMessage | None = None
        records: list[Record] = []
        if answer.error is None:
            try:
                page = decode(answer.data)
                if isinstance(page, Page):
                    records = without_credentials(page.records, page.credentials)
            except WireError:
                page = None
        if not isinstance(page, Page):
            is_refused = isinstance(answer.error, RefusedError) and self._pages > 1
            if not self.is_synced and is_refused and self._refused_count < REFUSED_MAX:
                self._refused_count += 1
                self._page_due = self._runtime.call_later(REFUSED_PAUSE_S, self._request_page, source, bucket, after)
                return
            self._pull_from = None
            self._pause(source, is_useful=False)
            if not self.is_synced:
                if self._pages > 1:  # it has sent some, and is only slow: what it sent is not sent again
                    self._asked.remove(source)
                self._ask_next()
            return
        self._refused_count = 0
        new = [each for each in records if not self._office.table.outranks(each)]
        self.vouching.check(source, new, lambda proven, rest: self._on_checked(source, bucket, page, proven, rest))

    def _on_checked(
        self, source: "PeerId", bucket: int, page: Page, proven: "list[Record]", rest: "list[Record]"
    ) -> None:
        self._pull_from = None
        new = self._office.on_records(source, proven, are_proven=True) + self._office.on_records(source, rest)
        if bucket <= page.next_bucket < BUCKETS and self._pages < PAGES_MAX:
            after = page.after_owner, page.after_name, page.after_writer
            self._request_page(source, page.next_bucket, after)
            return
        self._pause(source, is_useful=new > 0)
        if not self.is_synced:
            if page.is_synced:
                self._finish_first()
            else:
                self._ask_next()

    def _pause(self, source: "PeerId", *, is_useful: bool) -> None:
        last_s = self._pauses.get(source, (0.0, 0.0))[1]
        pause_s = PULL_PAUSE_S if is_useful else min(PULL_PAUSE_MAX_S, max(PULL_PAUSE_S, 2 * last_s))
        self._pauses[source] = self._runtime.now() + (0.0 if is_useful else pause_s), pause_s

    # -- serving

    def on_page_request(self, peer_id: "PeerId", message: PageRequest) -> Page | None:
        """The next page for this member; None if it gets too many."""
        if not self.may_serve(peer_id) or len(message.hashes) != BUCKETS:
            return None
        table = self._office.table
        records: list[Record] = []
        credentials: dict[bytes, None] = {}
        size = last_bucket = 0
        after = message.after_owner, message.after_name, message.after_writer
        for bucket in range(message.first_bucket, BUCKETS):
            is_resumed = bucket == message.first_bucket and after != ("", "", 0)
            if table.hashes[bucket] == message.hashes[bucket] and not is_resumed:
                continue
            for record in table.bucket(bucket):
                if is_resumed and slot_of(record) <= after:
                    continue
                if size >= SYNC_PAGE_BYTES // 2 or len(credentials) == CREDENTIALS_MAX:
                    owner, name, writer = slot_of(records[-1])
                    return Page(*with_credentials(records), self.is_synced, last_bucket, owner, name, writer)
                records.append(record)
                last_bucket = bucket
                if record.credential:
                    credentials[record.credential] = None
                size += len(record.data) + len(record.proof) + RECORD_OVERHEAD_BYTES + len(record.name)
        return Page(*with_credentials(records), self.is_synced, BUCKETS, "", "", 0)

    def may_serve(self, peer_id: "PeerId") -> bool:
        now = self._runtime.now()
        tokens, since = self._served.get(peer_id, (float(SYNC_PAGES_BURST), now))
        tokens = min(SYNC_PAGES_BURST, tokens + (now - since) * SYNC_PAGES_PER_S)
        is_served = tokens >= 1
        self._served[peer_id] = tokens - is_served, now
        return is_served

    def close(self) -> None:
        for timer in (self._timer, self._digest_due, self._pull_due, self._page_due):
            if timer is not None:
                timer.cancel()
