"""`Room`: a program's part in an auction: as a bidder, a seller, a notary or an observer.

The list of the auction is an agreed order in mode "safe" (docs/order.md): an entry counts when a majority of the
notaries has stored it. **Safety comes before progress**: on the side of a partition without a majority nothing is
accepted. The notary that is the sequencer of the order is the auctioneer; if it dies, the next sequencer continues
from the same list.
"""

import asyncio
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from broadloom.apps.auction.auctioneer import Auctioneer, Call
from broadloom.apps.auction.entries import AuctionEntry, Bid, Opened, Revealed, Sold, Unsealed, Unsold
from broadloom.apps.auction.errors import AuctionError, NoReceiptError, NotQualifiedError, TooLowError
from broadloom.apps.auction.ledger import ENTRIES_KEPT, Ledger, Outcome, notary_names
from broadloom.apps.auction.log_file import entry_line, head_line, verifier, write_log
from broadloom.apps.auction.lot import Lot, amount_text, parse_amount
from broadloom.apps.auction.receipt import Receipt, checked_bid
from broadloom.apps.auction.sale import Phase, Sale
from broadloom.apps.auction.sealed import commitment
from broadloom.apps.auction.sealed_bids import SealedBid, SealedBids
from broadloom.apps.auction.statements import Action, Statement, signed, verified
from broadloom.apps.session import AppSession, joined
from broadloom.channel.arguments import check_count
from broadloom.errors import (
    BroadloomError,
    NotPermittedError,
    NotSentError,
    OrderTimeoutError,
    RefusedError,
    RequestError,
)
from broadloom.order import Diverged, Entry, OrderEvent, OrderSettings, ordered
from broadloom.protocol.identity import Role
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.channel import Channel
    from broadloom.channel.direct_request import DirectRequest
    from broadloom.protocol.roster.member import Member

log = logging.getLogger("broadloom")

Answer = TypeVar("Answer")

LAYER = "Au"
"""Requests to notaries."""
CONVERSATION = "auction"
NOTARIES = 3
ORDER = OrderSettings(log_entries_max=ENTRIES_KEPT, log_bytes_max=256 << 20)
TIMEOUT_S = 15.0
ANSWER_S = 3.0
"""Time for one notary to answer."""
REVEAL_RETRY_S = 0.5
LEFT_MIN_S = 0.1
"""What follows in a call gets this time, even if what came before has used it up."""
ROSTER_S = 5.0
TICK_S = 0.1
"""How often the auctioneer looks at the clock."""
CALLS_MAX = 256
"""Calls that an auctioneer has under way at a time, one for each lot."""


class Room(AppSession[AuctionEntry]):
    """Use it with `async with`, on a channel that was joined with a ticket; `auction.join` joins both. Iterating over
    it gives all entries that have an effect, from the beginning."""

    _what = "auction"
    _error = AuctionError

    def __init__(
        self,
        channel: "Channel",
        *,
        notaries: int | Sequence[str] = NOTARIES,
        store: str | os.PathLike[str] | None = None,
        sealed_bids: str | os.PathLike[str] | None = None,
        order_settings: OrderSettings | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """- `notaries`: their number (3, 5, 7 or 9), or the names on their tickets; the same in every program.
        - `store`: for a notary, the file that keeps its votes and the list.
        - `sealed_bids`: the file that keeps the salts of sealed bids until they are revealed. Without it they are
          forfeited if the program ends before.
        """
        signer, credentials = channel._post_signer, channel._node.credentials
        if signer is None or credentials is None:
            raise NotQualifiedError(f"{channel.name}: an auction needs tickets: connect with ticket=")
        self.name = signer.name
        """The name on our ticket."""
        self._signer = signer
        self._authority = credentials.authority
        self.ledger = Ledger(channel.name, notary_names(notaries), verifier(self._authority, channel.name))
        if self.is_notary and store is None:
            raise ValueError(f"{self.name!r} is a notary: give it a store, the file that keeps its votes and the list")
        self._sealed_bids = SealedBids(sealed_bids)
        super().__init__(channel, LAYER)
        self._layer._filters_content = False  # questions to notaries pass the rules
        self.entries: list[AuctionEntry] = []
        """All entries so far that had an effect."""
        self._read_count = 0
        """Those of them that the program has read."""
        self._store = store
        self._settings = order_settings or ORDER
        self._wall_clock = wall_clock
        self._silent_notary = PeerId(0)
        """The last one that did not answer: it is asked after the others from then on."""
        self._called: set[str] = set()
        """Lots with a call of ours under way."""

    def wall_time_s(self) -> float:
        return self._wall_clock()

    @property
    def is_notary(self) -> bool:
        return self.name in self.ledger.notaries

    @property
    def is_auctioneer(self) -> bool:
        """Whether this program calls at the moment."""
        return self.is_notary and self._order.is_sequencer

    @property
    def stalled(self) -> str:
        """Why nothing is accepted at the moment: no majority of the notaries is connected to us. Else empty."""
        here = {each.name for each in self._notaries_here().values()} | ({self.name} if self.is_notary else set())
        count, needed = len(self.ledger.notaries), len(self.ledger.notaries) // 2 + 1
        return f"{len(here)} of {count} notaries are here, and {needed} are needed" if len(here) < needed else ""

    @property
    def sales(self) -> dict[str, Sale]:
        """The lots with their bids, by id, in the order in which they were opened."""
        return self.ledger.sales

    async def _join(self) -> None:
        try:
            await self.channel.wait_for_roster(ROSTER_S)
        except TimeoutError:
            log.debug("%s: the auction begins without a complete roster", self.channel.name)
        order = ordered(
            self.channel,
            CONVERSATION,
            mode="safe",
            voters=self.ledger.notaries,
            store=self._store,
            from_index=1,
            settings=self._settings,
        )
        self._tape_log.begin(head_line(self.ledger, self._authority), auction=self.ledger.auction, member=self.name)
        self._begin(order)
        order.on_event(self._on_order_event)
        if self.is_notary:
            self._layer.on_request(self._on_request)
            self._start(self._call)

    # -- the list

    def _on_entry(self, entry: Entry) -> None:
        found = self.ledger.apply(entry.index, entry.data)
        if self._tape_log.is_open:
            self._tape_log.write(entry_line(entry.index, entry.data))
        self.entries += found
        for each in found:
            self._record_effect(entry.author, each)
            self.emit(each)
            if isinstance(each, Unsealed):
                self._start(self._reveal, self.sales[each.lot])

    def emit(self, event: AuctionEntry) -> None:
        """It is in `entries`, from which it is read."""
        self._listeners.emit(event)
        self._wake()

    @property
    def unread_count(self) -> int:
        return len(self.entries) - self._read_count

    def _take(self) -> AuctionEntry | None:
        if not self.unread_count:
            return None
        self._read_count += 1
        return self.entries[self._read_count - 1]

    def _record_effect(self, author: int, effect: AuctionEntry) -> None:
        figures, owner, amount = {"lot": effect.lot}, None, None
        match effect:
            case Opened(terms=terms):
                owner, figures["kind"] = terms.seller, terms.kind.value
            case Bid() | Revealed():
                owner, amount = effect.bidder, effect.amount
            case Sold():
                owner, amount = effect.winner, effect.price
        if amount is not None:
            figures["amount"] = amount_text(amount)
        reason = effect.reason if isinstance(effect, Unsold) else None
        self._record(type(effect).__name__.lower(), author, effect.number, owner=owner, reason=reason, **figures)

    def _on_order_event(self, event: OrderEvent) -> None:
        if isinstance(event, Diverged):
            self._end(AuctionError(f"{self.channel.name}: {event.text}"))

    async def wait_until_current(self, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until this program knows the list as far as the auctioneer does now. Raises `TimeoutError`."""
        number = None
        try:
            async with asyncio.timeout(timeout_s):
                while number is None and not self.is_auctioneer:
                    number = await self._ask_each({"ask": "number"}, _parse_number)
                await self._wait_until(lambda: self.ledger.number >= (number or 0))
        except TimeoutError:
            raise TimeoutError(
                f"{self.channel.name}: no auctioneer answered within {timeout_s:g} s; the first start needs "
                f"{', '.join(self.ledger.notaries)}, later a majority of them (`broadloom auction serve`)"
            ) from None

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the list to a file, which `auction.read_log` and `broadloom auction verify` check."""
        write_log(Path(path), self.ledger, self._authority)

    # -- bidders and sellers

    async def open_lot(self, lot: Lot, *, timeout_s: float = TIMEOUT_S) -> int:
        """Open a lot, as its seller. Returns its number in the list."""
        return (await self._submit_statement(Action.OPEN, lot.id, timeout_s, terms=lot.as_dict())).number

    async def withdraw(self, lot: str, *, timeout_s: float = TIMEOUT_S) -> int:
        """Withdraw our lot, before the first bid."""
        return (await self._submit_statement(Action.WITHDRAW, lot, timeout_s)).number

    async def bid(self, lot: str, amount: Decimal | str | int, *, timeout_s: float = TIMEOUT_S) -> Receipt:
        """Bid, and return the receipt of an auctioneer. A bid cannot be withdrawn.

        Raises `TooLowError`, `ClosedError`, `NotQualifiedError` or `NoLotError`, all of them `AuctionError`. After
        `OrderTimeoutError` or `NoMajorityError` the outcome is unknown: the bid may still be accepted while the room
        is open. After `NoReceiptError` the bid counts, and `receipt` asks again.
        """
        deadline_s = self._loop.time() + timeout_s
        exact = parse_amount(amount)
        if lot not in self.sales:
            try:
                await self.wait_until_current(timeout_s)
            except TimeoutError as problem:
                raise OrderTimeoutError(f"{problem}. The bid was not sent") from None
        sale = self.ledger.sale(lot)
        fields: dict[str, Any] = {"amount": exact}
        if sale.lot.kind.is_sealed:
            if exact < sale.lot.start:
                raise TooLowError(f"the lowest bid for {lot} is {amount_text(sale.lot.start)}")
            salt = secrets.token_hex(32)
            fields = {"commitment": commitment(self.channel.name, lot, self.name, exact, salt)}
            await asyncio.to_thread(self._sealed_bids.add, fields["commitment"], SealedBid(exact, salt))
        outcome = await self._submit_statement(Action.BID, lot, self._left_s(deadline_s), **fields)
        return await self.receipt(outcome.number, timeout_s=self._left_s(deadline_s))

    def _left_s(self, deadline_s: float) -> float:
        return max(LEFT_MIN_S, deadline_s - self._loop.time())

    async def receipt(self, number: int, *, timeout_s: float = TIMEOUT_S) -> Receipt:
        """The receipt for an accepted bid. Any notary signs it, because the list is final. Raises `InvalidError` if
        this entry is not one, and `NoReceiptError`."""
        check_count("number", number)
        deadline_s = self._loop.time() + timeout_s
        if number > self.ledger.number:  # we may have joined a moment ago
            try:
                await self.wait_until_current(timeout_s)
            except TimeoutError as problem:
                raise NoReceiptError(str(problem)) from None
        checked_bid(self.ledger, number)

        def parse(data: bytes) -> Receipt:
            receipt = Receipt.decode(data)
            if receipt.number != number:
                raise ValueError(f"a receipt for entry {receipt.number}")
            receipt.check(self.ledger)
            return receipt

        try:
            async with asyncio.timeout_at(deadline_s):
                while (receipt := await self._ask_each({"ask": "receipt", "number": number}, parse)) is None:
                    pass
                return receipt
        except TimeoutError:
            raise NoReceiptError(
                f"{self.channel.name}: the bid is in the list as number {number}, but no notary has signed a receipt "
                f"within {timeout_s:g} s; ask again"
            ) from None

    async def _submit_statement(self, action: Action, lot: str, timeout_s: float, **fields: Any) -> Outcome:
        """Submit a statement, and wait for its outcome. Raises the `AuctionError` for which it had no effect."""
        at_ms = int(self.wall_time_s() * 1000)
        statement = Statement(action=action, id=secrets.token_hex(16), at_ms=at_ms, lot=lot, **fields)
        data = signed(statement, self._signer)
        own = self.channel.identity(self.peer_id)
        is_consumer = own is not None and own.role is Role.CONSUMER  # which the order reports
        if not is_consumer and verified(data, self.ledger.verify) is None:  # all members would ignore it
            raise NotQualifiedError(
                f"{self.channel.name}: the ticket of {self.name} is not valid now by the clock of this machine: set "
                "the clock, or get a new ticket"
            )
        await self._submit_entry(data, timeout_s)
        outcome = self.ledger.outcomes.get((self.name, statement.id))
        if outcome is None:
            raise AuctionError(
                f"{self.channel.name}: the entry was changed on its way: check the rules of this program"
            )
        if outcome.error is not None:
            raise type(outcome.error)(str(outcome.error))
        return outcome

    async def _reveal(self, sale: Sale) -> None:
        """Reveal our sealed bid, if we have made one, as often as it takes: a second reveal has no effect."""
        while not self.is_ended and sale.phase is Phase.REVEAL:
            placed = sale.bid_of(self.name)
            if placed is None or placed.amount is not None:
                return
            try:
                bid = self._sealed_bids.get(placed.commitment)
                if bid is None:
                    return
                await self._submit_statement(Action.REVEAL, sale.lot.id, TIMEOUT_S, amount=bid.amount, salt=bid.salt)
            except (AuctionError, NotPermittedError, NotSentError) as problem:  # the next attempt would fail as well
                log.warning("%s: the bid for %s was not revealed: %s", self.channel.name, sale.lot.id, problem)
                return
            except (BroadloomError, OSError) as problem:
                log.warning("%s: the bid for %s is not revealed yet: %s", self.channel.name, sale.lot.id, problem)
                await asyncio.sleep(REVEAL_RETRY_S)

    # -- notaries

    def _notaries_here(self) -> "dict[PeerId, Member]":
        """Those that can be asked."""
        return {
            each.peer_id: each
            for each in self.channel.members()
            if each.is_proven
            and each.name in self.ledger.notaries
            and LAYER in each.layers
            and each.peer_id != self.channel.peer_id
        }

    async def _ask_each(self, question: dict[str, Any], parse: Callable[[bytes], Answer]) -> Answer | None:
        """Ask one notary after the other, until one gives an answer that `parse` accepts. If none does, None after a
        pause."""
        self._check_open()
        here = self._notaries_here()
        for peer_id in sorted(in_turn(here, self.channel.peer_id), key=lambda each: each == self._silent_notary):
            notary = here[peer_id]
            try:
                reply = await self._layer.request(notary, json.dumps(question).encode(), timeout_s=ANSWER_S)
                return parse(reply.data)
            except RefusedError:
                continue
            except RequestError:
                self._silent_notary = peer_id
            except (AuctionError, ValueError) as problem:
                log.warning("%s: a wrong answer of %s: %s", self.channel.name, notary.name, problem)
        await asyncio.sleep(TICK_S)
        return None

    async def _on_request(self, request: "DirectRequest") -> bytes:
        try:
            match request.json():
                case {"ask": "number"} if self._order.is_sequencer:  # others may be behind
                    return json.dumps({"number": self.ledger.number}).encode()
                case {"ask": "receipt", "number": int(number)}:
                    async with asyncio.timeout(request.timeout_s or ANSWER_S):
                        await self._wait_until(lambda: self.ledger.number >= number)
                    return Receipt.of(self.ledger, number, self._signer, int(self.wall_time_s() * 1000)).encode()
        except (AuctionError, ValueError, TimeoutError) as problem:
            raise RefusedError(str(problem)) from None
        raise RefusedError("not a question that this notary answers")

    async def _call(self) -> None:
        auctioneer = Auctioneer(self.ledger)
        while not self.is_ended:
            for call in auctioneer.due(self.wall_time_s()):
                if self._order.is_sequencer and call.lot not in self._called and len(self._called) < CALLS_MAX:
                    self._called.add(call.lot)
                    self._start(self._submit_call, call)
            await asyncio.sleep(TICK_S)

    async def _submit_call(self, call: Call) -> None:
        """A call that fails is due again. If both are ordered, the second one has no effect."""
        try:
            await self._submit_statement(call.action, call.lot, TIMEOUT_S, after=call.after, chain=call.chain)
        except NotQualifiedError as problem:
            log.warning("%s: %s %s: %s", self.channel.name, call.action, call.lot, problem)
            await asyncio.sleep(ANSWER_S)
        except BroadloomError as problem:
            log.debug("%s: %s %s: %s", self.channel.name, call.action, call.lot, problem)
        finally:
            self._called.discard(call.lot)


def in_turn(notaries: Iterable[PeerId], number: int) -> list[PeerId]:
    """The order in which a member with this number asks the notaries: each of them is the first one for a part of all
    members, because most questions need a new connection."""
    ordered = sorted(notaries)
    start = number % max(1, len(ordered))
    return ordered[start:] + ordered[:start]


def join(
    channel: str,
    *,
    ticket: Any,
    notaries: int | Sequence[str] = NOTARIES,
    store: str | os.PathLike[str] | None = None,
    sealed_bids: str | os.PathLike[str] | None = None,
    order_settings: OrderSettings | None = None,
    **options: Any,
) -> "AbstractAsyncContextManager[Room]":
    """Join an auction: `async with auction.join("auction/books-7", ticket="anna.ticket") as room`.

    The name on the ticket is that of the bidder. Further options are those of `broadloom.connect`, such as `bootstrap`.
    """
    room = partial(Room, notaries=notaries, store=store, sealed_bids=sealed_bids, order_settings=order_settings)
    return joined(channel, room, ticket=ticket, **options)


def _parse_number(data: bytes) -> int:
    with suppress(RecursionError):
        match json.loads(data):
            case {"number": int(number)}:
                return number
    raise ValueError("not a number")
