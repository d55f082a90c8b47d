"""The peers that recorded: from when to when, and how they ended. Everything that is due is measured against this.

A tape has no event for a crash (a crashed peer just records nothing more), nor for the end of the recording. The links
that are up at the end tell the two apart: the component with the latest event is the one that lived on, and its peers
are `present`. Peers that ended in another component are `crashed`.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from broadloom.pipeline.arrow.frames import frame, to_schema
from broadloom.pipeline.table import (
    CHANNEL,
    COUNT,
    FLAG,
    ID,
    TEXT,
    TIME,
    ChannelInputs,
    Stage,
    Table,
    TableColumn,
    TableSetting,
)
from broadloom.protocol.events import LinkDownReason
from broadloom.record.arrow_import import pa
from broadloom.record.schema import EventKind
from broadloom.topology import component_labels

SETTLE = TableSetting(
    "settle_s", 10.0, "A peer that stayed this long after a message was sent, without disruptions, must have it."
)

COLUMNS = (
    CHANNEL,
    TableColumn("peer", ID, "ID of the peer."),
    TableColumn("name", TEXT, "Display name, if known."),
    TableColumn("run_id", TEXT, "Run that recorded it."),
    TableColumn("joined_time", TIME, "When it became a member; null if that is not on the tapes."),
    TableColumn("joined_ordinal", COUNT, "Ordinal of that event."),
    TableColumn(
        "first_link_ordinal", COUNT, "Ordinal of its first link, or of its join: messages may be delivered from there."
    ),
    TableColumn("leaving_time", TIME, "When it began to leave; null if it did not."),
    TableColumn("leaving_ordinal", COUNT, "Ordinal of that event."),
    TableColumn("left_time", TIME, "When it had left gracefully; null if it did not."),
    TableColumn("left_ordinal", COUNT, "Ordinal of that event."),
    TableColumn("last_event_time", TIME, "Its last event."),
    TableColumn("end_status", TEXT, "`left` (gracefully), `crashed` (or cut off) or `present` (at the end)."),
    TableColumn("end_time", TIME, "Until when it is known to have been a member."),
    TableColumn(
        "last_disruption_time",
        TIME,
        "The last time before its end, or shortly after, that a peer lost a link abruptly.",
    ),
    TableColumn("has_dropped_rows", FLAG, "Whether rows of its run are missing: dropped or quarantined."),
)
SCHEMA = pa.schema([pa.field(each.name, each.type) for each in COLUMNS])

MEMBERSHIP_KINDS = ("joined", "leaving", "left", "link_up", "link_down", EventKind.ROWS_DROPPED.value)

_DISRUPTION_REASONS = (LinkDownReason.CONNECTION_LOST.value, LinkDownReason.HEARTBEAT_TIMEOUT.value)
_KEYS = ["channel", "peer"]


def recorded_peers(
    membership_events: pl.DataFrame, spans: pl.DataFrame, quarantined: pa.Table, settle_s: float
) -> pa.Table:
    """`membership_events` are the events of `MEMBERSHIP_KINDS`, `spans` has the last event of each peer in each run,
    `quarantined` the runs of which rows were excluded."""
    rows, ends = membership_events.sort("ordinal"), spans
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
    peers = _with_end_status(peers.with_columns(first_link.alias("first_link_ordinal")), rows)
    run_ends = ends.group_by("channel", "run_id").agg(pl.col("last_event_time").max().alias("run_end_time"))
    peers = peers.join(run_ends, ["channel", "run_id"], "left").with_columns(
        pl.when(pl.col("end_status") == "left")
        .then(pl.coalesce("leaving_time", "left_time"))
        .when(pl.col("end_status") == "present")
        .then(pl.col("run_end_time"))
        .otherwise(pl.col("last_event_time"))
        .alias("end_time")
    )
    peers = _with_disruptions(peers, rows, settle_s)
    incomplete = pl.concat(
        [
            rows.filter(pl.col("kind") == EventKind.ROWS_DROPPED.value).select("channel", "run_id"),
            frame(quarantined).filter("leaves_gap").select("channel", "run_id"),
        ]
    ).unique()
    incomplete = incomplete.with_columns(pl.lit(True).alias("has_dropped_rows"))
    peers = peers.join(incomplete, ["channel", "run_id"], "left")
    return to_schema(peers.with_columns(pl.col("has_dropped_rows").fill_null(False)), SCHEMA)


def _with_end_status(peers: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """A link is up at the end unless one of its recording ends says otherwise."""
    ends = rows.filter(pl.col("kind").is_in(["link_up", "link_down"]))
    ends = ends.group_by("channel", "peer", "neighbor", maintain_order=True).agg(pl.col("kind").last())
    reverse = ends.rename({"peer": "neighbor", "neighbor": "peer", "kind": "other_kind"})
    links = ends.join(reverse, ["channel", "peer", "neighbor"], "left").filter(
        (pl.col("kind") == "link_up") & (pl.col("other_kind").fill_null("link_up") == "link_up")
    )
    found = []
    for (channel,), group in peers.group_by("channel", maintain_order=True):
        edges = links.filter(pl.col("channel") == channel)
        stayed = group["left_time"].is_null() & group["leaving_time"].is_null()
        component = _components(group["peer"].to_list(), edges["peer"].to_list(), edges["neighbor"].to_list())
        by_time = group.with_columns(pl.Series("component", component)).filter(stayed).sort("last_event_time")
        surviving = by_time["component"].last() if by_time.height else -1
        status = np.where(~stayed.to_numpy(), "left", np.where(component == surviving, "present", "crashed"))
        found.append(group.select(_KEYS).with_columns(pl.Series("end_status", status.tolist(), pl.String)))
    if not found:
        return peers.with_columns(pl.lit(None, pl.String).alias("end_status"))
    return peers.join(pl.concat(found), _KEYS, "left")


def _components(peers: list[str], ones: list[str], others: list[str]) -> NDArray[np.int64]:
    """Connected component of each peer. Peers without a tape connect others too."""
    number = {peer: index for index, peer in enumerate(dict.fromkeys([*peers, *ones, *others]))}
    one = np.array([number[peer] for peer in ones], dtype=np.int64)
    other = np.array([number[peer] for peer in others], dtype=np.int64)
    return component_labels(len(number), one, other)[: len(peers)]


def _with_disruptions(peers: pl.DataFrame, rows: pl.DataFrame, settle_s: float) -> pl.DataFrame:
    name = "last_disruption_time"
    disruptions = rows.filter((pl.col("kind") == "link_down") & pl.col("reason").is_in(list(_DISRUPTION_REASONS)))
    disruptions = disruptions.select("channel", pl.col("event_time").alias(name)).unique().sort(name)
    peers = peers.with_columns((pl.col("end_time") + pl.duration(seconds=settle_s)).alias("noticed")).sort("noticed")
    return peers.join_asof(
        disruptions, left_on="noticed", right_on=name, by="channel", coalesce=False, check_sortedness=False
    )


def build(inputs: ChannelInputs) -> pa.Table:
    spans = inputs.scan("peer_spans").rename({"last_time": "last_event_time"})
    settle_s = float(inputs.settings[SETTLE.name])
    return recorded_peers(inputs.scan("membership"), spans, inputs.quarantine, settle_s)


TABLE = Table(
    "recorded_peers",
    "Which peers recorded, from when to when, and how did they end?",
    COLUMNS,
    Stage.MERGE,
    build,
    depends_on=("quarantine",),
    settings=(SETTLE,),
)
