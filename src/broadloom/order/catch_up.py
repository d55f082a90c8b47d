"""`CatchUp`: fetching what another member's log has and ours lacks, page by page; and the pages for others.

Nothing changes here until all pages have come: a log is replaced as a whole or not at all, so what a member has always
belongs to one epoch.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from broadloom.order.codec import decode, encode
from broadloom.order.log import EpochStart, InvalidLogError, LogEntry, OrderLog, fork_index, next_chain
from broadloom.order.messages import Fetch, LastNumber, Page
from broadloom.order.model import Epoch
from broadloom.order.settings import PAGE_BYTES, PAGE_ENTRIES_MAX
from broadloom.protocol.requests.outgoing import OutcomeKind
from broadloom.wire import PeerId
from broadloom.wire.xdr import WireError

if TYPE_CHECKING:
    from broadloom.order.replica import Replica

FETCH_TIMEOUT_S = 3.0
LIMIT = 2
"""A log that is fetched may exceed the limits of ours this many times. Another member does not fill our memory."""
RESTARTS_MAX = 3
"""The other log may change between two pages."""


class FetchedLog(NamedTuple):
    """Another member's log, as a change of ours."""

    source: PeerId
    lineage: tuple[EpochStart, ...]
    fork: int
    """The last index that both have."""
    entries: list[LogEntry]
    committed: int
    enrolled: tuple[int, ...]
    chain: bytes
    """The hash chain after the last entry."""
    snapshot: dict[PeerId, int] | None = None
    """If the two logs have no place in common: the last submission numbers before the first entry."""
    chain_before: bytes = b""

    @property
    def epoch(self) -> Epoch:
        return self.lineage[-1].epoch

    @property
    def end(self) -> int:
        return self.fork + len(self.entries)


class CatchUp:
    """At most one fetch at a time. A new one replaces it."""

    def __init__(self, replica: "Replica") -> None:
        self._replica = replica
        self._round = 0
        self.source: PeerId | None = None
        self._on_done: Callable[[FetchedLog | None], None]
        self._fetched: FetchedLog | None = None
        self._fetched_bytes = 0
        self._restarts = 0

    @property
    def is_running(self) -> bool:
        return self.source is not None

    def start(self, source: PeerId, on_done: Callable[[FetchedLog | None], None]) -> None:
        """Fetch from this member; the result is None if it fails."""
        self.source, self._on_done = source, on_done
        self._restarts = 0
        self._begin()

    def cancel(self) -> None:
        self.source = None
        self._fetched = None
        self._round += 1

    def _begin(self, *, is_snapshot: bool = False) -> None:
        log = self._replica.log
        self._fetched = None
        self._fetched_bytes = 0
        self._send(Fetch(self._replica.id, () if is_snapshot else log.lineage, 0 if is_snapshot else log.end, 0))

    def _send(self, fetch: Fetch) -> None:
        assert self.source is not None
        self._round += 1
        this_round = self._round
        self._replica.runtime.request(
            self.source,
            encode(fetch),
            FETCH_TIMEOUT_S,
            lambda kind, data: self._on_outcome(kind, data) if this_round == self._round else None,
        )

    def _on_outcome(self, kind: OutcomeKind, data: bytes) -> None:
        try:
            page = decode(data) if kind is OutcomeKind.REPLIED and data else None
        except WireError:
            page = None
        if not isinstance(page, Page) or page.conversation != self._replica.id or not page.lineage:
            self._end(None)
            return
        fetched = self._fetched
        if fetched is None:
            fetched = self._first(page)
        elif (
            page.first_index != fetched.end + 1 or page.chain_before != fetched.chain or page.lineage != fetched.lineage
        ):
            fetched = None
        if fetched is None:
            self._restarts += 1
            if self._restarts > RESTARTS_MAX:
                self._end(None)
            else:
                self._begin(is_snapshot=self._restarts == RESTARTS_MAX)
            return
        chain = fetched.chain
        for entry in page.entries:
            chain = next_chain(chain, entry)
        fetched.entries.extend(page.entries)
        self._fetched_bytes += sum(len(entry.data) for entry in page.entries)
        settings = self._replica.settings
        if (
            len(fetched.entries) > LIMIT * settings.log_entries_max
            or self._fetched_bytes > LIMIT * settings.log_bytes_max
        ):
            self._end(None)
            return
        self._fetched = fetched = fetched._replace(chain=chain, committed=page.committed, enrolled=page.enrolled)
        if fetched.end < page.end and page.entries:
            self._send(Fetch(self._replica.id, (), 0, fetched.end + 1))
        else:
            self._end(fetched)

    def _first(self, page: Page) -> FetchedLog | None:
        assert self.source is not None
        log, fork = self._replica.log, page.first_index - 1
        snapshot = None
        if page.is_snapshot or not page.lineage:
            snapshot = {each.author: each.number for each in page.last_numbers}
        elif log.chain_at(fork) != page.chain_before:
            return None
        return FetchedLog(
            self.source, page.lineage, fork, [], page.committed, page.enrolled, page.chain_before, snapshot,
            page.chain_before,
        )  # fmt: skip

    def _end(self, fetched: FetchedLog | None) -> None:
        on_done = self._on_done
        self.cancel()
        if fetched is not None and not is_valid(self._replica.log, fetched):
            fetched = None
        on_done(fetched)


def is_valid(log: OrderLog, fetched: FetchedLog) -> bool:
    """Whether the numbers of each author are consecutive."""
    try:
        if fetched.snapshot is None:
            log.check(fetched.entries, fetched.fork)
        else:
            fresh = OrderLog(1, 1)
            fresh.restart(fetched.fork, fetched.chain_before, fetched.snapshot)
            fresh.check(fetched.entries)
    except InvalidLogError:
        return False
    return True


def make_page(conversation: int, log: OrderLog, fetch: Fetch, committed: int, enrolled: tuple[int, ...]) -> Page | None:
    """The reply to a `Fetch`; None if we have no log."""
    if not log.lineage:
        return None
    first = fetch.from_index or fork_index(fetch.lineage, fetch.end, log.lineage, log.end) + 1
    is_snapshot = not fetch.from_index and first <= log.base
    first = min(max(first, log.base + 1), log.end + 1)
    chain = log.chain_at(first - 1)
    assert chain is not None
    numbers = log.last_numbers_at(first - 1) if is_snapshot else {}
    return Page(
        conversation,
        log.lineage,
        first,
        chain,
        log.slice(first, PAGE_BYTES, PAGE_ENTRIES_MAX),
        log.end,
        committed,
        is_snapshot,
        tuple(LastNumber(author, number) for author, number in numbers.items()),
        enrolled,
    )
