"""The peers that recorded: from when to when, and how they ended. Everything that is due is measured against this.

A tape has no event for a crash (a crashed peer just records nothing more), nor for the end of the recording. The links
at the end tell the two apart. A peer crashed if its other end recorded the loss of a link that it still holds, and it
recorded nothing since then; so did the peers that it is connected to, unless they belong to the component with the
latest event, which lived on. All others are `present`, also those that recorded the loss of their links themselves:
they live, cut off from the others.

All times are by one clock, as far as the tapes relate the clocks (`analysis/channel_clock.py`).
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from broadloom.pipeline.analysis.channel_clock import ChannelClock
from broadloom.pipeline.analysis.frames import MICROSECONDS_PER_S, conform
from broadloom.pipeline.table import CHANNEL, ChannelInputs, Stage, Table, TableSetting, column
from broadloom.record.schema import CRASH_REASONS, EventKind
from broadloom.testing.checks.settling import SETTLE_S
from broadloom.topology import component_labels

SETTLE = TableSetting(
    "settle_s",
    SETTLE_S,
    "A peer that stayed this long after a message was sent, without disruptions, must have it.",
    minimum=1.0,
)

COLUMNS = (
    CHANNEL,
    column("peer", "ID of the peer."),
    column("name", "Display name, if known."),
    column("run_id", "Run that recorded it."),
    column("joined_time", "When it became a member; null if that is not on the tapes."),
    column("joined_ordinal", "Ordinal of that event."),
    column("first_link_ordinal", "Ordinal of its first link, or of its join: messages may be delivered from there."),
    column("leaving_time", "When it began to leave; null if it did not."),
    column("leaving_ordinal", "Ordinal of that event."),
    column("left_time", "When it had left gracefully; null if it did not."),
    column("left_ordinal", "Ordinal of that event."),
    column("last_event_time", "Its last event."),
    column("end_status", "`left` (gracefully), `crashed` or `present` (at the end)."),
    column("end_time", "Until when it is known to have been a member."),
    column("last_disruption_time", "The last time before its end, or shortly after, that a peer lost a link abruptly."),
    column("has_dropped_rows", "Whether rows of its run are missing: dropped or quarantined."),
)

MEMBERSHIP_KINDS = ("joined", "leaving", "left", "link_up", "link_down", EventKind.ROWS_DROPPED.value)

_KEYS = ["channel", "peer"]


def recorded_peers(
    membership_events: pl.DataFrame,
    spans: pl.DataFrame,
    quarantined: pl.DataFrame,
    settle_s: float,
    clock: ChannelClock,
) -> pl.DataFrame:
    """`membership_events` are the events of `MEMBERSHIP_KINDS`, `spans` has the last event of each peer in each run,
    `quarantined` the runs of which rows were excluded."""
    rows = clock.apply(membership_events.sort("ordinal"), "run_id", "event_time")
    ends = clock.apply(spans, "run_id", "last_event_time")
    # A peer is in one run, as its ID is drawn at each connect. If not, its last run counts.
    peers = ends.filter(pl.col("peer").is_not_null()).sort("last_event_time", "run_id").unique(_KEYS, keep="last")
    for kind in ("joined", "leaving", "left"):
        first = rows.filter(pl.col("kind") == kind).unique(_KEYS, keep="first")
        columns = [pl.col("event_time").alias(f"{kind}_time"), pl.col("ordinal").alias(f"{kind}_ordinal")]
        peers = peers.join(first.select(*_KEYS, *columns, *(["name"] if kind == "joined" else [])), _KEYS, "left")
    linked = rows.filter(pl.col("kind").is_in(["joined", "link_up"])).unique(_KEYS, keep="first")
    peers = peers.join(linked.select(*_KEYS, pl.col("ordinal").alias("first_link_ordinal")), _KEYS, "left")
    # Without the join, the start is not on the tapes, and there may have been an earlier link.
    first_link = pl.when(pl.col("joined_time").is_not_null()).then("first_link_ordinal")
    error_s = 2 * clock.error_us_max / MICROSECONDS_PER_S
    peers = _with_end_status(peers.with_columns(first_link.alias("first_link_ordinal")), rows, error_s)
    run_ends = ends.group_by("channel", "run_id").agg(pl.col("last_event_time").max().alias("run_end_time"))
    peers = peers.join(run_ends, ["channel", "run_id"], "left").with_columns(
        pl.when(pl.col("end_status") == "left")
        .then(pl.coalesce("leaving_time", "left_time"))
        # Of a peer whose links no other peer confirms, only its own events show that it lives.
        .when((pl.col("end_status") == "present") & pl.col("is_confirmed"))
        .then(pl.col("run_end_time"))
        .otherwise(pl.col("last_event_time"))
        .alias("end_time")
    )
    peers = _with_disruptions(peers, disruptions(rows), settle_s + clock.error_us_max / MICROSECONDS_PER_S)
    incomplete = missing_rows(rows, quarantined)["run_id"].unique()
    return conform(peers.with_columns(has_dropped_rows=pl.col("run_id").is_in(incomplete.implode())), COLUMNS)


def missing_rows(membership_events: pl.DataFrame, quarantined: pl.DataFrame) -> pl.DataFrame:
    """run_id, gap_start, gap_end, row_count: rows of that run between the two times that are not on the tapes, because
    they were dropped or quarantined. Null: at any time, or any number."""
    dropped = membership_events.filter(pl.col("kind") == EventKind.ROWS_DROPPED.value).select(
        "run_id", gap_start="event_time", gap_end="end_time", row_count=pl.col("event_count").fill_null(0)
    )
    excluded = quarantined.filter("leaves_gap")
    # Of a file that cannot be read, the number of rows is not known.
    count = pl.when(pl.col("row_count") > 0).then("row_count")
    return pl.concat([dropped, excluded.select("run_id", gap_start="start_time", gap_end="end_time", row_count=count)])


def _with_end_status(peers: pl.DataFrame, rows: pl.DataFrame, clock_error_s: float) -> pl.DataFrame:
    """Add `end_status`, and `is_confirmed`: another peer has a link to it at the end."""
    pair = ["channel", "peer", "neighbor"]
    ends = rows.filter(pl.col("kind").is_in(["link_up", "link_down"]))
    ends = ends.group_by(pair, maintain_order=True).agg(pl.col("kind", "event_time").last())
    other = ends.rename({"peer": "neighbor", "neighbor": "peer", "kind": "other_kind", "event_time": "other_time"})
    held = ends.filter(pl.col("kind") == "link_up").join(other, pair)
    held = held.join(peers.select(*_KEYS, "last_event_time"), _KEYS)
    links = held.filter(pl.col("other_kind") == "link_up")
    is_silent = pl.col("last_event_time") <= pl.col("other_time") + pl.duration(seconds=clock_error_s)
    lost = held.filter((pl.col("other_kind") == "link_down") & is_silent)
    found = []
    for (channel,), group in peers.group_by("channel", maintain_order=True):
        edges = links.filter(pl.col("channel") == channel)
        stayed = group["left_time"].is_null() & group["leaving_time"].is_null()
        component = _components(group["peer"].to_list(), edges["peer"].to_list(), edges["neighbor"].to_list())
        by_time = group.with_columns(pl.Series("component", component)).filter(stayed).sort("last_event_time")
        surviving = by_time["component"].last() if by_time.height else -1
        is_lost = group["peer"].is_in(lost.filter(pl.col("channel") == channel)["peer"].implode()).to_numpy()
        has_crashed = is_lost | (np.isin(component, component[is_lost]) & (component != surviving))
        status = np.where(~stayed.to_numpy(), "left", np.where(has_crashed, "crashed", "present"))
        found.append(group.select(_KEYS).with_columns(pl.Series("end_status", status.tolist(), pl.String)))
    if not found:
        return peers.with_columns(pl.lit(None, pl.String).alias("end_status"), is_confirmed=pl.lit(False))
    confirmed = links.select(_KEYS).unique().with_columns(is_confirmed=pl.lit(True))
    peers = peers.join(pl.concat(found), _KEYS, "left").join(confirmed, _KEYS, "left")
    return peers.with_columns(pl.col("is_confirmed").fill_null(False))


def _components(peers: list[str], ones: list[str], others: list[str]) -> NDArray[np.int64]:
    """Connected component of each peer."""
    number = {peer: index for index, peer in enumerate(peers)}
    one = np.array([number[peer] for peer in ones], dtype=np.int64)
    other = np.array([number[peer] for peer in others], dtype=np.int64)
    return component_labels(len(number), one, other)


def disruptions(rows: pl.DataFrame) -> pl.DataFrame:
    """When a peer lost a link abruptly."""
    lost = rows.filter((pl.col("kind") == "link_down") & pl.col("reason").is_in(list(CRASH_REASONS)))
    return lost.select("channel", last_disruption_time="event_time").unique().sort("last_disruption_time")


def _with_disruptions(peers: pl.DataFrame, disruptions: pl.DataFrame, within_s: float) -> pl.DataFrame:
    within = pl.duration(microseconds=int(within_s * MICROSECONDS_PER_S))
    peers = peers.with_columns((pl.col("end_time") + within).alias("noticed")).sort("noticed")
    return peers.join_asof(
        disruptions,
        left_on="noticed",
        right_on="last_disruption_time",
        by="channel",
        coalesce=False,
        check_sortedness=False,
    )


def build(inputs: ChannelInputs) -> pl.DataFrame:
    spans = inputs.scan("peer_spans").rename({"last_time": "last_event_time"})
    settle_s = float(inputs.settings[SETTLE.name])
    return recorded_peers(inputs.scan("membership"), spans, inputs.quarantine, settle_s, ChannelClock.of(inputs))


TABLE = Table(
    "recorded_peers",
    "Which peers recorded, from when to when, and how did they end?",
    COLUMNS,
    Stage.CHANNEL,
    build,
    depends_on=("quarantine", "clock_offsets"),
    settings=(SETTLE,),
)
