"""From signs of life to sessions: a subscriber is connected until it has been silent for too long.

For each peer of a subscriber, two signs belong together if at most `timeout_us` lies between them. Signs that belong
together form a span, from the first sign to `tail_us` after the last; if the peer recorded that it left, to exactly
that moment. A session of a subscriber is what the spans of all its peers cover without a gap.

The order of the signs and how often each was seen do not matter: the same signs give the same sessions, and a late sign
that closes a gap merges two sessions in the next run.

A member whose subscriber never identified itself is connected while it is a member: from the `joined` event that it
recorded, or from when a recorder saw it in the roster. The column `evidence` says what a session rests on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from broadloom.pipeline.analysis.frames import arrow, empty, frame, frame_us, table_us
from broadloom.pipeline.analysis.subscribers import identities, with_subscriber
from broadloom.pipeline.billing.money import to_decimal
from broadloom.pipeline.table import (
    CHANNEL,
    COUNT,
    EXACT_MS,
    FLAG,
    TEXT,
    TIME,
    ChannelInputs,
    Stage,
    Table,
    TableColumn,
    TableSetting,
    TableSettingError,
    schema_of,
)
from broadloom.record.arrow_import import pa

KINDS = ("identification", "joined", "leaving", "left", "member_joined", "member_left")
_OF_OTHERS = ("identification", "member_joined", "member_left")
SIGN_COLUMNS = {
    "peer": pl.when(pl.col("kind").is_in(_OF_OTHERS)).then(pl.col("author").fill_null("")).otherwise("peer"),
    # A subscriber without a name is known by its peer ID.
    "subscriber": pl.when(pl.col("kind") == "identification").then(pl.coalesce("name", "author", pl.lit(""))),
    # From `leaving` on a peer is due no messages, so it is not charged.
    "sign": pl.col("kind").replace({"leaving": "left", "member_joined": "joined", "member_left": "left"}),
}
"""From rows of a tape to signs of life. A member that is lost may return, so that is none."""
SETTINGS = (
    TableSetting("identification_interval_s", 3600.0, "Interval at which subscribers identify themselves."),
    TableSetting("identifications_missed_max", 0, "Missed identifications before a session is over."),
    TableSetting("identification_grace_s", 300.0, "How late an identification may be before it counts as missed."),
    TableSetting("identification_window_s", 60.0, "Sightings within this time count as one identification."),
    TableSetting(
        "session_tail_s",
        3600.0,
        "How long a subscriber counts as connected after its last identification, unless it left. With 3600 and hourly "
        "identifications each stands for an hour; with 0 only proven time counts.",
    ),
)

COLUMNS = (
    CHANNEL,
    TableColumn("subscriber", TEXT, "Name on its ticket, else the name it chose, else its peer ID."),
    TableColumn("start_time", TIME, "First sign of life: an identification, or that it joined."),
    TableColumn("end_time", TIME, "When it left, else the last sign plus the tail, within the tapes."),
    TableColumn("connected_ms", EXACT_MS, "Duration of the session."),
    TableColumn("identification_count", COUNT, "Identifications, each counted once."),
    TableColumn("peer_count", COUNT, "Peers of the subscriber: reconnects without a gap, or several devices."),
    TableColumn(
        "end_status",
        TEXT,
        "`left`, `timed_out`, `crashed` (not from identifications), or `open` (the tapes end before the timeout).",
    ),
    TableColumn(
        "evidence",
        TEXT,
        "What it rests on: `identifications`, `roster` (a recorder had it in its roster), or `membership` (only its "
        "own `joined` event, and how the membership ended).",
    ),
    TableColumn("ticket_serial", TEXT, "Serial number of its (last) ticket; null without a ticket."),
    TableColumn("is_proven", FLAG, "Whether the name is on a ticket; if not, anyone could choose it."),
)
SESSIONS = schema_of(COLUMNS)

SECOND_US = 1_000_000
ROSTER_DELAY = timedelta(seconds=10)
"""A recorder that ends this long before the tapes has ended with them."""


@dataclass(frozen=True, slots=True)
class SessionRule:
    interval_s: float
    """Interval at which subscribers identify themselves."""
    missed_max: int
    """Missed identifications before a session is over."""
    grace_s: float
    """How late an identification may be."""
    tail_s: float
    """How long a subscriber counts as connected after its last sign, unless it left."""
    window_s: float
    """Sightings within this time count as one identification."""

    def __post_init__(self) -> None:
        if self.interval_s <= 0 or self.missed_max < 0 or self.grace_s < 0 or self.tail_s < 0:
            raise TableSettingError(
                "identification_interval_s must be above 0, and identifications_missed_max, identification_grace_s and "
                "session_tail_s must not be negative"
            )
        if not 0 < self.window_s < self.interval_s:
            raise TableSettingError(
                f"identification_window_s must be above 0 and below identification_interval_s, not {self.window_s}"
            )
        if self.tail_us > self.timeout_us:
            raise TableSettingError(
                f"session_tail_s must be at most the silence that ends a session, here {self.timeout_us / SECOND_US} s"
            )

    @property
    def timeout_us(self) -> int:
        """Silence longer than this ends a session."""
        return round((self.interval_s * (1 + self.missed_max) + self.grace_s) * SECOND_US)

    @property
    def tail_us(self) -> int:
        return round(self.tail_s * SECOND_US)

    @property
    def window_us(self) -> int:
        return round(self.window_s * SECOND_US)


SIGNS: pa.Schema = pa.schema(
    [
        ("channel", pa.string()),
        ("peer", pa.string()),
        ("subscriber", pa.string()),
        ("sign", pa.string()),
        ("first_time", TIME),
        ("last_time", TIME),
    ]
)
"""Signs of life, already combined within `window_us`. `sign` is identification, joined or left; only identifications
have a subscriber."""

SPANS: pa.Schema = pa.schema(
    [
        ("channel", pa.string()),
        ("subscriber", pa.string()),
        ("peer", pa.string()),
        ("start_time", TIME),
        ("last_time", TIME),
        ("end_time", TIME),
        ("has_left", pa.bool_()),
        ("identification_count", pa.int64()),
    ]
)


_LAST_TICKET = pl.col("ticket_serial").drop_nulls().last()
_KEYS = ["channel", "subscriber", "peer"]
_PEER = ["channel", "peer"]


def spans(signs: pa.Table, rule: SessionRule) -> pa.Table:
    """When each peer of a subscriber was connected. The table must hold all signs of a peer."""
    frame = frame_us(signs)
    identifications = _identifications(frame.filter(pl.col("sign") == "identification"), rule)
    joined = frame.filter(pl.col("sign") == "joined")
    joined = joined.select(*_PEER, "first_time", "last_time", is_new=pl.lit(0, pl.Int64))
    left = frame.filter(pl.col("sign") == "left").group_by(_PEER).agg(left_time=pl.col("first_time").min())
    subscribers = identifications.select(_KEYS).unique()
    ordered = (
        pl.concat([identifications, subscribers.join(joined, on=_PEER).select(identifications.columns)])
        .join(left, on=_PEER, how="left")
        # A message in flight when its author left is seen after that.
        .with_columns(pl.min_horizontal("first_time", "left_time"), pl.min_horizontal("last_time", "left_time"))
        .sort([*_KEYS, "first_time", "last_time"])
    )
    silence = pl.col("first_time") - _furthest_end("last_time", _KEYS)
    starts_span = _starts_group(_KEYS) | (silence > rule.timeout_us)
    found = (
        ordered.with_columns(span=starts_span.cum_sum())
        .group_by("span", maintain_order=True)
        .agg(
            *(pl.col(key).first() for key in _KEYS),
            start_time=pl.col("first_time").min(),
            last_time=pl.col("last_time").max(),
            left_time=pl.col("left_time").first(),
            identification_count=pl.col("is_new").sum(),
        )
        .with_columns(has_left=(pl.col("left_time") - pl.col("last_time") <= rule.timeout_us).fill_null(False))
        .with_columns(end_time=pl.when("has_left").then("left_time").otherwise(pl.col("last_time") + rule.tail_us))
    )
    return table_us(found, SPANS)


def sessions(spans: pa.Table, rule: SessionRule) -> pa.Table:
    """Merge the spans of a subscriber. `tape_end_time` is the end of the channel's tapes: a session does not extend
    beyond it, and is open if more signs could still continue it. `ticket_serial` may be missing."""
    keys = ["channel", "subscriber"]
    every = frame_us(spans)
    if "ticket_serial" not in every.columns:
        every = every.with_columns(ticket_serial=pl.lit(None, pl.String))
    frame = (
        every.with_columns(
            is_open=~pl.col("has_left") & (pl.col("last_time") + rule.timeout_us >= pl.col("tape_end_time"))
        )
        .with_columns(end_time=pl.max_horizontal(pl.min_horizontal("end_time", "tape_end_time"), "last_time"))
        .sort([*keys, "start_time", "end_time", "peer"])
    )
    starts_session = _starts_group(keys) | (pl.col("start_time") > _furthest_end("end_time", keys))
    status = pl.when("is_open").then(pl.lit("open")).when("has_left").then(pl.lit("left"))
    found = (
        frame.with_columns(session=starts_session.cum_sum())
        .group_by("session", maintain_order=True)
        .agg(
            *(pl.col(key).first() for key in keys),
            pl.col("start_time").min(),
            pl.col("end_time").max(),
            pl.col("identification_count").sum(),
            peer_count=pl.col("peer").n_unique().cast(pl.Int64),
            is_open=pl.col("is_open").any(),
            has_left=(pl.col("has_left") & (pl.col("end_time") == pl.col("end_time").max())).any(),
            ticket_serial=_LAST_TICKET,
        )
        .with_columns(end_status=status.otherwise(pl.lit("timed_out")), evidence=pl.lit("identifications"))
    )
    return _completed(found)


def membership_sessions(
    intervals: pl.DataFrame, identified: pl.DataFrame, in_roster: pl.Series, tape_end_time: datetime
) -> pa.Table:
    """Sessions of members that never identified themselves, from the table `membership_intervals` with `subscriber`.

    `identified` has the peers and subscribers that did; `in_roster` the peers that a recorder saw in the roster.
    """
    keys = ["channel", "subscriber"]
    spans = (
        intervals.filter(pl.col("joined_time").is_not_null())
        .with_columns(
            is_in_roster=pl.col("peer").is_in(in_roster.unique().implode()),
            start_time=pl.col("joined_time"),
        )
        .with_columns(
            # A recorder that has ended does not know whether the member is still there.
            end_time=pl.max_horizontal(
                "joined_time",
                pl.coalesce("end_time", pl.when("is_in_roster").then("last_seen_time"), pl.lit(tape_end_time)),
            )
        )
        .with_columns(
            end_status=pl.when(
                (pl.col("end_status") == "present") & (pl.col("end_time") < tape_end_time - ROSTER_DELAY)
            )
            .then(pl.lit("timed_out"))
            .otherwise("end_status")
        )
        .filter(
            ~pl.col("peer").is_in(identified["peer"].implode()),
            ~pl.col("subscriber").is_in(identified["subscriber"].implode()),
        )
        .sort([*keys, "start_time", "end_time", "peer"])
    )
    starts_session = _starts_group(keys) | (pl.col("start_time") > _furthest_end("end_time", keys))
    last_status = pl.col("end_status").sort_by("end_time", "end_status").last().replace("present", "open")
    found = (
        spans.with_columns(session=starts_session.cum_sum())
        .group_by("session", maintain_order=True)
        .agg(
            *(pl.col(key).first() for key in keys),
            pl.col("start_time", "end_time").dt.timestamp("us").max(),
            first_time=pl.col("start_time").dt.timestamp("us").min(),
            identification_count=pl.lit(0, pl.Int64),
            peer_count=pl.col("peer").n_unique().cast(pl.Int64),
            end_status=last_status,
            evidence=pl.when(pl.col("is_in_roster").any()).then(pl.lit("roster")).otherwise(pl.lit("membership")),
            ticket_serial=_LAST_TICKET,
        )
        .with_columns(start_time="first_time")
    )
    return _completed(found)


def _completed(found: pl.DataFrame) -> pa.Table:
    """Add `connected_ms` and `is_proven`. Times are in microseconds."""
    found = found.with_columns(is_proven=pl.col("ticket_serial").is_not_null())
    position = SESSIONS.get_field_index("connected_ms")
    connected_us = (found["end_time"] - found["start_time"]).to_numpy()
    return table_us(found, SESSIONS.remove(position)).add_column(
        position, SESSIONS.field(position), to_decimal(connected_us, EXACT_MS)
    )


def _identifications(signs: pl.DataFrame, rule: SessionRule) -> pl.DataFrame:
    """Add `is_new`: 1 for a new identification, 0 for another sighting of the same one."""
    signs = signs.select(*_KEYS, "first_time", "last_time").sort([*_KEYS, "first_time", "last_time"])
    since_last = pl.col("first_time") - _furthest_end("last_time", _KEYS)
    is_new = _starts_group(_KEYS) | (since_last > rule.window_us)
    return signs.with_columns(is_new=is_new.cast(pl.Int64))


def _starts_group(keys: list[str]) -> pl.Expr:
    """In a sorted table: whether a row is the first with its keys."""
    return pl.any_horizontal(pl.col(key).ne_missing(pl.col(key).shift(1)) for key in keys)


def _furthest_end(end: str, keys: list[str]) -> pl.Expr:
    """The latest end among the rows before this one with the same keys."""
    return pl.col(end).cum_max().shift(1).over(keys)


def rule(settings: Mapping[str, Any]) -> SessionRule:
    return SessionRule(
        interval_s=settings["identification_interval_s"],
        missed_max=settings["identifications_missed_max"],
        grace_s=settings["identification_grace_s"],
        tail_s=settings["session_tail_s"],
        window_s=settings["identification_window_s"],
    )


def build(inputs: ChannelInputs) -> pa.Table:
    chosen = rule(inputs.settings)
    slices = inputs.scan("signs").group_by("channel", "peer", "subscriber", "sign", "time_slice")
    signs = slices.agg(pl.col("first_time").min(), pl.col("last_time").max())
    known = identities(inputs.scan("names"))
    found = frame(spans(arrow(with_subscriber(signs, known).select(SIGNS.names)), chosen))
    found = found.join(known.filter("is_proven").select("peer", "ticket_serial"), on="peer", how="left")
    channels = frame(inputs["channels"])
    if not channels.height:
        return empty(SESSIONS)
    tape_end = channels.select("channel", tape_end_time="end_time")
    intervals = frame(inputs["membership_intervals"]).with_columns(subscriber="peer")
    intervals = with_subscriber(intervals.drop("name", "role", "ticket_serial", "is_proven"), known)
    return pa.concat_tables(
        [
            sessions(arrow(found.join(tape_end, on="channel")), chosen),
            membership_sessions(intervals, found, inputs.scan("roster")["peer"], channels["end_time"][0]),
        ]
    )


TABLE = Table(
    "sessions",
    "Who was connected from when to when?",
    COLUMNS,
    Stage.CHANNEL,
    build,
    depends_on=("channels", "membership_intervals"),
    settings=SETTINGS,
)
