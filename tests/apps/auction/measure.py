"""Measure a large auction in the simulator: `python -m tests.apps.auction.measure [BIDDERS] [SECONDS]`.

Every bidder has a peer of its own and bids now and then, 200 times a second together. Virtual time from a bid to its
receipt; links of 1 ms. `tools/auction_load.py` measures real programs: its CPU times are the ones used here, for frames
and for handshakes, so that a notary that cannot keep up is seen.
"""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from broadloom.apps.auction import Kind, Lot, Receipt
from broadloom.apps.auction.ledger import Ledger
from broadloom.apps.auction.room import LAYER, in_turn
from broadloom.apps.auction.statements import Action, Statement, signed
from broadloom.order.model import Entry
from broadloom.order.store import MemoryOrderStore
from broadloom.protocol.requests.incoming import IncomingRequest
from broadloom.protocol.requests.outgoing import Outcome, OutcomeKind
from broadloom.testing.sim.node import START_TIME_S, SimNode
from broadloom.testing.sim.order_runtime import SimOrderRuntime
from broadloom.testing.sim.simulation import Simulation
from broadloom.wire.payload_kind import LAYER_SHIFT, layer_kind
from tests.apps.auction.histories import AUCTION, NOTARIES
from tests.apps.auction.sim_signer import SimSigner, verify
from tests.apps.large_fabric import grow, percentiles_text, simulation

RECEIPTS = layer_kind(LAYER) >> LAYER_SHIFT
RATE = 200.0
LATENCY_MS = 1.0
JITTER_MS = 0.2
FRAME_S = 0.0002
HANDSHAKE_S = 0.003
ANSWER_S = 3.0
LOTS = 100


class Member:
    """A notary or a bidder."""

    def __init__(self, node: SimNode, name: str, names: dict[int, str], number: int) -> None:
        self.node, self.signer = node, SimSigner(name)
        self.ledger = Ledger(AUCTION, NOTARIES, verify)
        self.took_s: list[float] = []
        self._notaries = [peer_id for peer_id, each in names.items() if each in NOTARIES]
        self._bid_at: dict[str, float] = {}
        self._asked: list[tuple[int, Callable[[], None]]] = []
        store = MemoryOrderStore(number) if name in NOTARIES else None
        self.runtime = SimOrderRuntime(node, names, voters=NOTARIES, store=store, from_index=1)
        self.runtime.on_entry = self._on_entry
        node.peer.requests.handlers.set(RECEIPTS, self._on_request, 256)

    def submit(self, action: Action, lot: str, **fields: Any) -> None:
        now = self.node.clock.now
        statement_id = f"{self.node.random.getrandbits(128):032x}"
        statement = Statement(action=action, id=statement_id, at_ms=int((START_TIME_S + now) * 1000), lot=lot, **fields)
        if action is Action.BID:
            self._bid_at[statement_id] = now
        self.runtime.replica.submit(signed(statement, self.signer))

    def bid(self, lot: str, amount: int) -> None:
        self.submit(Action.BID, lot, amount=Decimal(amount))

    def _on_entry(self, entry: Entry) -> None:
        self.ledger.apply(entry.index, entry.data)
        outcome = self.ledger.by_number[entry.index]
        began_at = self._bid_at.pop(outcome.signed.statement.id, None)
        if began_at is not None:
            assert outcome.error is None, outcome.error
            self._ask(entry.index, began_at, in_turn(self._notaries, self.runtime.peer_id))
        due = [answer for number, answer in self._asked if number <= entry.index]
        self._asked = [each for each in self._asked if each[0] > entry.index]
        for answer in due:
            answer()

    def _ask(self, number: int, began_at: float, notaries: list[int]) -> None:
        def on_outcome(outcome: Outcome) -> None:
            if outcome.kind is OutcomeKind.REPLIED:
                Receipt.decode(outcome.data).check(self.ledger)
                self.took_s.append(self.node.clock.now - began_at)
            else:
                self._ask(number, began_at, [*notaries[1:], notaries[0]])

        self.node.peer.requests.request(notaries[0], str(number).encode(), ANSWER_S, on_outcome, layer=RECEIPTS)

    def _on_request(self, request: IncomingRequest) -> None:
        number = int(request.data)

        def answer() -> None:
            at_ms = int((START_TIME_S + self.node.clock.now) * 1000)
            request.reply(Receipt.of(self.ledger, number, self.signer, at_ms).encode())
            request.done()

        request.on_cancel = request.done
        if self.ledger.number >= number:
            answer()
        else:
            self._asked.append((number, answer))


def open_auction(sim: Simulation, bidders: int) -> list[Member]:
    """The notaries, then the bidders. Lots are open."""
    nodes = grow(sim, len(NOTARIES) + bidders)
    names = dict(zip((node.peer.me.peer_id for node in nodes), NOTARIES, strict=False))
    names |= {node.peer.me.peer_id: f"bidder-{node.number}" for node in nodes[len(NOTARIES) :]}
    members = [Member(node, names[node.peer.me.peer_id], names, number) for number, node in enumerate(nodes, 1)]
    assert sim.run_until(lambda: all(each.runtime.replica.log.lineage for each in members), 60.0)
    end = datetime.fromtimestamp(START_TIME_S + sim.clock.now + 3600, UTC)
    for number in range(LOTS):
        lot = Lot(id=f"lot-{number}", kind=Kind.ENGLISH, start=Decimal(1), step=Decimal(1), end=end)
        members[-1].submit(Action.OPEN, lot.id, terms=lot.as_dict())
    assert sim.run_until(lambda: all(len(each.ledger.sales) == LOTS for each in members), 60.0)
    return members


def run_bids(sim: Simulation, members: list[Member], seconds: float) -> list[float]:
    """The time of each bid to its receipt."""
    for each in members:
        each.node.frame_cost_s, each.node.handshake_cost_s = FRAME_S, HANDSHAKE_S
    bidders = members[len(NOTARIES) : -1]  # the last one is the seller
    began_at, count = sim.clock.now, int(RATE * seconds)
    for number in range(count):
        bid = bidders[number % len(bidders)].bid
        sim.clock.call_at(began_at + number / RATE, bid, f"lot-{number % LOTS}", number // LOTS + 1)
    took_s: list[float] = []

    def is_over() -> bool:
        took_s[:] = [each for bidder in bidders for each in bidder.took_s]
        return len(took_s) == count

    assert sim.run_until(is_over, seconds + 30.0), f"{count - len(took_s)} bids have no receipt"
    return took_s


def receipt_times(bidders: int, seconds: float) -> list[float]:
    """Of an auction with this many bidders."""
    sim = simulation(LATENCY_MS, JITTER_MS)
    return run_bids(sim, open_auction(sim, bidders + 1), seconds)


def main() -> None:
    bidders = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    took_s = receipt_times(bidders, float(sys.argv[2]) if len(sys.argv) > 2 else 5.0)
    print(f"{bidders:,} bidders, {len(NOTARIES)} notaries, {len(took_s):,} receipts: {percentiles_text(took_s)}")


if __name__ == "__main__":
    main()
