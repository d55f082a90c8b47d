"""`SealedBids`: the amounts and salts of our sealed bids, until they are revealed. A bid whose salt is lost is
forfeited, so a program that may end before gives a file."""

import json
import os
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from broadloom.apps.auction.errors import AuctionError
from broadloom.apps.auction.lot import amount_text, parse_amount
from broadloom.private_files import open_new, warn_if_readable_by_others


class SealedBid(NamedTuple):
    amount: Decimal
    salt: str


class SealedBids:
    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._path = Path(path) if path is not None else None
        self._bids: dict[str, SealedBid] = {}
        if self._path is not None and self._path.exists():
            warn_if_readable_by_others(self._path, "the sealed bids in")
            try:
                values = json.loads(self._path.read_bytes())
                self._bids = {
                    key: SealedBid(parse_amount(each["amount"]), str(each["salt"])) for key, each in values.items()
                }
            except (AttributeError, KeyError, TypeError, ValueError):
                raise AuctionError(f"{path} is not a file of sealed bids: choose another name") from None

    def get(self, commitment: str) -> SealedBid | None:
        return self._bids.get(commitment)

    def add(self, commitment: str, bid: SealedBid) -> None:
        """On disk when it returns."""
        self._bids[commitment] = bid
        if self._path is None:
            return
        values = {key: {"amount": amount_text(each.amount), "salt": each.salt} for key, each in self._bids.items()}
        fresh = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        fresh.unlink(missing_ok=True)
        with os.fdopen(open_new(fresh), "w") as file:
            json.dump(values, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
