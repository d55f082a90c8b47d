"""From signs of life to sessions: a subscriber is connected until it has been silent for too long.

For each peer of a subscriber, two signs belong together if at most `timeout_us` lies between them. Signs that belong
together form a span, from the first sign to `tail_us` after the last; if the peer recorded that it left, to exactly
that moment. A session of a subscriber is what the spans of all its peers cover without a gap.

The order of the signs and how often each was seen do not matter: the same signs give the same sessions, and a late sign
that closes a gap merges two sessions in the next run.

A subscriber that identifies itself for topics has sessions for each of them. A holder of a ticket also gives a sign of
life as long as a recorder has it in its roster (`roster_signs`), with all its programs (`silent_peers`): so billed time
does not depend on how honestly a program identifies itself, and ends when a recorder noticed that it was killed.

A member whose subscriber never identified itself is connected while it is a member: from the `joined` event that it
recorded, or from when a recorder saw it in the roster. The column `evidence` says what a session rests on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from broadloom.pipeline.analysis.frames import conform, from_rows, in_us
from broadloom.pipeline.analysis.subscribers import identities, with_subscriber
from broadloom.pipeline.billing.money import to_decimal
from broadloom.pipeline.table import (
    CHANNEL,
    EXACT_MS,
    ChannelInputs,
    Stage,
    Table,
    TableSetting,
    TableSettingError,
    column,
)

KINDS = ("identification", "joined", "leaving", "left", "member_joined", "member_left")
_OF_OTHERS = ("identification", "member_joined", "member_left")
CONSUMER = "consumer"
"""`Role.CONSUMER`, as tapes have it."""
SIGN_COLUMNS = {
    "peer": pl.when(pl.col("kind").is_in(_OF_OTHERS)).then(pl.col("author").fill_null("")).otherwise("peer"),
    # A subscriber without a name is known by its peer ID.
    "subscriber": pl.when(pl.col("kind") == "identification").then(pl.coalesce("name", "author", pl.lit(""))),
    "topic": pl.when(pl.col("kind") == "identification").then("topic"),
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
    column("subscriber", "Name on its ticket, else the name it chose, else its peer ID."),
    column("topic", "Topic that it identified itself for; null if it named none."),
    column("start_time", "First sign of life: an identification, or that it joined."),
    column("end_time", "When it left, else the last sign plus the tail, within the tapes."),
    column("connected_ms", "Duration of the session.", EXACT_MS),
    column("identification_count", "Identifications, each counted once."),
    column("peer_count", "Peers of the subscriber: reconnects without a gap, or several devices."),
    column(
        "end_status",
        "`left`, `timed_out`, `crashed` (not from identifications), or `open` (the tapes end before the timeout).",
    ),
    column(
        "evidence",
        "What it rests on: `identifications`, `roster` (a recorder had it in its roster), or `membership` (only its "
        "own `joined` event, and how the membership ended).",
    ),
    column("ticket_serial", "Serial number of its (last) ticket; null without a ticket."),
    column("is_proven", "Whether the name is on a ticket; if not, anyone could choose it."),
)

SECOND_US = 1_000_000
ROSTER_DELAY = timedelta(seconds=10)
"""A recorder that ends this long before the tapes has ended with them."""


@dataclass(frozen=True, slots=True)
class SessionRule:
    """The values of `SETTINGS`, which say what each means."""

    interval_s: float
    missed_max: int
    grace_s: float
    tail_s: float
    window_s: float

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


SPAN_COLUMNS = (
    *(
        "channel",
        "subscriber",
        "topic",
        "peer",
        "start_time",
        "last_time",
        "end_time",
        "has_left",
        "identification_count",
    ),
)
"""When a peer of a subscriber was connected. Times are in microseconds."""

_LAST_TICKET = pl.col("ticket_serial").drop_nulls().last()
_KEYS = ["channel", "subscriber", "topic", "peer"]
_PEER = ["channel", "peer"]


def spans(signs: pl.DataFrame, rule: SessionRule) -> pl.DataFrame:
    """`SPAN_COLUMNS`, from all signs of a peer.

    `sign` is identification, joined, lost, left or silent; identifications and silent ones have a subscriber. After a
    loss that a recorder noticed there is no tail. Signs may be combined within `window_us`: each has a `first_time` and
    a `last_time`.
    """
    signs = in_us(signs)
    if "topic" not in signs.columns:  # live sessions are not divided by topic
        signs = signs.with_columns(topic=pl.lit(None, pl.String))
    identifications = _identifications(signs.filter(pl.col("sign") == "identification"), rule)
    joined = signs.filter(pl.col("sign") == "joined")
    joined = joined.select(*_PEER, "first_time", "last_time", is_new=pl.lit(0, pl.Int64))
    left = signs.filter(pl.col("sign") == "left").group_by(_PEER).agg(left_time=pl.col("first_time").min())
    lost = signs.filter(pl.col("sign") == "lost").select(*_PEER, "last_time", is_lost=pl.lit(True)).unique()
    subscribers = pl.concat([identifications, signs.filter(pl.col("sign") == "silent")], how="diagonal")
    subscribers = subscribers.select(_KEYS).unique()
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
        .join(lost, on=[*_PEER, "last_time"], how="left", maintain_order="left")
        .with_columns(
            end_time=pl.when("has_left")
            .then("left_time")
            .when("is_lost")
            .then("last_time")
            .otherwise(pl.col("last_time") + rule.tail_us)
        )
    )
    return found.select(SPAN_COLUMNS)


def sessions(spans: pl.DataFrame, tape_end_us: int, rule: SessionRule) -> pl.DataFrame:
    """Merge the spans of a subscriber, which have `ticket_serial` too. A session does not extend beyond the end of the
    channel's tapes, and is open if more signs could still continue it."""
    keys = ["channel", "subscriber", "topic"]
    every = (
        spans.with_columns(is_open=~pl.col("has_left") & (pl.col("last_time") + rule.timeout_us >= tape_end_us))
        .with_columns(end_time=pl.max_horizontal(pl.min_horizontal("end_time", tape_end_us), "last_time"))
        .sort([*keys, "start_time", "end_time", "peer"])
    )
    starts_session = _starts_group(keys) | (pl.col("start_time") > _furthest_end("end_time", keys))
    status = pl.when("is_open").then(pl.lit("open")).when("has_left").then(pl.lit("left"))
    found = (
        every.with_columns(session=starts_session.cum_sum())
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


def roster_signs(roster: pl.DataFrame, holders: pl.Series, recorder_ends: pl.DataFrame) -> pl.DataFrame:
    """Signs of life of the holders of tickets, from what recorders had in their rosters: a program that falls silent to
    save money is connected all the same, and one that was killed until it was lost.

    `roster` has the rows of the scan of that name, `recorder_ends` the `end_time` of each `observer`. A member that is
    lost everywhere and does not come back has left. One that does was connected in between, unless that took longer
    than the silence that ends a session.
    """
    seen = (
        in_us(roster).filter(pl.col("peer").is_in(holders.implode())).sort("observer", "peer", "event_time", "ordinal")
    )
    member = ["channel", "observer", "peer"]
    stays = (
        seen.with_columns(
            until=pl.col("event_time").shift(-1).over(member), is_followed=pl.col("kind").shift(-1).over(member)
        )
        .filter(pl.col("kind") == "member_joined")
        .join(in_us(recorder_ends), on="observer", how="left")
        .with_columns(is_open=pl.col("is_followed").is_null(), until=pl.coalesce("until", "end_time", "event_time"))
        .select(
            "channel", "peer", "is_open", first_time="event_time", last_time=pl.max_horizontal("until", "event_time")
        )
    )
    ends = stays.group_by(_PEER).agg(last_time=pl.col("last_time").max(), is_open=pl.col("is_open").any())
    gone = ends.filter(~pl.col("is_open")).select(*_PEER, "last_time", sign=pl.lit("left"), first_time="last_time")
    lost = stays.filter(~pl.col("is_open")).with_columns(sign=pl.lit("lost"), first_time="last_time")
    unnamed = {"subscriber": pl.lit(None, pl.String), "topic": pl.lit(None, pl.String)}
    return pl.concat(
        each.select(*_PEER, "sign", "first_time", "last_time", **unnamed)
        for each in (stays.with_columns(sign=pl.lit("joined")), gone, lost)
    )


def silent_peers(signs: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Further peers of subscribers that identified themselves with others: each counts for the topics of its
    subscriber, or a second program that keeps silent would be free. `signs` have their subscriber, `known` has
    `identities`. Producers are not subscribers."""
    identified = signs.filter(pl.col("sign") == "identification")
    topics = identified.select("channel", "subscriber", "topic").unique()
    return (
        known.filter(pl.col("is_proven") & (pl.col("role") == CONSUMER))
        .join(identified.select("peer"), on="peer", how="anti")
        .select("peer", subscriber=pl.coalesce("name", "ticket_serial"))
        .join(topics, on="subscriber")
        .with_columns(sign=pl.lit("silent"), first_time=pl.lit(0, pl.Int64), last_time=pl.lit(0, pl.Int64))
    )


def membership_sessions(
    intervals: pl.DataFrame, identified: pl.DataFrame, in_roster: pl.Series, tape_end_time: datetime
) -> pl.DataFrame:
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


def _completed(found: pl.DataFrame) -> pl.DataFrame:
    """Add `connected_ms` and `is_proven`. Times are in microseconds."""
    connected_us = (found["end_time"] - found["start_time"]).to_numpy()
    found = found.with_columns(
        is_proven=pl.col("ticket_serial").is_not_null(), connected_ms=to_decimal(connected_us, EXACT_MS)
    )
    return conform(found, COLUMNS)


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


def build(inputs: ChannelInputs) -> pl.DataFrame:
    chosen = rule(inputs.settings)
    slices = inputs.scan("signs").group_by("channel", "peer", "subscriber", "topic", "sign", "time_slice")
    signs = slices.agg(pl.col("first_time").min(), pl.col("last_time").max())
    known = identities(inputs.scan("names"))
    roster = inputs.scan("roster")
    holders = known.filter(pl.col("is_proven") & pl.col("ticket_serial").is_not_null())["peer"]
    ends = inputs.scan("peer_spans").group_by(observer="peer").agg(end_time=pl.col("last_time").max())
    columns = ["channel", "peer", "subscriber", "topic", "sign", "first_time", "last_time"]
    signs = pl.concat([in_us(signs).select(columns), roster_signs(roster, holders, ends).select(columns)])
    named = with_subscriber(signs, known)
    found = spans(pl.concat([named, silent_peers(named, known)], how="diagonal"), chosen)
    found = found.join(known.filter("is_proven").select("peer", "ticket_serial"), on="peer", how="left")
    channels = inputs["channels"]
    if not channels.height:
        return from_rows([], COLUMNS)
    tape_end_us = in_us(channels)["end_time"][0]
    intervals = inputs["membership_intervals"].with_columns(subscriber="peer")
    intervals = with_subscriber(intervals.drop("name", "role", "ticket_serial", "is_proven"), known)
    return pl.concat(
        [
            sessions(found, tape_end_us, chosen),
            membership_sessions(intervals, found, roster["peer"], channels["end_time"][0]),
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
