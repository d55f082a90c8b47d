"""`Sale`: one lot and its bids. The rules of the four kinds are here and nowhere else.

Pure: the result depends only on the order in which entries are applied. An entry that the rules refuse raises an
`AuctionError` and changes nothing.
"""

from decimal import Decimal
from enum import StrEnum
from typing import NamedTuple

from broadloom.apps.auction.entries import AuctionEntry, Bid, Extended, Going, Lowered, Revealed, Sold, Unsealed, Unsold
from broadloom.apps.auction.errors import ClosedError, InvalidError, NotQualifiedError, TooLowError
from broadloom.apps.auction.lot import EXACT, Kind, Lot, amount_text
from broadloom.apps.auction.sealed import commitment
from broadloom.apps.auction.statements import Action, Statement

CALLS = 2
"""Going once, going twice."""


class Phase(StrEnum):
    OPEN = "open"
    TAKEN = "taken"
    """Dutch: somebody has bid, and the auctioneer has not confirmed it yet."""
    REVEAL = "reveal"
    SOLD = "sold"
    UNSOLD = "unsold"


class AcceptedBid(NamedTuple):
    """An accepted bid."""

    number: int
    bidder: str
    amount: Decimal | None
    """None while it is sealed, and forever if it is not revealed: then it is forfeited."""
    commitment: str = ""


class Sale:
    def __init__(self, auction: str, lot: Lot, number: int) -> None:
        self._auction = auction
        self.lot = lot
        self.phase = Phase.OPEN
        self.calls = 0
        self.lowered = 0
        self.bids: dict[int, AcceptedBid] = {}
        """By number, in their order."""
        self.changed_at = number
        """Number of the last entry that had an effect."""
        self.winner = ""
        self.price: Decimal | None = None
        """What the winner pays."""
        self.reason = ""
        """Why it is unsold."""

    @property
    def is_over(self) -> bool:
        return self.phase in (Phase.SOLD, Phase.UNSOLD)

    @property
    def calls_max(self) -> int:
        """Calls that it needs at most, if no bid comes in between."""
        if self.lot.kind is Kind.DUTCH:
            return self.lot.calls_down + 1
        return 2 if self.lot.kind.is_sealed else CALLS + 1

    @property
    def leader(self) -> AcceptedBid | None:
        """The highest bid that is known; of equal ones the earlier."""
        if not self.lot.kind.is_sealed:
            return next(reversed(self.bids.values()), None)
        known = [each for each in self.bids.values() if each.amount is not None]
        return max(known, key=lambda each: (each.amount, -each.number)) if known else None

    @property
    def minimum_bid(self) -> Decimal:
        """The lowest amount that is accepted now."""
        lot, leader = self.lot, self.leader
        if lot.kind is Kind.DUTCH:
            return max(EXACT.subtract(lot.start, EXACT.multiply(lot.step, self.lowered)), lot.reserve)
        if lot.kind is Kind.ENGLISH and leader is not None and leader.amount is not None:
            return EXACT.add(leader.amount, lot.step)
        return lot.start

    def bid_of(self, bidder: str) -> AcceptedBid | None:
        """The last bid of this bidder."""
        return next((each for each in reversed(self.bids.values()) if each.bidder == bidder), None)

    # -- bidders

    def bid(self, number: int, bidder: str, statement: Statement) -> list[AuctionEntry]:
        if self.phase is not Phase.OPEN:
            raise ClosedError(f"{self.lot.id} takes no more bids: it is {self.phase}")
        if bidder == self.lot.seller:
            raise NotQualifiedError(f"{bidder} sells {self.lot.id} and cannot bid for it")
        if self.lot.bidders and bidder not in self.lot.bidders:
            raise NotQualifiedError(f"{bidder} is not among the bidders of {self.lot.id}: ask the seller")
        if self.lot.kind.is_sealed:
            return self._bid_sealed(number, bidder, statement)
        if statement.amount is None:
            raise InvalidError(f"bids for {self.lot.id} are open: name the amount")
        if statement.amount < self.minimum_bid:
            least = amount_text(self.minimum_bid)
            raise TooLowError(f"{amount_text(statement.amount)} is too low for {self.lot.id}: bid at least {least}")
        is_dutch = self.lot.kind is Kind.DUTCH
        amount = self.minimum_bid if is_dutch else statement.amount
        self.bids[number] = AcceptedBid(number, bidder, amount)
        found: list[AuctionEntry] = [Bid(number, self.lot.id, bidder, amount)]
        if is_dutch:
            self.phase = Phase.TAKEN
        elif self.calls:
            self.calls = 0
            found.append(Extended(number, self.lot.id))
        return found

    def _bid_sealed(self, number: int, bidder: str, statement: Statement) -> list[AuctionEntry]:
        if not statement.commitment or statement.amount is not None:
            raise InvalidError(f"bids for {self.lot.id} are sealed: send a commitment, not the amount")
        if self.bid_of(bidder) is not None:
            raise InvalidError(f"{bidder} has already bid for {self.lot.id}: a sealed bid cannot be changed")
        self.bids[number] = AcceptedBid(number, bidder, None, statement.commitment)
        return [Bid(number, self.lot.id, bidder, None)]

    def reveal(self, number: int, bidder: str, statement: Statement) -> list[AuctionEntry]:
        if self.phase is not Phase.REVEAL:
            raise ClosedError(f"bids for {self.lot.id} cannot be revealed now: it is {self.phase}")
        placed = self.bid_of(bidder)
        if placed is None or statement.amount is None or placed.amount is not None:
            raise InvalidError(f"{bidder} has no sealed bid for {self.lot.id}")
        if commitment(self._auction, self.lot.id, bidder, statement.amount, statement.salt) != placed.commitment:
            raise InvalidError(f"the amount is not the one that {bidder} has bid for {self.lot.id}")
        if statement.amount < self.lot.start:
            raise TooLowError(f"{amount_text(statement.amount)} is below the lowest bid for {self.lot.id}")
        self.bids[placed.number] = placed._replace(amount=statement.amount)
        return [Revealed(number, self.lot.id, bidder, statement.amount)]

    # -- the seller

    def withdraw(self, number: int, author: str) -> list[AuctionEntry]:
        if author != self.lot.seller:
            raise NotQualifiedError(f"only {self.lot.seller} can withdraw {self.lot.id}")
        if self.phase is not Phase.OPEN or self.bids:
            raise ClosedError(f"{self.lot.id} cannot be withdrawn after the first bid")
        return [self._unsold(number, "withdrawn by the seller")]

    # -- the auctioneer

    def call(self, number: int, action: Action) -> list[AuctionEntry]:
        if action not in self.possible_calls:
            raise ClosedError(f"{self.lot.id} is {self.phase}: {action} is out of turn")
        match action:
            case Action.GOING:
                self.calls += 1
                return [Going(number, self.lot.id, self.calls)]
            case Action.LOWER:
                self.lowered += 1
                return [Lowered(number, self.lot.id, self.minimum_bid)]
            case Action.UNSEAL:
                self.phase = Phase.REVEAL
                return [Unsealed(number, self.lot.id)]
        return [self._gone(number)]

    @property
    def possible_calls(self) -> tuple[Action, ...]:
        """What the auctioneer can say next."""
        if self.phase in (Phase.TAKEN, Phase.REVEAL):
            return (Action.GONE,)
        if self.phase is not Phase.OPEN:
            return ()
        if self.lot.kind is Kind.ENGLISH:
            return (Action.GOING,) if self.calls < CALLS else (Action.GONE,)
        if self.lot.kind is Kind.DUTCH:
            return (Action.LOWER,) if self.lowered < self.lot.calls_down else (Action.GONE,)
        return (Action.UNSEAL,)

    def _gone(self, number: int) -> AuctionEntry:
        leader = self.leader
        if leader is None or leader.amount is None:
            return self._unsold(number, "no bids were revealed" if self.bids else "no bids")
        if leader.amount < self.lot.reserve:
            return self._unsold(number, "the reserve was not reached")
        self.phase, self.winner, self.price = Phase.SOLD, leader.bidder, leader.amount
        if self.lot.kind is Kind.VICKREY:
            others = [each.amount for each in self.bids.values() if each.amount is not None and each != leader]
            self.price = max([self.lot.start, self.lot.reserve, *others])
        return Sold(number, self.lot.id, self.winner, self.price)

    def _unsold(self, number: int, reason: str) -> AuctionEntry:
        self.phase, self.reason = Phase.UNSOLD, reason
        return Unsold(number, self.lot.id, reason)
