"""The auction page: lots with their live price, own bids, and everything that happens."""

import time
from functools import partial

from nicegui import ui

from broadloom.apps.auction import Kind, Phase, Room, Sale
from broadloom.apps.auction.entry_text import CALLS, describe
from broadloom.apps.auction.lot import amount_text
from broadloom.web.auction_client import AuctionClient
from broadloom.web.pages.layout import button, data_table, empty_state, every, heading, keep_joining, paragraph, section
from broadloom.web.sources import Sources

REFRESH_S = 0.3
LOTS_MAX = 60
"""Lots on the page: those that are running, then the last ones that ended."""
NEWS_MAX = 40
BID_COLUMNS = ("Lot", "Bid", "State", "Entry, receipt")
KINDS = {
    Kind.ENGLISH: "English auction",
    Kind.DUTCH: "Dutch auction",
    Kind.SEALED: "Sealed bids",
    Kind.VICKREY: "Vickrey auction",
}
ABOUT = (
    "English: bids rise, and the highest one is paid. Dutch: the price falls, and the first bid takes it.",
    "Sealed bids: the highest one is paid. Vickrey: the highest one wins, and the second highest is paid.",
    "A bid is accepted when a majority of the notaries has stored it; one of them signs a receipt. It is binding.",
    "Safety comes before progress: without a majority of the notaries nothing is accepted.",
    "A lot is sold when the auctioneer has called it twice and nobody has bid since.",
    "Sealed bids are revealed by this server when bidding has ended: keep it running until then.",
)


def build(sources: Sources) -> None:
    client = sources.auction_client
    if not client.is_available:
        heading("Auction")
        empty_state(
            "Bids need a ticket, which proves the name of the bidder.",
            "Join an auction with one: `broadloom web auction/books --ticket anna.ticket`.",
        )
        return
    heading("Auction", f"You bid as {client.name}. One list for all: the place of a bid in it counts, not the clock.")
    client.start_joining()
    AuctionPage(client)


class AuctionPage:
    def __init__(self, client: AuctionClient) -> None:
        self._client = client
        self._cards: dict[str, LotCard] = {}
        self._room: Room | None = None
        """The one that the cards show."""
        self._shown = -1
        self._wait_label = paragraph("Joining the auction …", "bl-quiet")
        with ui.element("div").classes("bl-auction") as self._all:
            with ui.element("div").classes("bl-auction-lots"):
                self._no_lots = ui.element("div")
                with self._no_lots:
                    empty_state("No lots yet.", "Sellers open them: `broadloom auction open`.")
                self._lots = ui.element("div").classes("bl-lots")
            with ui.element("div").classes("bl-auction-side"):
                with section("Your bids"):
                    self._bids = ui.element("div")
                with section("Entries of the list"):
                    # Not read aloud as it grows: there may be many.
                    self._news = ui.element("ol").classes("bl-news").props('aria-label="Entries of the list"')
                with ui.element("details").classes("bl-section"):
                    with ui.element("summary"):
                        ui.label("How it works")
                    with ui.element("ul").classes("bl-list"):
                        for text in ABOUT:
                            with ui.element("li"):
                                ui.label(text)
        self._all.set_visibility(False)
        every(REFRESH_S, self._refresh)

    def _refresh(self) -> None:
        room = self._client.room
        if room is None or room.is_ended:
            self._all.set_visibility(False)
            self._wait_label.set_visibility(True)
            keep_joining(self._client, self._wait_label)
            return
        if room is not self._room:
            self._room, self._shown = room, -1
            self._lots.clear()
            self._cards.clear()
        self._wait_label.set_text(f"Nothing is accepted at the moment: {room.stalled}." if room.stalled else "")
        self._wait_label.set_visibility(bool(room.stalled))
        self._all.set_visibility(True)
        state = room.ledger.number, len(self._client.receipts)
        if hash(state) != self._shown:
            self._shown = hash(state)
            self._show_lots(room)
            self._show_bids(room)
            self._show_news(room)
        for card in self._cards.values():
            card.tick(time.time())

    def _show_lots(self, room: Room) -> None:
        running = [each for each in room.sales.values() if not each.is_over]
        ended = [each for each in reversed(room.sales.values()) if each.is_over]
        sales = [*running, *ended][:LOTS_MAX]
        self._no_lots.set_visibility(not sales)
        for gone in [lot for lot in self._cards if lot not in {each.lot.id for each in sales}]:
            self._cards.pop(gone).element.delete()
        for position, sale in enumerate(sales):
            if sale.lot.id not in self._cards:
                with self._lots:
                    self._cards[sale.lot.id] = LotCard(self._client, sale)
            card = self._cards[sale.lot.id]
            card.element.move(target_index=position)
            card.show(room.name)

    def _show_bids(self, room: Room) -> None:
        rows = []
        for sale in reversed(room.sales.values()):
            placed = sale.bid_of(room.name)
            if placed is not None:
                signed = self._client.receipts.get(placed.number)
                amount = amount_text(placed.amount) if placed.amount is not None else "sealed"
                receipt = f"{placed.number}, {signed.auctioneer}" if signed is not None else f"{placed.number}"
                rows.append((sale.lot.id, amount, own_state(sale, room.name)[0], receipt))
        self._bids.clear()
        with self._bids:
            if rows:
                data_table("Your bids", BID_COLUMNS, rows)
            else:
                paragraph("None yet.", "bl-quiet bl-small")

    def _show_news(self, room: Room) -> None:
        """The newest entries on top."""
        self._news.clear()
        with self._news:
            for entry in reversed(room.entries[-NEWS_MAX:]):
                with ui.element("li"):
                    ui.label(f"{entry.number}").classes("bl-quiet bl-number")
                    ui.label(entry.lot).classes("bl-guarantee")
                    ui.label(describe(entry)).classes("bl-text")


class LotCard:
    """One lot. Its elements stay, so that an amount that is being typed is not lost."""

    def __init__(self, client: AuctionClient, sale: Sale) -> None:
        self._client, self._sale = client, sale
        lot = sale.lot
        with ui.element("article").classes("bl-lot bl-card").props(f"data-lot={lot.id}") as self.element:
            with ui.element("header"):
                with ui.element("h2"):
                    ui.label(lot.title or lot.id)
                about = f"{lot.id} · " if lot.title else ""
                paragraph(f"{about}{KINDS[lot.kind]} · seller {lot.seller}", "bl-quiet bl-small")
            with ui.element("div").classes("bl-price"):
                self._caption = ui.label("").classes("bl-quiet bl-small")
                self._price = ui.label("").classes("bl-amount")
            self._own = paragraph("", "bl-own")
            self._status = paragraph("", "bl-status")
            self._status.props("role=status")
            with ui.element("div").classes("bl-do") as self._form:
                self._amount = ui.input("Your bid").props("outlined dense stack-label inputmode=decimal maxlength=20")
                self._amount.props["aria-label"] = f"Your bid for {lot.id}"
                self._amount.classes("bl-line")
                button("Bid", partial(self._bid, lot.id), f"bid-{lot.id}", is_primary=True)

    async def _bid(self, lot: str) -> None:
        await self._client.bid(lot, str(self._amount.value or ""))
        self._amount.set_value("")

    def show(self, name: str) -> None:
        sale = self._sale
        lot, leader = sale.lot, sale.leader
        if sale.phase is Phase.SOLD:
            caption, price = f"sold to {sale.winner}", sale.price
        elif sale.phase is Phase.UNSOLD:
            caption, price = f"not sold: {sale.reason}", None
        elif leader is not None and lot.kind is Kind.ENGLISH:
            caption, price = f"highest bid, of {leader.bidder}", leader.amount
        elif lot.kind is Kind.DUTCH:
            caption, price = ("taken by " + leader.bidder if leader is not None else "price now"), sale.minimum_bid
        else:
            caption, price = "bids from", lot.start
        self._caption.set_text(caption)
        self._price.set_text(amount_text(price) if price is not None else "–")
        state, text = own_state(sale, name)
        self._own.set_text(text)
        self.element.props(f"data-phase={sale.phase} data-own={state or 'none'}")
        may_bid = sale.phase is Phase.OPEN and name != lot.seller and (not lot.bidders or name in lot.bidders)
        has_sealed = lot.kind.is_sealed and sale.bid_of(name) is not None
        self._form.set_visibility(may_bid and not has_sealed)
        self._amount.props["placeholder"] = f"{amount_text(sale.minimum_bid)} or more"
        self._amount.update()

    def tick(self, now_s: float) -> None:
        sale = self._sale
        count = len(sale.bids)
        bids = f"{count} bid{'s' * (count != 1)}"
        if sale.is_over:
            text = bids
        elif sale.phase is Phase.REVEAL:
            text = f"{bids}, {sum(each.amount is not None for each in sale.bids.values())} revealed"
        elif sale.calls:
            text = f"{bids} · {CALLS[sale.calls]}"
        else:
            left_s = sale.lot.end_s - now_s
            is_dutch, is_sealed = sale.lot.kind is Kind.DUTCH, sale.lot.kind.is_sealed
            what = "price falls" if is_dutch else "bidding ends" if is_sealed else "calls begin"
            text = f"{bids} · {what} {f'in {duration_text(left_s)}' if left_s > 0 else 'now'}"
        if text != self._status.text:
            self._status.set_text(text)


def own_state(sale: Sale, name: str) -> tuple[str, str]:
    """How a bidder stands, as a word and as a sentence; empty if it has not bid."""
    placed, leader = sale.bid_of(name), sale.leader
    if placed is None:
        return "", ""
    if sale.phase is Phase.SOLD:
        return ("won", "You have won.") if sale.winner == name else ("lost", "You have not won.")
    if sale.phase is Phase.UNSOLD:
        return "unsold", "It was not sold."
    if sale.lot.kind.is_sealed:
        is_revealed = placed.amount is not None
        return ("revealed", "Your bid is revealed.") if is_revealed else ("sealed", "Your sealed bid is in the list.")
    is_leader = leader is not None and leader.bidder == name
    return ("leading", "You lead.") if is_leader else ("outbid", "You are outbid.")


def duration_text(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, rest = divmod(whole, 3600)
    return f"{hours} h {rest // 60:02} min" if hours else f"{rest // 60} min {rest % 60:02} s"
