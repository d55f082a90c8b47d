"""`Receipt`: an auctioneer's signature for an accepted bid. The list is final, so the bid stays in it. With a log, a
receipt proves that the log has this bid at this place."""

import base64
import json
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from typing import Any, NamedTuple

from broadloom.apps.auction.errors import AlteredLogError, InvalidError
from broadloom.apps.auction.ledger import Ledger
from broadloom.apps.auction.lot import amount_text
from broadloom.apps.auction.statements import Action, Signer

RECEIPT_PREFIX = b"receipt\0"
BYTES_MAX = 16_384
_PROOF = ("signature", "credential")


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    auction: str
    number: int
    """The place of the bid in the list."""
    chain: str
    """The hash chain up to there."""
    lot: str
    bidder: str
    amount: str
    """Empty for a sealed bid."""
    auctioneer: str
    at_ms: int
    signature: str = ""
    credential: str = ""

    @classmethod
    def of(cls, ledger: Ledger, number: int, signer: Signer, at_ms: int) -> "Receipt":
        """Raises `InvalidError` if there is no accepted bid with this number."""
        bid = checked_bid(ledger, number)
        receipt = cls(
            auction=ledger.auction,
            number=number,
            chain=ledger.chain_at(number),
            lot=bid.lot,
            bidder=bid.bidder,
            amount=bid.amount,
            auctioneer=signer.name,
            at_ms=at_ms,
        )
        proof = (signer.sign(receipt._signed_data()), signer.credential)
        return cls(**{**asdict(receipt), **dict(zip(_PROOF, (_base64(each) for each in proof), strict=True))})

    def check(self, ledger: Ledger) -> None:
        """Raises `AlteredLogError` if it is not signed by a notary, if the list is not the one that was signed, or if
        that list has another bid at this place."""
        try:
            credential, signature = (
                base64.b64decode(each, validate=True) for each in (self.credential, self.signature)
            )
        except ValueError:
            raise AlteredLogError("the receipt is damaged: use the original file") from None
        name = ledger.verify(credential, self._signed_data(), signature, self.at_ms)
        if name is None or name != self.auctioneer or name not in ledger.notaries or self.auction != ledger.auction:
            raise AlteredLogError(f"the receipt is not signed by a notary of {ledger.auction}")
        if ledger.chain_at(self.number) != self.chain:
            raise AlteredLogError(
                f"the log does not have the bid of {self.bidder} for {self.lot} as entry {self.number}, for which "
                f"{self.auctioneer} has signed: get the log from another member"
            )
        if _bid_at(ledger, self.number) != (self.lot, self.bidder, self.amount):
            raise AlteredLogError(
                f"{self.auctioneer} has signed a receipt that is not true: entry {self.number} of {ledger.auction} is "
                f"not this bid of {self.bidder} for {self.lot}"
            )

    def _signed_data(self) -> bytes:
        values = {name: value for name, value in asdict(self).items() if name not in _PROOF}
        return RECEIPT_PREFIX + sha256(json.dumps(values, sort_keys=True).encode()).digest()

    def encode(self) -> bytes:
        return json.dumps(asdict(self), ensure_ascii=False).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Receipt":
        """Raises `ValueError`."""
        try:
            values: dict[str, Any] = json.loads(data) if len(data) <= BYTES_MAX else {}
            kinds = {each.name: int if each.name in ("number", "at_ms") else str for each in fields(cls)}
            if not all(isinstance(values[name], kind) for name, kind in kinds.items()):
                raise ValueError("not a receipt")
            return cls(**values)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
            raise ValueError("not a receipt") from None


class _ReceiptFields(NamedTuple):
    lot: str
    bidder: str
    amount: str


def checked_bid(ledger: Ledger, number: int) -> _ReceiptFields:
    """Raises `InvalidError` if this entry is not an accepted bid."""
    bid = _bid_at(ledger, number)
    if bid is None:
        raise InvalidError(f"entry {number} of {ledger.auction} is not an accepted bid")
    return bid


def _bid_at(ledger: Ledger, number: int) -> _ReceiptFields | None:
    """None if this entry is not an accepted bid."""
    outcome = ledger.by_number.get(number)
    if outcome is None or outcome.signed.statement.action is not Action.BID or outcome.error is not None:
        return None
    author, statement = outcome.signed
    amount = ledger.sale(statement.lot).bids[number].amount if statement.amount is not None else None
    return _ReceiptFields(statement.lot, author, amount_text(amount) if amount is not None else "")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
