"""`Ledger`: the list of an auction. Entries are applied in the agreed order, with the same result everywhere.

Pure: no clock, no IO. The hash chain covers every entry, also those without effect. A call of an auctioneer names the
last entry that it had seen and the chain up to there, which has two effects:

- A call has no effect if the lot has changed since. So "gone" cannot overlook a bid, two auctioneers that call at the
  same time count as one, and a late call of one that was cut off does no harm.
- Every call signs the whole list before it. Nobody can leave out, insert or move an entry before "gone" without the
  signature of an auctioneer.
"""

from collections.abc import Sequence
from decimal import Decimal
from hashlib import sha256
from typing import NamedTuple

from broadloom.apps.auction.entries import AuctionEntry, Opened
from broadloom.apps.auction.errors import AuctionError, ClosedError, InvalidError, NoLotError, NotQualifiedError
from broadloom.apps.auction.lot import Lot
from broadloom.apps.auction.sale import Sale
from broadloom.apps.auction.statements import Action, SignedStatement, Statement, Verify, verified
from broadloom.order.settings import VOTERS

ENTRIES_MAX = 60_000
"""Later entries have no effect, apart from calls and reveals, so that open lots are still sold."""
CALLS_RESERVED_MAX = ENTRIES_MAX
"""Calls that the lots that are not over may need together. A lot for which they would not suffice is not opened."""
ENTRIES_KEPT = 2 * ENTRIES_MAX + CALLS_RESERVED_MAX
"""What the order keeps for newcomers: entries, a reveal for each sealed bid among them, and calls."""
LOTS_MAX = 5_000
CHAIN_PREFIX = b"broadloom auction\0"


def notary_names(notaries: int | Sequence[str]) -> tuple[str, ...]:
    """The names on the tickets of the notaries: by default notary-1, notary-2, notary-3. Raises `ValueError`."""
    numbers = range(1, notaries + 1) if isinstance(notaries, int) else ()
    names = tuple(f"notary-{number}" for number in numbers) or tuple(sorted(notaries))  # type: ignore[arg-type]
    if len(set(names)) not in VOTERS:
        raise ValueError(f"notaries={notaries!r}: an auction has {', '.join(map(str, VOTERS))} of them")
    return names


class Record(NamedTuple):
    """One entry as it was ordered."""

    number: int
    data: bytes


class Outcome(NamedTuple):
    """What became of a statement."""

    number: int
    signed: SignedStatement
    error: AuctionError | None
    """Why it had no effect."""


class Ledger:
    def __init__(self, auction: str, notaries: Sequence[str], verify: Verify) -> None:
        self.auction = auction
        self.notaries = tuple(notaries)
        self.verify = verify
        self.records: list[Record] = []
        self.sales: dict[str, Sale] = {}
        self.outcomes: dict[tuple[str, str], Outcome] = {}
        """By author and id of the statement. The first one with an id counts."""
        self.by_number: dict[int, Outcome] = {}
        self._calls_reserved = 0
        """Calls that the lots that are not over may need."""
        self.contradictions: list[int] = []
        """Calls that name another chain than ours. There are none unless a log was altered, or a notary lies."""
        self._signed: dict[str, int] = {}
        """By notary: the last entry up to which its calls have named our chain."""
        self.chain = sha256(CHAIN_PREFIX + "\0".join((auction, *self.notaries)).encode()).digest()
        self._chains = {0: self.chain}

    @property
    def number(self) -> int:
        """The number of the last entry."""
        return self.records[-1].number if self.records else 0

    @property
    def signed_up_to(self) -> int:
        """The last entry that a call of a notary covers. What follows may be incomplete."""
        return max(self._signed.values(), default=0)

    @property
    def disputed(self) -> Outcome | None:
        """The first call that names another chain, unless another notary has signed our list beyond that call: then the
        author of the call lies."""
        for number in self.contradictions:
            outcome = self.by_number[number]
            author = outcome.signed.author
            if not any(signed >= number for notary, signed in self._signed.items() if notary != author):
                return outcome
        return None

    def chain_at(self, number: int) -> str:
        """The hash chain up to this entry; empty if there is none with this number."""
        return self._chains.get(number, b"").hex()

    def sale(self, lot: str) -> Sale:
        """Raises `NoLotError`."""
        if lot not in self.sales:
            raise NoLotError(f"{self.auction} has no lot {lot}; `broadloom auction list` shows all")
        return self.sales[lot]

    def apply(self, number: int, data: bytes) -> list[AuctionEntry]:
        """The effects of the next entry; none if the rules refuse it."""
        if number <= self.number:
            raise ValueError(f"entry {number} after entry {self.number}")
        self.records.append(Record(number, data))
        self.chain = sha256(self.chain + number.to_bytes(8, "big") + sha256(data).digest()).digest()
        self._chains[number] = self.chain
        signed = verified(data, self.verify)
        if signed is None or (signed.author, signed.statement.id) in self.outcomes:
            return []
        found: list[AuctionEntry] = []
        error = None
        try:
            found = self._apply(number, signed)
            sale = self.sales[signed.statement.lot]
            sale.changed_at = number
            if sale.is_over:  # nothing has an effect on it any more, so this was the last time
                self._calls_reserved -= sale.calls_max
        except AuctionError as problem:
            error = problem
        outcome = Outcome(number, signed, error)
        self.outcomes[signed.author, signed.statement.id] = self.by_number[number] = outcome
        return found

    def _apply(self, number: int, signed: SignedStatement) -> list[AuctionEntry]:
        author, statement = signed
        if statement.action.is_call:
            return self._call(number, author, statement)
        if number > ENTRIES_MAX and statement.action is not Action.REVEAL:
            raise ClosedError(f"the list is full: after {ENTRIES_MAX:,} entries only lots that are open are sold")
        if author in self.notaries:
            raise NotQualifiedError(f"{author} is a notary, and neither sells nor bids")
        match statement.action:
            case Action.OPEN:
                return self._open(number, author, statement)
            case Action.BID:
                return self.sale(statement.lot).bid(number, author, statement)
            case Action.REVEAL:
                return self.sale(statement.lot).reveal(number, author, statement)
        return self.sale(statement.lot).withdraw(number, author)

    def _open(self, number: int, author: str, statement: Statement) -> list[AuctionEntry]:
        if statement.lot in self.sales or len(self.sales) >= LOTS_MAX:
            raise InvalidError(f"there is already a lot {statement.lot}, or there are too many: choose another id")
        try:
            lot = Lot.parse(statement.terms, author)
        except ValueError as problem:
            raise InvalidError(str(problem)) from None
        if lot.id != statement.lot:
            raise InvalidError("the terms are those of another lot")
        sale = Sale(self.auction, lot, number)
        if self._calls_reserved + sale.calls_max > CALLS_RESERVED_MAX:
            raise ClosedError(
                f"{lot.id} may need {sale.calls_max:,} calls, and the lots that are open leave "
                f"{CALLS_RESERVED_MAX - self._calls_reserved:,}: open it when some of them are sold"
            )
        self._calls_reserved += sale.calls_max
        self.sales[lot.id] = sale
        return [Opened(number, lot.id, lot)]

    def _call(self, number: int, author: str, statement: Statement) -> list[AuctionEntry]:
        if author not in self.notaries:
            raise NotQualifiedError(f"{author} is not a notary")
        if self.chain_at(statement.after) != statement.chain or statement.after >= number:
            self.contradictions.append(number)
            raise InvalidError(f"{author} signed another list than this one, up to entry {statement.after}")
        self._signed[author] = max(statement.after, self._signed.get(author, 0))
        sale = self.sale(statement.lot)
        if sale.changed_at > statement.after:
            raise ClosedError(f"{statement.lot} has changed since {author} looked at it")
        return sale.call(number, statement.action)

    def results(self) -> dict[str, tuple[str, Decimal | None]]:
        """Winner and price of each lot that is over; no winner and no price if it is unsold."""
        return {lot: (sale.winner, sale.price) for lot, sale in self.sales.items() if sale.is_over}
