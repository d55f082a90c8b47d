"""When each peer was a member, and how it ended: left, crashed, or present at the end of the tape.

A tape has no event for a crash. A peer crashed if it never recorded that it left, and a neighbor lost it after its last
sign of life. Signs of life are its own events and what others received from it: a killed process loses its unfinished
file, so its own events may end a minute early. A peer without a tape also crashed if it was lost by the last neighbor
that recorded a link to it.

Of peers without a tape, recorders know from the roster when they joined, left and were lost. One that a recorder still
has in its roster has not crashed.
"""

import polars as pl

from broadloom.pipeline.analysis.channel_clock import ChannelClock
from broadloom.pipeline.analysis.clock_correction import ClockCorrection
from broadloom.pipeline.analysis.frames import conform, in_us
from broadloom.pipeline.analysis.subscribers import identities
from broadloom.pipeline.table import CHANNEL, ChannelInputs, Stage, Table, column
from broadloom.record.schema import CRASH_REASONS, LEAVE_REASONS

COLUMNS = (
    CHANNEL,
    column("peer", "ID of the peer."),
    column("name", "Name on its ticket, else the name it chose; null if unknown."),
    column("is_recorded", "Whether it recorded; if not, it is known from neighbors and rosters only."),
    column("start_time", "When it entered the fabric: its first link, or `joined_time`."),
    column("joined_time", "When it became a full member, or was first seen in a roster."),
    column(
        "last_seen_time",
        "Last sign of life: an event of its own, a message received from it, or a recorder that has it in its roster.",
    ),
    column("end_time", "When it began to leave or crashed; null if present at the end of the tape."),
    column("end_status", "`left` (gracefully), `crashed` or `present` (at the end of the tape)."),
    column("role", "Role on its ticket: `producer` or `consumer`; null without a ticket."),
    column("ticket_serial", "Serial number of its ticket; null without a ticket."),
    column("is_proven", "Whether the name is on a ticket; null if it has none."),
)
IDENTITY = ("name", "role", "ticket_serial", "is_proven")
MEMBERSHIP_COLUMNS = tuple(each for each in COLUMNS if each.name not in IDENTITY)

KINDS = ("joined", "leaving", "left", "link_up", "link_down")
ROSTER_KINDS = ("member_joined", "member_left", "member_lost")
ROSTER_DELAY_US = 10_000_000
"""A recorder that ended within this time of a loss may not have noticed it."""
EVENT_COLUMNS = ("channel", "kind", "run_id", "ordinal", "event_time", "peer", "neighbor", "reason")


_KEYS = ["channel", "peer"]


def corrected(changes: pl.DataFrame, correction: ClockCorrection | ChannelClock) -> pl.DataFrame:
    """Membership events by the reference clock, in the order of each run."""
    return correction.apply(in_us(changes), "run_id", "event_time").sort("event_time", "run_id", "ordinal")


def membership_intervals(
    changes: pl.DataFrame,
    signs: pl.DataFrame,
    correction: ClockCorrection | ChannelClock,
    roster: pl.DataFrame,
) -> pl.DataFrame:
    """One row per peer, without `IDENTITY`, from the events of `KINDS`.

    `signs` has the first and last sign of life of each peer by the clock of a run: its own events (`is_own`), or
    messages received from it. `roster` has what recorders (`observer`) saw in the roster: the events of `ROSTER_KINDS`.
    """
    rows = corrected(changes, correction)
    sighted = correction.apply(in_us(signs), "run_id", "first_time")
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
    seen = corrected(roster, correction)
    by_roster = _by_roster(seen, by_signs)
    parts = (by_signs, by_own_events, by_neighbors, by_roster)
    known = pl.concat([each.select(_KEYS) for each in (by_signs, by_neighbors, by_roster)]).unique(_KEYS)
    for part in parts:
        known = known.join(part, on=_KEYS, how="left")
    return conform(_with_end_status(known).sort(_KEYS), MEMBERSHIP_COLUMNS)


def _by_roster(seen: pl.DataFrame, by_signs: pl.DataFrame) -> pl.DataFrame:
    """When each member was in a roster. `listed_until` is the end of the last recorder that still had it in its own."""
    observers = by_signs.select("channel", observer="peer", observer_end="last_seen_time")
    kind, time = pl.col("kind"), pl.col("event_time")
    by_observer = seen.group_by(*_KEYS, "observer", maintain_order=True).agg(
        listed_time=time.filter(kind == "member_joined").min(),
        unlisted_time=time.filter(kind == "member_left").min(),
        first_time=time.min(),
        last_kind=kind.last(),
        last_time=time.last(),
    )
    last_kind = pl.col("last_kind")
    return (
        by_observer.join(observers, on=["channel", "observer"], how="left")
        .group_by(_KEYS)
        .agg(
            listed_time=pl.coalesce(pl.col("listed_time").min(), pl.col("first_time").min()),
            unlisted_time=pl.col("unlisted_time").min(),
            missing_time=pl.col("last_time").filter(last_kind == "member_lost").max(),
            listed_until=pl.col("observer_end").filter(last_kind == "member_joined").max(),
        )
    )


def _with_end_status(known: pl.DataFrame) -> pl.DataFrame:
    is_recorded = pl.col("is_recorded").fill_null(False)
    known = known.with_columns(
        is_recorded=is_recorded,
        joined_time=pl.when(is_recorded).then("joined_time").otherwise("listed_time"),
        # A peer without a tape cannot record that it leaves, but its neighbors and all rosters do.
        leaving_time=pl.when(is_recorded)
        .then("leaving_time")
        .otherwise(pl.min_horizontal("farewell_time", "unlisted_time")),
        last_seen_time=pl.coalesce(
            "last_seen_time",
            "lost_time",
            "farewell_time",
            "missing_time",
            "unlisted_time",
            "linked_time",
            "listed_time",
        ),
    )
    known = known.with_columns(
        start_time=pl.min_horizontal("joined_time", "linked_time", pl.when(is_recorded).then("first_seen_time"))
    )
    # A live peer whose link was lost records that too, and has later events; a crashed one has none.
    is_silent = pl.col("lost_time") > pl.col("last_seen_time")
    is_cut = pl.col("has_links") & (pl.col("lost_time") == pl.col("last_seen_time"))
    is_out_of_sight = ~is_recorded & pl.col("is_unlinked") & pl.col("last_down_reason").is_in(CRASH_REASONS)
    is_missing = ~is_recorded & pl.col("missing_time").is_not_null()
    noticed_by = pl.max_horizontal("missing_time", "lost_time") + ROSTER_DELAY_US
    is_listed = ~is_recorded & (pl.col("listed_until") > noticed_by)
    has_left = pl.col("leaving_time").is_not_null()
    is_lost = pl.any_horizontal(each.fill_null(False) for each in (is_silent, is_cut, is_out_of_sight, is_missing))
    has_crashed = ~has_left & is_lost & ~is_listed.fill_null(False)
    crash_time = (
        pl.when(is_missing).then(pl.max_horizontal("last_seen_time", "missing_time")).otherwise("last_seen_time")
    )
    return known.with_columns(
        last_seen_time=pl.when(has_left | has_crashed)
        .then("last_seen_time")
        .otherwise(pl.max_horizontal("last_seen_time", "listed_until")),
        end_time=pl.when(has_left).then("leaving_time").when(has_crashed).then(crash_time),
        end_status=pl.when(has_left)
        .then(pl.lit("left"))
        .when(has_crashed)
        .then(pl.lit("crashed"))
        .otherwise(pl.lit("present")),
    )


def build(inputs: ChannelInputs) -> pl.DataFrame:
    own = inputs.scan("peer_spans").filter(pl.col("peer").is_not_null()).with_columns(is_own=pl.lit(True))
    relayed = inputs.scan("relayed").with_columns(is_own=pl.lit(False))
    signs = pl.concat([own, relayed], how="diagonal")
    found = membership_intervals(membership_events(inputs), signs, ChannelClock.of(inputs), inputs.scan("roster"))
    return conform(found.join(identities(inputs.scan("names")), on="peer", how="left"), COLUMNS)


def membership_events(inputs: ChannelInputs) -> pl.DataFrame:
    """Events about membership and links."""
    return inputs.scan("membership").filter(pl.col("kind").is_in(KINDS)).select(EVENT_COLUMNS)


TABLE = Table(
    "membership_intervals",
    "Which peers were members from when to when?",
    COLUMNS,
    Stage.CHANNEL,
    build,
    depends_on=("clock_offsets",),
)
