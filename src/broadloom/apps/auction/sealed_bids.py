"""`SealedBids`: the amounts and salts of our sealed bids, until they are revealed. A bid whose salt is lost is
forfeited, so a program that may end before gives a file.

Several programs may share a file, such as `broadloom auction watch` and several `broadloom auction bid`. So it is read
each time, and changed under a lock.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from broadloom.apps.auction.errors import AuctionError
from broadloom.apps.auction.lot import amount_text, parse_amount
from broadloom.private_files import MODE, open_new, warn_if_readable_by_others
from broadloom.record.file_locks import lock

LOCK_S = 2.0
"""Another program needs the lock only while it writes a small file."""
LOCK_POLL_S = 0.005


class SealedBid(NamedTuple):
    amount: Decimal
    salt: str


class SealedBids:
    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._path = Path(path) if path is not None else None
        self._bids: dict[str, SealedBid] = {}
        if self._path is not None:
            warn_if_readable_by_others(self._path, "the sealed bids in")
            self._read(self._path)

    def _read(self, path: Path) -> None:
        try:
            values = json.loads(path.read_bytes())
            self._bids |= {
                key: SealedBid(parse_amount(each["amount"]), str(each["salt"])) for key, each in values.items()
            }
        except FileNotFoundError:
            return
        except (AttributeError, KeyError, TypeError, ValueError):
            raise AuctionError(f"{path} is not a file of sealed bids: choose another name") from None

    def get(self, commitment: str) -> SealedBid | None:
        """Also if another program has added it."""
        if self._path is not None and commitment not in self._bids:
            self._read(self._path)
        return self._bids.get(commitment)

    def add(self, commitment: str, bid: SealedBid) -> None:
        """On disk when it returns. Call it in a thread: it may wait for another program."""
        self._bids[commitment] = bid
        if self._path is not None:
            with _locked(self._path):
                self._read(self._path)
                self._write(self._path)

    def _write(self, path: Path) -> None:
        bids = list(self._bids.items())
        values = {key: {"amount": amount_text(each.amount), "salt": each.salt} for key, each in bids}
        fresh = path.with_name(f".{path.name}.new")
        fresh.unlink(missing_ok=True)
        with os.fdopen(open_new(fresh), "w") as file:
            json.dump(values, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The lock is on a file of its own, because the file itself is replaced."""
    name = path.with_name(f".{path.name}.lock")
    try:
        opened = os.open(name, os.O_RDWR | os.O_CREAT, MODE)
    except OSError as problem:
        problem.filename = str(path)  # the one that the user has named
        raise
    with os.fdopen(opened, "r+b") as file:
        deadline_s = time.monotonic() + LOCK_S
        while not lock(file):
            if time.monotonic() > deadline_s:
                raise AuctionError(f"another program has locked {path} for {LOCK_S:g} s: end it, and bid again")
            time.sleep(LOCK_POLL_S)
        yield
