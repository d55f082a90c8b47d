"""Simulated auctions in which auctioneers are killed at every step, with partitions, and what must hold at their end.

As a program: `python -m tests.apps.auction.histories SEEDS`.
"""

from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple

from broadloom import Authority
from broadloom.apps.auction import (
    AuctionEntry,
    Bid,
    Going,
    Kind,
    Lot,
    Lowered,
    Opened,
    Phase,
    Receipt,
    Revealed,
    Sold,
    Unsealed,
    Unsold,
)
from broadloom.apps.auction.auctioneer import Auctioneer
from broadloom.apps.auction.ledger import Ledger
from broadloom.apps.auction.log_file import entry_line, head_line
from broadloom.apps.auction.sealed import commitment
from broadloom.apps.auction.statements import Action, Statement, signed
from broadloom.apps.tape_log import TapeLog
from broadloom.order.model import Entry
from broadloom.order.store import MemoryOrderStore
from broadloom.protocol import ChannelName
from broadloom.testing.sim.node import START_TIME_S, SimNode
from broadloom.testing.sim.order_runtime import SimOrderRuntime
from broadloom.testing.sim.simulation import TapeFactory
from broadloom.wire import Address
from tests.apps.auction.sim_signer import SimSigner, verify
from tests.histories import HistoryError, SimHistory, main, run_history

AUCTION = "auction/simulated"
AUTHORITY = Authority.generate(ChannelName.parse(AUCTION).id)
"""For the head of a log. The signatures are those of `SimSigner`."""
NOTARIES = ("notary-1", "notary-2", "notary-3")
BIDDERS = ("anna", "ben", "carl")
SELLER = "sam"
LOTS = 2
BIDS_UNTIL_S = 9.0
LOT_S = (1.0, 6.0)
TICK_S = 0.25
RESTART_S = (0.2, 6.0)
SETTLE_S = 180.0
BOOTSTRAP = tuple(Address(f"host-{name}", 0) for name in NOTARIES)
"""Notaries start again on the same hosts, so that every part of the channel finds the others."""


class SealedBid(NamedTuple):
    amount: Decimal
    salt: str


class Program:
    """One member: its replica of the order, its ledger, and what it does about it."""

    def __init__(self, history: "History", name: str, node: SimNode, store: MemoryOrderStore | None) -> None:
        self.history, self.name, self.node = history, name, node
        self.signer = SimSigner(name)
        self.ledger = Ledger(AUCTION, NOTARIES, verify)
        self.auctioneer = Auctioneer(self.ledger)
        self.tape_log = TapeLog(node.peer.observer, "auction")
        self.tape_log.begin(head_line(self.ledger, AUTHORITY.certificate), member=name)
        self.entries: list[AuctionEntry] = []
        self.called: set[tuple[str, Action, int]] = set()
        self.revealed: set[str] = set()
        self.is_doomed = False
        """It is killed as soon as it has handled what it received."""
        self.runtime: SimOrderRuntime | None = None
        self._store = store
        self._start()

    def _start(self) -> None:
        if not self.node.is_alive:
            return
        if self.node.is_connected and self.node.peer.roster.is_complete:
            names = self.history.names
            self.runtime = SimOrderRuntime(self.node, names, voters=NOTARIES, store=self._store, from_index=1)
            for entry in self.runtime.delivered:
                self._on_entry(entry)
            self.runtime.on_entry = self._on_entry
            self._tick()
        else:
            self.node.call_later(TICK_S, self._start)

    @property
    def is_auctioneer(self) -> bool:
        return self.runtime is not None and self.node.is_alive and self.runtime.replica.is_sequencing

    @property
    def is_idle(self) -> bool:
        """Nothing waits to be ordered, and all that it has stored is final and was applied."""
        replica = self.runtime.replica if self.runtime is not None else None
        return replica is not None and not replica.submissions.own and replica.log.end == self.ledger.number

    def say(self, action: Action, lot: str, **fields: Any) -> None:
        history = self.history
        if self.runtime is None or not self.node.is_connected or not self.runtime.replica.submissions.has_room:
            return
        statement = Statement(
            action=action,
            id=f"{history.sim.random.getrandbits(128):032x}",
            at_ms=int(history.wall_s * 1000),
            lot=lot,
            **fields,
        )
        self.runtime.replica.submit(signed(statement, self.signer))

    def _on_entry(self, entry: Entry) -> None:
        found = self.ledger.apply(entry.index, entry.data)
        if self.tape_log.is_open:
            self.tape_log.write(entry_line(entry.index, entry.data))
        self.entries += found
        if self.name in NOTARIES:
            for each in found:
                if isinstance(each, Bid):  # as early as a notary could sign it
                    self.history.receipts.append(
                        Receipt.of(self.ledger, each.number, self.signer, int(self.history.wall_s * 1000))
                    )
            if self.is_auctioneer:
                self.history.on_step(self, entry.index)

    def _tick(self) -> None:
        if not self.node.is_alive or self.runtime is None:
            return
        for lot, action, after, chain in self.auctioneer.due(self.history.wall_s) if self.name in NOTARIES else ():
            key = lot, action, self.ledger.sales[lot].changed_at
            if self.is_auctioneer and key not in self.called:
                self.called.add(key)
                self.say(action, lot, after=after, chain=chain)
        for lot, sale in self.ledger.sales.items():
            placed = sale.bid_of(self.name) if sale.phase is Phase.REVEAL else None
            bid = self.history.sealed.get(placed.commitment) if placed is not None else None
            if bid is not None and lot not in self.revealed:
                self.revealed.add(lot)
                self.say(Action.REVEAL, lot, amount=bid.amount, salt=bid.salt)
        self.node.call_later(TICK_S, self._tick)


class History(SimHistory):
    def __init__(self, seed: int, *, tape_factory: TapeFactory | None = None) -> None:
        super().__init__(seed, tape_factory=tape_factory)
        self.random = self.sim.random
        self.names: dict[int, str] = {}
        self.stores = {name: MemoryOrderStore(number) for number, name in enumerate(NOTARIES, 1)}
        self.programs: list[Program] = []
        """All that ever ran: what a dead one saw must be true as well."""
        self.receipts: list[Receipt] = []
        self.sealed: dict[str, SealedBid] = {}
        self.kinds = [self.random.choice(list(Kind)) for _ in range(LOTS)]
        self.kill_at = {self.random.randint(1, 6 + 12 * LOTS) for _ in range(self.random.randint(1, 4))} | {
            1 + seed % (6 + 8 * LOTS)
        }
        """The auctioneer that has seen the entry with this number is killed, before it does anything about it."""

    @property
    def wall_s(self) -> float:
        return START_TIME_S + self.sim.clock.now

    @property
    def alive(self) -> list[Program]:
        return [each for each in self.programs if each.node.is_alive]

    def run(self) -> None:
        for name in (*NOTARIES, *BIDDERS, SELLER):
            self._start(name)
        if not self.sim.run_until(self._is_started, 60.0):
            self.fail("the order did not start")
        for number, kind in enumerate(self.kinds, 1):
            self._open(f"lot-{number}", kind)
        end = self.sim.clock.now + BIDS_UNTIL_S
        while self.sim.clock.now < end:
            self.sim.run_for(self.random.expovariate(2.5))
            self._step()
        self._settle()
        self._check()

    def _is_started(self) -> bool:
        return all(each.runtime is not None for each in self.programs) and any(
            each.is_auctioneer for each in self.programs
        )

    def _start(self, name: str) -> None:
        node = self.sim.add_peer(host=f"host-{name}", bootstrap=BOOTSTRAP)
        self.names[node.peer.me.peer_id] = name
        self.programs.append(Program(self, name, node, self.stores.get(name)))

    def _open(self, lot_id: str, kind: Kind) -> None:
        now = self.wall_s
        lot = Lot(
            id=lot_id,
            kind=kind,
            start=Decimal(self.random.choice((10, 20))),
            step=Decimal("2.50"),
            reserve=Decimal(self.random.choice((0, 5, 10))),
            end=datetime.fromtimestamp(now + self.random.uniform(*LOT_S), UTC),
            call_s=0.5,
            extension_s=1.0,
        )
        self._one(SELLER).say(Action.OPEN, lot_id, terms=lot.as_dict())

    def _one(self, name: str) -> Program:
        return next(each for each in reversed(self.programs) if each.name == name)

    # -- steps

    def _step(self) -> None:
        roll = self.random.random()
        if roll < 0.03 and not self.sim.network.is_partitioned:
            self.counts["partitions"] += 1
            self.note("partition")
            self.sim.partition(self.random.uniform(0.2, 0.6))
        elif roll < 0.10 and self.sim.network.is_partitioned:
            self.note("heals")
            self.sim.heal()
        else:
            self._bid()

    def _bid(self) -> None:
        bidder = self._one(self.random.choice(BIDDERS))
        sales = list(bidder.ledger.sales.values())
        if not sales:
            return
        sale = self.random.choice(sales)
        lot = sale.lot
        if not lot.kind.is_sealed:
            amount = sale.minimum_bid + self.random.choice((-1, 0, 0, 1, 5))
            bidder.say(Action.BID, lot.id, amount=max(amount, Decimal(1)))
            return
        bid = SealedBid(lot.start + self.random.randint(0, 6), f"{self.random.getrandbits(256):064x}")
        sealed = commitment(AUCTION, lot.id, bidder.name, bid.amount, bid.salt)
        if self.random.random() < 0.8:  # the others are never revealed
            self.sealed[sealed] = bid
        bidder.say(Action.BID, lot.id, commitment=sealed)

    def on_step(self, auctioneer: Program, number: int) -> None:
        """An auctioneer has seen an entry."""
        if number in self.kill_at and not auctioneer.is_doomed:
            auctioneer.is_doomed = True
            self.kill_at.discard(number)
            self.counts["kills"] += 1
            self.note(f"{auctioneer.name} is killed at entry {number}")
            name, node = auctioneer.name, auctioneer.node
            self.sim.clock.call_at(self.sim.clock.now, node.kill)
            self.sim.clock.call_at(self.sim.clock.now + self.random.uniform(*RESTART_S), self._start, name)

    # -- the end

    def _settle(self) -> None:
        if self.sim.network.is_partitioned:
            self.sim.heal()
        if not self.sim.run_until(self._is_settled, SETTLE_S):
            seen = {each.name: (each.ledger.number, each.ledger.results()) for each in self.alive}
            self.fail(f"not settled after {SETTLE_S:g} s: {seen}")

    def _is_settled(self) -> bool:
        alive = self.alive
        return (
            len(alive) == len(NOTARIES) + len(BIDDERS) + 1
            and len({each.ledger.chain for each in alive}) == 1
            and all(len(each.ledger.results()) == LOTS for each in alive)
            and all(each.is_idle for each in alive)
        )

    def _check(self) -> None:
        last = self.alive[0]
        results = last.ledger.results()
        for each in self.programs:
            if last.ledger.chain_at(each.ledger.number) != each.ledger.chain.hex():
                self.fail(f"the list of {each.name} is not part of the final one")
            for lot, result in each.ledger.results().items():
                if results[lot] != result:
                    self.fail(f"{each.name} saw {lot} sold for {result}, not {results[lot]}")
            if each.ledger.contradictions:
                self.fail(f"{each.name} finds calls that contradict the list")
        self.counts["receipts"] += len(self.receipts)
        self.counts["sold"] += sum(bool(winner) for winner, _ in results.values())
        for receipt in self.receipts:
            sale = last.ledger.sales[receipt.lot]
            placed = sale.bids.get(receipt.number)
            if (
                last.ledger.chain_at(receipt.number) != receipt.chain
                or placed is None
                or placed.bidder != receipt.bidder
            ):
                self.fail(f"lost, although it has a receipt: {receipt}")
        for lot in results:
            expected = oracle([each for each in last.entries if each.lot == lot])
            if expected != results[lot]:
                self.fail(f"{lot}: {results[lot]} instead of {expected}")


def oracle(entries: list[AuctionEntry]) -> tuple[str, Decimal | None]:
    """Winner and price of a lot by the rules as one would tell them to a bidder, from the entries alone."""
    assert isinstance(entries[0], Opened)
    lot = entries[0].terms
    end = entries[-1]
    if not isinstance(end, Sold | Unsold) or sum(isinstance(each, Sold | Unsold) for each in entries) != 1:
        raise HistoryError(f"{lot.id} does not end with one sale: {entries}")
    bids = [each for each in entries if isinstance(each, Bid)]
    if lot.kind is Kind.ENGLISH:
        if [each.call for each in entries[-3:] if isinstance(each, Going)] != [1, 2]:
            raise HistoryError(f"{lot.id} was sold without two calls after the last bid: {entries}")
        won = bids[-1:]
        if any(after.amount - before.amount < lot.step for before, after in pairwise(bids)):  # type: ignore[operator]
            raise HistoryError(f"{lot.id}: the bids do not rise: {entries}")
    elif lot.kind is Kind.DUTCH:
        won = bids[:1]
        falls = sum(isinstance(each, Lowered) for each in entries)
        if len(bids) > 1 or (won and won[0].amount != max(lot.start - falls * lot.step, lot.reserve)):
            raise HistoryError(f"{lot.id}: not the first bid at its price: {entries}")
    else:
        unsealed = next(each.number for each in entries if isinstance(each, Unsealed))
        if any(each.number > unsealed for each in bids):
            raise HistoryError(f"{lot.id}: a bid came after bidding had ended: {entries}")
        placed = {each.bidder: each.number for each in bids}
        shown = [(each.amount, -placed[each.bidder], each.bidder) for each in entries if isinstance(each, Revealed)]
        ranked = sorted(shown, reverse=True)
        if not ranked or ranked[0][0] < lot.reserve:
            return "", None
        second = max(ranked[1][0] if len(ranked) > 1 else lot.start, lot.start, lot.reserve)
        return ranked[0][2], second if lot.kind is Kind.VICKREY else ranked[0][0]
    if not won or won[0].amount is None or won[0].amount < lot.reserve:
        return "", None
    return won[0].bidder, won[0].amount


def run_seed(seed: int) -> History:
    """Raises `HistoryError`."""
    return run_history(History(seed))


if __name__ == "__main__":
    main(run_seed)
