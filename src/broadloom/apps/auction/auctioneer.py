"""`Auctioneer`: when to call what. Pure: the time is passed in, and nothing but the ledger is remembered for long.

It decides only when a call is submitted. What a call does is decided by its place in the order, so a wrong clock makes
an auction shorter or longer, and never gives two winners.
"""

from typing import NamedTuple

from broadloom.apps.auction.ledger import Ledger
from broadloom.apps.auction.lot import Kind
from broadloom.apps.auction.sale import Phase, Sale
from broadloom.apps.auction.statements import Action


class Call(NamedTuple):
    """A call that is due, with the list as it was when that was decided: a bid that comes before the call is ordered
    makes the call void."""

    lot: str
    action: Action
    after: int
    """The number of the last entry."""
    chain: str


class Auctioneer:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._seen: dict[str, tuple[int, float]] = {}
        """For each lot that is not over: its last change, and when this program saw it."""

    def due(self, now_s: float) -> list[Call]:
        """The calls that are due now. Calling this again before they are in the list gives them again."""
        found = []
        after, chain = self._ledger.number, self._ledger.chain.hex()
        sales = {lot: sale for lot, sale in self._ledger.sales.items() if not sale.is_over}
        self._seen = {lot: seen for lot, seen in self._seen.items() if lot in sales}
        for lot, sale in sales.items():
            # The time for the reveal does not begin again with each one.
            mark = 0 if sale.phase is Phase.REVEAL else sale.changed_at
            if self._seen.get(lot, (-1, 0.0))[0] != mark:
                self._seen[lot] = mark, now_s
            if now_s >= max(sale.lot.end_s, self._seen[lot][1] + _pause_s(sale)) or sale.phase is Phase.TAKEN:
                found += [Call(lot, action, after, chain) for action in sale.possible_calls]
        return found


def _pause_s(sale: Sale) -> float:
    """Time from the last change of the lot to the next call."""
    if sale.phase is Phase.REVEAL:
        return 0.0 if all(each.amount is not None for each in sale.bids.values()) else sale.lot.extension_s
    if sale.lot.kind is Kind.ENGLISH and not sale.calls:
        return sale.lot.extension_s if sale.bids else 0.0
    return 0.0 if sale.lot.kind.is_sealed else sale.lot.call_s
