"""Lots of auctions, one row per lot."""

import polars as pl

from broadloom.pipeline.analysis.app_entries import count_entries, entries_of, figure
from broadloom.pipeline.analysis.frames import conform
from broadloom.pipeline.billing.config import BillingConfig
from broadloom.pipeline.billing.sales import sale_fee
from broadloom.pipeline.table import CHANNEL, MONEY, ChannelInputs, Stage, Table, column
from broadloom.pipeline.tables.invoices import BILLING_FILE

COLUMNS = (
    CHANNEL,
    column("lot", "ID of the lot."),
    column("kind", "english, dutch, sealed or vickrey; null if no peer recorded the opening."),
    column("seller", "Name on the ticket that opened it."),
    column("status", "open, sold or unsold."),
    column("bid_count", "Bids that were accepted."),
    column("bidder_count", "Names on the tickets of their bidders."),
    column("revealed_count", "Sealed kinds: bids that were revealed; the others were forfeited."),
    column("winner", "Name of the winner."),
    column("price", "What the winner pays.", MONEY),
    column("price_count", "Different prices that peers recorded: 1 if all agree."),
    column("fee", "What the seller owes by the section `sales` of the billing file; null without one.", MONEY),
    column("currency", "Currency of the fee."),
    column("reason", "Why it is unsold."),
    column("entry_number", "Number of its last entry in the list of the auction."),
    column("peer_count", "Peers that recorded the lot."),
    column("start_time", "First record of its opening."),
    column("end_time", "First record of its end."),
)

_KEYS = ["channel", "lot"]


def auction_lots(entries: pl.DataFrame, billing: BillingConfig) -> pl.DataFrame:
    rows = entries_of(entries, "auction").with_columns(
        lot=figure("lot"), lot_kind=figure("kind"), amount=figure("amount").cast(pl.Decimal(18, 4), strict=False)
    )
    status = pl.col("status")
    is_opened, is_sold, is_unsold, is_bid = (status == each for each in ("opened", "sold", "unsold", "bid"))
    found = (
        rows.filter(pl.col("lot").is_not_null())
        .group_by(_KEYS)
        .agg(
            kind=pl.col("lot_kind").filter(is_opened).first(),
            seller=pl.col("owner").filter(is_opened).first(),
            status=pl.when(is_sold.any())
            .then(pl.lit("sold"))
            .when(is_unsold.any())
            .then(pl.lit("unsold"))
            .otherwise(pl.lit("open")),
            bid_count=count_entries(is_bid),
            bidder_count=pl.col("owner").filter(is_bid).n_unique().cast(pl.Int64),
            revealed_count=count_entries(status == "revealed"),
            winner=pl.col("owner").filter(is_sold).first(),
            price=pl.col("amount").filter(is_sold).first(),
            price_count=pl.col("amount").filter(is_sold).n_unique().cast(pl.Int64),
            reason=pl.col("reason").filter(is_unsold).first(),
            entry_number=pl.col("sequence").max(),
            peer_count=pl.col("peer").n_unique().cast(pl.Int64),
            start_time=pl.col("event_time").filter(is_opened).min(),
            end_time=pl.col("event_time").filter(is_sold | is_unsold).min(),
        )
    )
    fees = [None if price is None else sale_fee(price, billing) for price in found["price"]]
    has_fee = pl.col("fee").is_not_null()
    found = found.with_columns(fee=pl.Series(fees, dtype=pl.Decimal(18, 4)))
    return conform(found.with_columns(currency=pl.when(has_fee).then(pl.lit(billing.currency))).sort(_KEYS), COLUMNS)


def build(inputs: ChannelInputs) -> pl.DataFrame:
    return auction_lots(inputs.scan("app_entries"), inputs.billing)


TABLE = Table(
    "auction_lots",
    "Which lots were sold, to whom, at what price, and what do their sellers owe?",
    COLUMNS,
    Stage.CHANNEL,
    build,
    settings=(BILLING_FILE,),
)
