"""When each peer was a member, and how it ended: left, crashed, or present at the end of the tape.

A tape has no event for a crash. A peer crashed if it never recorded that it left, and a neighbor lost it after its last
sign of life. Signs of life are its own events and what others received from it: a killed process loses its unfinished
file, so its own events may end a minute early. A peer without a tape also crashed if it was lost by the last neighbor
that recorded a link to it.
"""

import polars as pl

from broadloom.pipeline.arrow.channel_clock import ChannelClock
from broadloom.pipeline.arrow.clock_correction import ClockCorrection
from broadloom.pipeline.arrow.frames import arrow, frame, to_arrow, to_polars, to_schema
from broadloom.pipeline.table import CHANNEL, FLAG, ID, TEXT, TIME, ChannelInputs, Stage, Table, TableColumn, schema_of
from broadloom.record.arrow_import import pa
from broadloom.record.schema import CRASH_REASONS, LEAVE_REASONS

COLUMNS = (
    CHANNEL,
    TableColumn("peer", ID, "ID of the peer."),
    TableColumn("name", TEXT, "Display name, from its `joined` event or an identification; null if unknown."),
    TableColumn("is_recorded", FLAG, "Whether it recorded; if not, it is known from its neighbors only."),
    TableColumn("start_time", TIME, "When it entered the fabric: its first link, or `joined_time`."),
    TableColumn("joined_time", TIME, "When it became a full member."),
    TableColumn("last_seen_time", TIME, "Last sign of life: an event of its own, or a message received from it."),
    TableColumn("end_time", TIME, "When it began to leave or crashed; null if present at the end of the tape."),
    TableColumn("end_status", TEXT, "`left` (gracefully), `crashed` or `present` (at the end of the tape)."),
)
MEMBERSHIP_INTERVALS = schema_of(each for each in COLUMNS if each.name != "name")

KINDS = ("joined", "leaving", "left", "link_up", "link_down")
EVENT_COLUMNS = ("channel", "kind", "run_id", "ordinal", "event_time", "peer", "neighbor", "reason")


SIGNS = pa.schema(
    [
        pa.field("channel", pa.string()),
        pa.field("run_id", pa.string()),
        pa.field("peer", pa.string()),
        pa.field("is_own", pa.bool_()),
        pa.field("first_time", TIME),
        pa.field("last_time", TIME),
    ]
)
"""First and last sign of life of a peer, by the clock of a run: its own events, or messages received from it."""

_KEYS = ["channel", "peer"]


def corrected(changes: pa.Table, correction: ClockCorrection | ChannelClock) -> pl.DataFrame:
    """Membership events by the reference clock, in the order of each run."""
    return correction.apply(to_polars(changes), "run_id", "event_time").sort("event_time", "run_id", "ordinal")


def membership_intervals(changes: pa.Table, signs: pa.Table, correction: ClockCorrection | ChannelClock) -> pa.Table:
    """One row per peer, from the events of `KINDS` and the signs of life."""
    rows = corrected(changes, correction)
    sighted = correction.apply(to_polars(signs), "run_id", "first_time")
    sighted = correction.apply(sighted, "run_id", "last_time")
    by_signs = sighted.group_by(_KEYS).agg(
        is_recorded=pl.col("is_own").any(),
        first_seen_time=pl.col("first_time").min(),
        last_seen_time=pl.col("last_time").max(),
    )
    kind, time = pl.col("kind"), pl.col("event_time")
    by_own_events = rows.group_by(_KEYS).agg(
        joined_time=time.filter(kind == "joined").min(),
        leaving_time=time.filter(kind.is_in(["leaving", "left"])).min(),
        has_links=(kind == "link_up").sum() > (kind == "link_down").sum(),
    )
    others = rows.filter(pl.col("neighbor").is_not_null()).drop("peer").rename({"neighbor": "peer"})
    down = time.filter(kind == "link_down")
    down_reason = pl.col("reason").filter(kind == "link_down")
    by_neighbors = others.group_by(_KEYS).agg(
        linked_time=time.min(),
        is_unlinked=(kind == "link_up").sum() <= (kind == "link_down").sum(),
        last_down_reason=pl.col("reason").filter(kind == "link_down").last(),
        lost_time=down.filter(down_reason.is_in(CRASH_REASONS)).max(),
        farewell_time=down.filter(down_reason.is_in(LEAVE_REASONS)).min(),
    )
    known = pl.concat([by_signs.select(_KEYS), by_neighbors.select(_KEYS)]).unique(_KEYS)
    for part in (by_signs, by_own_events, by_neighbors):
        known = known.join(part, on=_KEYS, how="left")
    return to_arrow(_with_end_status(known).sort(_KEYS), MEMBERSHIP_INTERVALS)


def _with_end_status(known: pl.DataFrame) -> pl.DataFrame:
    is_recorded = pl.col("is_recorded").fill_null(False)
    known = known.with_columns(
        is_recorded=is_recorded,
        start_time=pl.min_horizontal("joined_time", "linked_time", pl.when(is_recorded).then("first_seen_time")),
        # A peer without a tape cannot record that it leaves, but its neighbors do.
        leaving_time=pl.when(is_recorded).then("leaving_time").otherwise("farewell_time"),
        last_seen_time=pl.coalesce("last_seen_time", "lost_time", "farewell_time", "linked_time"),
    )
    # A live peer whose link was lost records that too, and has later events; a crashed one has none.
    is_silent = pl.col("lost_time") > pl.col("last_seen_time")
    is_cut = pl.col("has_links") & (pl.col("lost_time") == pl.col("last_seen_time"))
    is_out_of_sight = ~is_recorded & pl.col("is_unlinked") & pl.col("last_down_reason").is_in(CRASH_REASONS)
    has_left = pl.col("leaving_time").is_not_null()
    has_crashed = ~has_left & (is_silent | is_cut | is_out_of_sight)
    return known.with_columns(
        end_time=pl.when(has_left).then("leaving_time").when(has_crashed).then("last_seen_time"),
        end_status=pl.when(has_left)
        .then(pl.lit("left"))
        .when(has_crashed)
        .then(pl.lit("crashed"))
        .otherwise(pl.lit("present")),
    )


def build(inputs: ChannelInputs) -> pa.Table:
    own = inputs.scan("peer_spans").filter(pl.col("peer").is_not_null()).with_columns(is_own=pl.lit(True))
    relayed = inputs.scan("relayed").with_columns(is_own=pl.lit(False))
    signs = pl.concat([own.select(SIGNS.names), relayed.select(SIGNS.names)])
    found = membership_intervals(membership_events(inputs), arrow(signs), ChannelClock.of(inputs))
    return to_schema(frame(found).join(peer_names(inputs), on="peer", how="left"), schema_of(COLUMNS))


def membership_events(inputs: ChannelInputs) -> pa.Table:
    """Events about membership and links."""
    return arrow(inputs.scan("membership").filter(pl.col("kind").is_in(KINDS)).select(EVENT_COLUMNS))


def peer_names(inputs: ChannelInputs) -> pl.DataFrame:
    """Display name of each peer: from its `joined` event, else from its first identification."""
    names = inputs.scan("names").sort(pl.col("is_own").not_(), "event_time", "name")
    return names.unique("peer", keep="first", maintain_order=True).select("peer", "name")


TABLE = Table(
    "membership_intervals",
    "Which peers were members from when to when?",
    COLUMNS,
    Stage.CHANNEL,
    build,
    depends_on=("clock_offsets",),
)
