"""When each peer was a member, and how it ended: left in good order, died, or was there to the end of the tape.

The tape has no word of a death. A peer is dead if it never said that it left, and a neighbour lost it after its last
sign of life. Signs of life are its own rows and what others received from it: a process that is killed takes its last
unfinished file along, so its own rows may end a minute early.
"""

import polars as pl

from broadloom.pipeline.arrow.clock_correction import ClockCorrection
from broadloom.pipeline.arrow.frames import to_arrow, to_polars
from broadloom.protocol.events import LinkDownReason
from broadloom.record.arrow_import import pa

KINDS = ("joined", "leaving", "left", "link_up", "link_down")
COLUMNS = ("channel", "kind", "run", "ordinal", "time", "observer", "neighbour", "why")
_TIME = pa.timestamp("us", tz="UTC")

MEMBERSHIP_INTERVALS = pa.schema(
    [
        pa.field("channel", pa.string()),
        pa.field("peer", pa.string()),
        pa.field("is_recorded", pa.bool_()),
        pa.field("since", _TIME),
        pa.field("joined", _TIME),
        pa.field("last", _TIME),
        pa.field("gone", _TIME),
        pa.field("how", pa.string()),
    ]
)

SIGNS = pa.schema(
    [
        pa.field("channel", pa.string()),
        pa.field("run", pa.string()),
        pa.field("peer", pa.string()),
        pa.field("is_own", pa.bool_()),
        pa.field("first", _TIME),
        pa.field("last", _TIME),
    ]
)
"""First and last sign of life of a peer, by the clock of a run: its own rows, or messages that came from it."""

_KEYS = ["channel", "peer"]
_CRASH_REASONS = [LinkDownReason.CONNECTION_LOST.value, LinkDownReason.HEARTBEAT_TIMEOUT.value]
_LEAVE_REASONS = [LinkDownReason.PEER_LEFT.value, LinkDownReason.LOCAL_LEAVE.value]


def corrected(changes: pa.Table, correction: ClockCorrection) -> pl.DataFrame:
    """The rows of `KINDS` by the reference's clock, in the order of each run."""
    return correction.apply(to_polars(changes), "run", "time").sort("time", "run", "ordinal")


def membership_intervals(changes: pa.Table, signs: pa.Table, correction: ClockCorrection) -> pa.Table:
    """One row a peer: `changes` are the rows of `KINDS`, `signs` the signs of life."""
    rows = corrected(changes, correction)
    shown = correction.apply(correction.apply(to_polars(signs), "run", "first"), "run", "last")
    signed = shown.group_by(_KEYS).agg(
        is_recorded=pl.col("is_own").any(), first=pl.col("first").min(), last=pl.col("last").max()
    )
    own = rows.rename({"observer": "peer"}).group_by(_KEYS)
    told = own.agg(
        joined=pl.col("time").filter(pl.col("kind") == "joined").min(),
        leaving=pl.col("time").filter(pl.col("kind").is_in(["leaving", "left"])).min(),
        has_links=(pl.col("kind") == "link_up").sum() > (pl.col("kind") == "link_down").sum(),
    )
    others = rows.filter(pl.col("neighbour").is_not_null()).drop("observer").rename({"neighbour": "peer"})
    down = pl.col("time").filter(pl.col("kind") == "link_down")
    linked = others.group_by(_KEYS).agg(
        linked=pl.col("time").min(),
        lost=down.filter(pl.col("why").filter(pl.col("kind") == "link_down").is_in(_CRASH_REASONS)).max(),
        farewell=down.filter(pl.col("why").filter(pl.col("kind") == "link_down").is_in(_LEAVE_REASONS)).min(),
    )
    known = pl.concat([signed.select(_KEYS), linked.select(_KEYS)]).unique(_KEYS)
    for part in (signed, told, linked):
        known = known.join(part, on=_KEYS, how="left")
    return to_arrow(_with_end_status(known).sort(_KEYS), MEMBERSHIP_INTERVALS)


def _with_end_status(known: pl.DataFrame) -> pl.DataFrame:
    recorded = pl.col("is_recorded").fill_null(False)
    known = known.with_columns(
        is_recorded=recorded,
        since=pl.min_horizontal("joined", "linked", pl.when(recorded).then("first")),
        # One that records nothing cannot say that it leaves, but its neighbours know.
        leaving=pl.when(recorded).then("leaving").otherwise("farewell"),
        last=pl.coalesce("last", "lost", "farewell", "linked"),
    )
    # A live peer whose link was lost tells of it too, and has rows afterwards; a dead one has none.
    silent = pl.col("lost") > pl.col("last")
    struck = pl.col("has_links") & (pl.col("lost") == pl.col("last"))
    died = pl.col("leaving").is_null() & (silent | struck)
    return known.with_columns(
        gone=pl.when(pl.col("leaving").is_not_null()).then("leaving").when(died).then("last"),
        how=pl.when(pl.col("leaving").is_not_null())
        .then(pl.lit("left"))
        .when(died)
        .then(pl.lit("died"))
        .otherwise(pl.lit("there")),
    )
