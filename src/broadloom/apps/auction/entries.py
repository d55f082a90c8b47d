"""What iterating over a room gives: the entries of the list that had an effect, the same everywhere."""

from dataclasses import dataclass
from decimal import Decimal

from broadloom.apps.auction.lot import Lot


@dataclass(frozen=True, slots=True)
class Opened:
    """A lot can be bid for."""

    number: int
    lot: str
    terms: Lot


@dataclass(frozen=True, slots=True)
class Bid:
    """A bid was accepted."""

    number: int
    lot: str
    bidder: str
    amount: Decimal | None
    """None while it is sealed."""


@dataclass(frozen=True, slots=True)
class Extended:
    """A bid came after "going": the calls begin again."""

    number: int
    lot: str


@dataclass(frozen=True, slots=True)
class Going:
    """Going once, going twice."""

    number: int
    lot: str
    call: int


@dataclass(frozen=True, slots=True)
class Lowered:
    """Dutch: the price has fallen."""

    number: int
    lot: str
    price: Decimal


@dataclass(frozen=True, slots=True)
class Unsealed:
    """Sealed kinds: bidding has ended, and bidders reveal their bids."""

    number: int
    lot: str


@dataclass(frozen=True, slots=True)
class Revealed:
    number: int
    lot: str
    bidder: str
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Sold:
    number: int
    lot: str
    winner: str
    price: Decimal


@dataclass(frozen=True, slots=True)
class Unsold:
    number: int
    lot: str
    reason: str


AuctionEntry = Opened | Bid | Extended | Going | Lowered | Unsealed | Revealed | Sold | Unsold
