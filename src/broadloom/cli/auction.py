"""`broadloom auction`: serve, open and bid in auctions, and verify their logs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from broadloom.cli.exit_codes import FAILURE, SUCCESS, CommandFailedError, UsageError, usage_errors
from broadloom.cli.formatting import escape_control_chars, json_line
from broadloom.cli.options import ChannelArgument, JoinOptions, JsonOption, argument, command_group, option
from broadloom.cli.output import Output, console, print_json, print_result, table
from broadloom.cli.record import TapeOption, recorded
from broadloom.cli.runner import StopSignal, command, joined_channel, report_end

if TYPE_CHECKING:
    from broadloom.apps.auction import AuctionEntry, Room, Sale
    from broadloom.record import Tape

auction = command_group(
    "Sell and bid in auctions, and verify them.\n\n"
    "The owner of the channel creates an authority (`broadloom authority create --channel auction/books`) and issues "
    "tickets to bidders and sellers, and to the notaries: `notary-1`, `notary-2`, `notary-3`. Each notary runs "
    "`serve`. In a partition only the side with a majority of the notaries accepts bids.\n\n"
    "Examples:\n\n"
    "- `broadloom auction serve auction/books --store notary-1.db --ticket notary-1.ticket`\n"
    "- `broadloom auction open auction/books lot-3 --start 10 --ticket sam.ticket`\n"
    "- `broadloom auction bid auction/books lot-3 25.50 --ticket anna.ticket`\n"
    "- `broadloom auction verify books.log --ticket anna.ticket`",
)

LotArgument = Annotated[str, argument("Id of the lot, as in `lot-3`.", "LOT")]
LASTS_MAX_S = 366 * 86_400.0
NotariesOption = Annotated[int, option("Number of notaries: 3, 5, 7 or 9; the same at all members.", "N")]
SealedOption = Annotated[
    Path | None, option("File that keeps the secrets of your sealed bids until they are revealed.", "FILE")
]
KINDS = ("english", "dutch", "sealed", "vickrey")


@command("auction serve", auction)
async def serve(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    store: Annotated[Path, option("SQLite file with the votes and the list of this notary. Never replace it.", "FILE")],
    notaries: NotariesOption = 3,
    json: JsonOption = False,
) -> int:
    """Be a notary until interrupted, and the auctioneer when it is your turn.

    The ticket must be issued to `notary-1`, `notary-2` and so on. The first start needs all of them; afterwards a
    majority is enough. If the auctioneer fails, another notary continues from the same list.

    Examples:

    - `broadloom auction serve auction/books --store notary-1.db --ticket notary-1.ticket`
    """
    async with _room(channel, join_options, stop, notaries, is_current=False, store=store) as room, Output(stop) as out:
        if not room.is_notary:
            raise UsageError(f"{room.name} is not a notary: use a ticket for {', '.join(room.ledger.notaries)}")
        stop.interrupt_is_success = True
        text = f"{escape_control_chars(channel)} is served by {escape_control_chars(room.name)}"
        values = {"event": "serving", "channel": channel, "notary": room.name}
        await out.write(f"{json_line(values) if json else text}\n")
        async for entry in room:
            await out.write(f"{json_line(entry_fields(entry)) if json else entry_text(entry)}\n")
        return report_end(stop.command, room.channel)


@command("auction open", auction)
async def open_lot(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    lot: LotArgument,
    start: Annotated[str, option("Lowest bid; Dutch: the price at the beginning.", "AMOUNT")],
    kind: Annotated[str, option(f"One of {', '.join(KINDS)}.", "KIND")] = "english",
    step: Annotated[str, option("English: lowest raise. Dutch: by how much the price falls.", "AMOUNT")] = "1",
    reserve: Annotated[str, option("Below this the lot is not sold. Everyone can see it.", "AMOUNT")] = "0",
    lasts: Annotated[
        float, option("Time until the auctioneer begins to call.", "SECONDS", min=0, max=LASTS_MAX_S)
    ] = 600.0,
    call: Annotated[float, option("Time between two calls.", "SECONDS")] = 5.0,
    extension: Annotated[float, option("Time after a late bid, or for the reveal of sealed bids.", "SECONDS")] = 30.0,
    title: Annotated[str, option("What is sold.", "TEXT")] = "",
    bidder: Annotated[list[str] | None, option("Only this name may bid; repeatable.", "NAME")] = None,
    notaries: NotariesOption = 3,
    json: JsonOption = False,
) -> None:
    """Open a lot. You are its seller.

    Examples:

    - `broadloom auction open auction/books lot-3 --start 10 --step 2.50 --title "First edition" --ticket sam.ticket`
    - `broadloom auction open auction/books tulips --kind dutch --start 100 --step 5 --reserve 40 --ticket sam.ticket`
    """
    from broadloom.apps.auction import Kind, Lot

    if kind not in KINDS:
        raise UsageError(f"--kind {kind}: must be one of {', '.join(KINDS)}")
    with usage_errors():
        terms: dict[str, Any] = {"start": start, "step": step, "reserve": reserve, "title": title}
        opened = Lot(
            id=lot,
            kind=Kind(kind),
            end=datetime.now(UTC) + timedelta(seconds=lasts),
            call_s=call,
            extension_s=extension,
            bidders=tuple(bidder or ()),
            **terms,
        )
    async with _room(channel, join_options, stop, notaries) as room:
        number = await room.open_lot(opened, timeout_s=join_options.timeout)
    print_result({"lot": lot, "number": number}, f"{lot} is open: entry {number}", json=json)


@command("auction bid", auction)
async def bid(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    lot: LotArgument,
    amount: Annotated[str, argument("The amount, as in `25` or `25.50`.", "AMOUNT")],
    receipt: Annotated[Path | None, option("Write the receipt, signed by the auctioneer, to a file.", "FILE")] = None,
    sealed_bids: SealedOption = None,
    wait: Annotated[bool, option("Stay until the lot is over, and reveal a sealed bid.")] = False,
    notaries: NotariesOption = 3,
    json: JsonOption = False,
) -> int:
    """Bid for a lot. A bid cannot be taken back.

    A sealed bid has to be revealed when bidding has ended, or it is forfeited: stay with `--wait`, or keep it with
    `--sealed-bids` and run `watch` with the same file later.

    Examples:

    - `broadloom auction bid auction/books lot-3 25.50 --receipt lot-3.receipt --ticket anna.ticket`
    - `broadloom auction bid auction/books lot-4 80 --sealed-bids anna.bids --wait --ticket anna.ticket`
    """
    from broadloom.apps.auction import Sold, Unsold

    if receipt is not None and not receipt.exists():  # a bid cannot be taken back, so its file must not fail later
        receipt.touch()
        receipt.unlink()
    async with _room(channel, join_options, stop, notaries, sealed_bids=sealed_bids) as room:
        sale = room.ledger.sale(lot)
        if sale.lot.kind.is_sealed and sealed_bids is None and not wait:
            raise UsageError(f"bids for {lot} are sealed and must be revealed later: give --sealed-bids FILE or --wait")
        with usage_errors():
            found = await room.bid(lot, amount, timeout_s=join_options.timeout)
        values = {"lot": lot, "number": found.number, "amount": found.amount, "auctioneer": found.auctioneer}
        print_result(values, f"accepted as entry {found.number}, signed by {found.auctioneer}", json=json)
        if receipt is not None:  # after that, because the bid counts even if this fails
            receipt.write_bytes(found.encode())
        if not wait:
            return SUCCESS
        async with Output(stop) as out:
            async for entry in room:
                if entry.lot != lot or entry.number <= found.number:
                    continue
                await out.write(f"{json_line(entry_fields(entry)) if json else entry_text(entry)}\n")
                if isinstance(entry, Sold | Unsold):
                    return SUCCESS
        report_end(stop.command, room.channel)
        return FAILURE


@command("auction list", auction)
async def list_lots(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    notaries: NotariesOption = 3,
    json: JsonOption = False,
) -> None:
    """List the lots.

    Examples:

    - `broadloom auction list auction/books --ticket anna.ticket`
    """
    async with _room(channel, join_options, stop, notaries) as room:
        sales = list(room.sales.values())
    if json:
        for each in sales:
            print_json(_sale_fields(each))
        return
    console().print(_sale_table(sales))


@command("auction show", auction)
async def show(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    lot: LotArgument,
    notaries: NotariesOption = 3,
    json: JsonOption = False,
) -> None:
    """Show a lot and its bids.

    Examples:

    - `broadloom auction show auction/books lot-3 --ticket anna.ticket`
    """
    async with _room(channel, join_options, stop, notaries) as room:
        sale = room.ledger.sale(lot)
    if json:
        bids = [
            {"number": each.number, "bidder": each.bidder, "amount": _text(each.amount)} for each in sale.bids.values()
        ]
        print_json({**_sale_fields(sale), "bids": bids})
        return
    console().print(_sale_table([sale]))
    rows = table(["entry", "bidder", "amount"], right=("entry", "amount"))
    for each in sale.bids.values():
        rows.add_row(f"{each.number:,}", Text(escape_control_chars(each.bidder)), _text(each.amount) or "sealed")
    console().print(rows)


@command("auction watch", auction)
async def watch(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    sealed_bids: SealedOption = None,
    count: Annotated[int, option("Stop after this many lines. Default: until interrupted.", "N", min=0)] = 0,
    tape: TapeOption = None,
    notaries: NotariesOption = 3,
    json: JsonOption = False,
) -> int:
    """Print what has happened so far, then everything that happens, and reveal your sealed bids.

    Examples:

    - `broadloom auction watch auction/books --ticket anna.ticket`
    - `broadloom auction watch auction/books --sealed-bids anna.bids --tape tapes --ticket anna.ticket`
    """
    async with (
        recorded(tape) as recording,
        _room(channel, join_options, stop, notaries, tape=recording, sealed_bids=sealed_bids) as room,
        Output(stop) as out,
    ):
        stop.interrupt_is_success = True
        printed = 0
        async for entry in room:
            await out.write(f"{json_line(entry_fields(entry)) if json else entry_text(entry)}\n")
            printed += 1
            if printed == count:
                return SUCCESS
        return report_end(stop.command, room.channel)


@command("auction export", auction)
async def export(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    file: Annotated[Path, argument("File for the log.", "FILE")],
    notaries: NotariesOption = 3,
    json: JsonOption = False,
) -> None:
    """Write the log of an auction to a file: every entry, with the signature of its author.

    Examples:

    - `broadloom auction export auction/books books.log --ticket anna.ticket`
    """
    async with _room(channel, join_options, stop, notaries) as room:
        room.export(file)
        count = len(room.ledger.records)
    print_result({"file": str(file), "entries": count}, f"{count:,} entries", json=json)


@command("auction verify", auction)
def verify(
    file: Annotated[Path, argument("Log from `broadloom auction export`, or a tape with payloads.", "FILE")],
    ticket: Annotated[
        Path | None, option("Your ticket: the log must be of the authority that issued it.", "FILE")
    ] = None,
    receipt: Annotated[
        list[Path] | None, option("The log must have the bid of this receipt; repeatable.", "FILE")
    ] = None,
    number: Annotated[int | None, option("Which of several auctions on a tape.", "N", min=1)] = None,
    notaries: NotariesOption = 3,
    json: JsonOption = False,
) -> None:
    """Repeat an auction from its log, and name winners and prices.

    Checks every signature, and that the list is the one that the auctioneers have signed. Needs no connection. The tape
    of a member with payloads (`watch --tape`, a directory or one of its files) has the log, too.

    Examples:

    - `broadloom auction verify books.log --ticket anna.ticket --receipt lot-3.receipt`
    - `broadloom auction verify tapes --ticket anna.ticket`
    """
    from broadloom.apps.auction import Receipt, read_log
    from broadloom.security import Ticket

    authority = Ticket.load(ticket).authority if ticket is not None else None
    with usage_errors():
        ledger, fingerprint = read_log(file, authority, notaries, number=number)
    for path in receipt or ():
        with usage_errors(f"{path} is "):
            found = Receipt.decode(path.read_bytes())
        found.check(ledger)
    contradicted_by = sorted({ledger.by_number[each].signed.author for each in ledger.contradictions})
    values = {
        "auction": ledger.auction,
        "entries": len(ledger.records),
        "signed_up_to": ledger.signed_up_to,
        "contradicted_by": contradicted_by,
        "authority": fingerprint,
        "is_authority_checked": authority is not None,
        "lots": [_sale_fields(each) for each in ledger.sales.values()],
    }
    if json:
        print_json(values)
        return
    console().print(_sale_table(list(ledger.sales.values())))
    print(f"{len(ledger.records):,} entries, signed by auctioneers up to entry {ledger.signed_up_to:,}")
    for name in contradicted_by:
        print(f"{escape_control_chars(name)} has signed another list, and another notary this one")
    print(f"authority {fingerprint}{'' if authority else ': as the file says, compare it or give --ticket'}")


@asynccontextmanager
async def _room(
    channel: str,
    join_options: JoinOptions,
    stop: StopSignal,
    notaries: int,
    *,
    is_current: bool = True,
    tape: "Tape | None" = None,
    **options: Any,
) -> "AsyncIterator[Room]":
    """With the list as far as the notaries know it; a notary starts without."""
    from broadloom.apps.auction import Room

    if join_options.ticket is None:
        raise UsageError("an auction needs a ticket of the channel's owner: give it with --ticket")
    async with joined_channel(channel, join_options, stop, tape=tape) as joined:
        with usage_errors():
            room = Room(joined, notaries=notaries, **options)
        async with room:
            try:
                if is_current:
                    await room.wait_until_current(join_options.timeout)
            except TimeoutError as problem:
                raise CommandFailedError(str(problem)) from None
            yield room


def _text(amount: Decimal | None) -> str:
    from broadloom.apps.auction.lot import amount_text

    return amount_text(amount) if amount is not None else ""


def entry_fields(entry: "AuctionEntry") -> dict[str, Any]:
    values: dict[str, Any] = {"event": type(entry).__name__}
    for each in fields(entry):
        value = getattr(entry, each.name)
        values[each.name] = _text(value) if isinstance(value, Decimal) else value
    if "terms" in values:
        values["terms"] = {**values["terms"].as_dict(), "seller": values["terms"].seller}
    return values


def entry_text(entry: "AuctionEntry") -> str:
    """One line of the list."""
    from broadloom.apps.auction.entry_text import describe

    return f"{entry.number:>5}  {escape_control_chars(f'{entry.lot}: {describe(entry)}')}"


def _sale_fields(sale: "Sale") -> dict[str, Any]:
    from broadloom.apps.auction.sale import Phase

    leader = sale.leader
    return {
        **sale.lot.as_dict(),
        "seller": sale.lot.seller,
        "phase": sale.phase.value,
        "minimum_bid": _text(sale.minimum_bid) if sale.phase is Phase.OPEN else "",
        "leader": leader.bidder if leader is not None else "",
        "winner": sale.winner,
        "price": _text(sale.price),
        "reason": sale.reason,
        "bid_count": len(sale.bids),
    }


def _sale_table(sales: "list[Sale]") -> Any:
    rows = table(["lot", "title", "kind", "phase", "price", "leader", "bids", "ends"], right=("price", "bids"))
    for each in sales:
        leader = each.leader
        price = each.price if each.is_over else leader.amount if leader is not None else each.minimum_bid
        who = each.winner or (leader.bidder if leader is not None and not each.is_over else each.reason)
        cells = (each.lot.id, each.lot.title, each.lot.kind, each.phase, _text(price), who, f"{len(each.bids):,}")
        rows.add_row(
            *(Text(escape_control_chars(str(cell))) for cell in cells), f"{each.lot.end:%Y-%m-%d %H:%M:%S} UTC"
        )
    if not sales:
        rows.add_row(Text("none", style="dim"))
    return rows
