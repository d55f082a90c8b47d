"""A ledger for tests, driven by hand: members say something, and it is applied at once."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from broadloom.apps.auction import AuctionEntry, AuctionError, Kind, Lot
from broadloom.apps.auction.ledger import Ledger
from broadloom.apps.auction.sealed import commitment
from broadloom.apps.auction.statements import Action, Signer, Statement, Verify, signed
from tests.apps.auction.sim_signer import SimSigner, verify

AUCTION = "auction/by-hand"
NOTARIES = ("notary-1", "notary-2", "notary-3")
SALT = "5a" * 32
AT_MS = int((datetime.now(UTC) + timedelta(hours=1)).timestamp() * 1000)
"""After all tickets are issued, however long the collection of tests takes."""


class HandLedger(Ledger):
    def __init__(self, auction: str = AUCTION, verify: Verify = verify) -> None:
        super().__init__(auction, NOTARIES, verify)
        self._ids = 0

    def entry(self, author: str | Signer, action: Action, lot: str = "lot-1", **fields: Any) -> bytes:
        self._ids += 1
        statement = Statement(action=action, id=f"{self._ids:032x}", at_ms=AT_MS, lot=lot, **fields)
        return signed(statement, SimSigner(author) if isinstance(author, str) else author)

    def add(self, data: bytes) -> list[AuctionEntry]:
        """Apply an entry. Raises the `AuctionError` for which it has no effect."""
        found = self.apply(self.number + 1, data)
        outcome = self.by_number.get(self.number)
        if outcome is not None and outcome.error is not None:
            raise outcome.error
        return found

    def say(self, author: str | Signer, action: Action, lot: str = "lot-1", **fields: Any) -> list[AuctionEntry]:
        return self.add(self.entry(author, action, lot, **fields))

    def open(self, kind: str, lot: str = "lot-1", seller: str | Signer = "sam", **terms: Any) -> None:
        values: dict[str, Any] = {"start": 10, "step": "2.50", "end": datetime.now(UTC), **terms}
        opened = Lot(id=lot, kind=Kind(kind), **values)
        self.say(seller, Action.OPEN, lot, terms=opened.as_dict())

    def bid(self, author: str | Signer, amount: int | str, lot: str = "lot-1") -> list[AuctionEntry]:
        return self.say(author, Action.BID, lot, amount=amount)

    def seal(self, author: str, amount: int, lot: str = "lot-1", salt: str = SALT) -> list[AuctionEntry]:
        return self.say(
            author, Action.BID, lot, commitment=commitment(self.auction, lot, author, Decimal(amount), salt)
        )

    def reveal(self, author: str, amount: int, lot: str = "lot-1", salt: str = SALT) -> list[AuctionEntry]:
        return self.say(author, Action.REVEAL, lot, amount=amount, salt=salt)

    def call(
        self, action: Action, lot: str = "lot-1", notary: str | Signer = "notary-1", after: int | None = None
    ) -> list[AuctionEntry]:
        after = self.number if after is None else after
        return self.say(notary, action, lot, after=after, chain=self.chain_at(after))

    def close(self, lot: str = "lot-1", notary: str | Signer = "notary-1") -> AuctionEntry:
        """Call until the lot is over."""
        while True:
            found = self.call(self.sale(lot).possible_calls[0], lot, notary)
            if self.sale(lot).is_over:
                return found[-1]


def refused(ledger: HandLedger, data: bytes) -> AuctionError | None:
    try:
        ledger.add(data)
    except AuctionError as problem:
        return problem
    return None
