"""The exceptions of auctions. Each message names the remedy."""

from broadloom.errors import BroadloomError


class AuctionError(BroadloomError):
    """Base class of the exceptions of auctions."""


class TooLowError(AuctionError):
    """The bid is below the price that is asked for."""


class ClosedError(AuctionError):
    """The lot is not open for this: it is sold, unsold, or in another phase."""


class NotQualifiedError(AuctionError):
    """This name may not do this: it is not among the bidders of the lot, or sells it, or is a notary."""


class NoLotError(AuctionError):
    """No lot has this id."""


class InvalidError(AuctionError):
    """The entry does not make sense: a reveal that does not match its bid, a second lot with the same id."""


class NoReceiptError(AuctionError):
    """No notary has answered with a receipt in time. After `bid`, the bid counts."""


class AlteredLogError(AuctionError):
    """A log does not match what its authors, or the auctioneers, have signed."""
