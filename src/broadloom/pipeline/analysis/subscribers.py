"""Who a peer is: the name and serial number on its ticket, else the name that it chose, else its peer id.

A name that a peer chose never replaces one on a ticket: a peer without a ticket that chose a name which is on one is
known by its peer id.
"""

import polars as pl

NAMED_KINDS = ("joined", "link_up", "identification", "member_joined", "member_left", "member_lost")
NAME_COLUMNS = ("kind", "event_time", "peer", "author", "neighbor", "name", "role", "ticket_serial", "is_proven")


def gather_names(events: pl.DataFrame) -> pl.DataFrame:
    """All that rows of a tape say about who a peer is, each once."""
    kind = pl.col("kind").cast(pl.String)
    is_joined = kind == "joined"
    subject = pl.when(is_joined).then("peer").when(kind == "link_up").then("neighbor").otherwise("author")
    named = events.filter(
        pl.col("kind").is_in(NAMED_KINDS) & (pl.col("name").is_not_null() | pl.col("ticket_serial").is_not_null())
    )
    keys = [
        subject.alias("peer"),
        pl.col("name", "role", "ticket_serial"),
        pl.col("is_proven").fill_null(False),
        is_joined.alias("is_own"),
    ]
    return named.group_by(keys).agg(pl.col("event_time").min()).filter(pl.col("peer").is_not_null())


def identities(names: pl.DataFrame) -> pl.DataFrame:
    """Name, role, ticket and `is_proven` of each peer: from a ticket, else from its `joined` event, else the first."""
    ranked = names.sort("is_proven", "is_own", "event_time", "name", descending=[True, True, False, False])
    found = ranked.unique("peer", keep="first", maintain_order=True)
    return found.select("peer", "name", "role", "ticket_serial", "is_proven")


def with_subscriber(rows: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Replace `subscriber`, the name that a peer gave or its id, and add `ticket_serial`. `known` has `identities`."""
    proven_name = pl.coalesce("name", "ticket_serial")
    taken = known.filter("is_proven").select(proven_name).to_series().unique()
    chosen = pl.when(pl.col("subscriber") == pl.col("peer")).then(pl.coalesce("name", "peer")).otherwise("subscriber")
    resolved = (
        pl.when(pl.col("is_proven").fill_null(False))
        .then(proven_name)
        .when(chosen.is_in(taken.implode()))
        .then("peer")
        .otherwise(chosen)
    )
    return (
        rows.join(known, on="peer", how="left", maintain_order="left")
        .with_columns(
            subscriber=pl.when(pl.col("subscriber").is_not_null()).then(resolved),
            ticket_serial=pl.when("is_proven").then("ticket_serial"),
        )
        .select(*rows.columns, "ticket_serial")
    )
