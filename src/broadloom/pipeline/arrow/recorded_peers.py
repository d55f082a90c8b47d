"""Who was there, from when to when, and how it ended: what everything that is owed is measured by.

The tape has no row for a death: whoever died just says nothing more. Nor has it one for the end of the recording. What
tells them apart are the links as they stood at the end. The part of the fabric that was heard of last is the one that
lived on; its members are `present`. Those that neighbours lost, or that ended in another part, are `gone`.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from broadloom.pipeline.arrow.exact import frame, to_schema
from broadloom.pipeline.table import COUNT, FLAG, ID, TEXT, TIME, TableColumn
from broadloom.protocol.events import LinkDownReason
from broadloom.record.arrow_import import pa
from broadloom.record.schema import EventKind
from broadloom.topology import component_labels

COLUMNS = (
    TableColumn("channel", TEXT, "First 16 digits of the channel's id."),
    TableColumn("peer", ID, "The peer, of those that recorded."),
    TableColumn("name", TEXT, "Who it is to people, if it said so."),
    TableColumn("run", TEXT, "Run that recorded it."),
    TableColumn("joined", TIME, "When it became a member; null if that is not on the tapes."),
    TableColumn("joined_ordinal", COUNT, "Ordinal of that in its run."),
    TableColumn(
        "present_ordinal", COUNT, "Ordinal of its first link, or its joining: from there on it may be given messages."
    ),
    TableColumn("leaving", TIME, "When it began to leave; null if it did not."),
    TableColumn("leaving_ordinal", COUNT, "Ordinal of that."),
    TableColumn("left", TIME, "When it was gone in good order; null if it never was."),
    TableColumn("left_ordinal", COUNT, "Ordinal of that."),
    TableColumn("last", TIME, "Its last row."),
    TableColumn(
        "ending", TEXT, "left (in good order), gone (it died, or was cut off), or present (when the tapes end)."
    ),
    TableColumn("until", TIME, "Up to when it is known to have been there: its leaving, its last row, or its run's."),
    TableColumn("torn", TIME, "The last time before its end, or soon after, that anybody lost a link without a word."),
    TableColumn("lacking", FLAG, "Whether rows of its run are lacking: told by a gap, or set aside."),
)
SCHEMA = pa.schema([pa.field(each.name, each.type) for each in COLUMNS])

MEMBERSHIP_KINDS = ("joined", "leaving", "left", "link_up", "link_down", EventKind.ROWS_DROPPED.value)
MEMBERSHIP_COLUMNS = ["channel", "kind", "observer", "run", "ordinal", "time", "until", "neighbour", "why", "name"]
SPAN_COLUMNS = ["channel", "observer", "run", "last", "last_ordinal"]

_DISRUPTION_REASONS = (LinkDownReason.CONNECTION_LOST.value, LinkDownReason.HEARTBEAT_TIMEOUT.value)


def recorded_peers(membership_events: pa.Table, spans: pa.Table, quarantined: pa.Table, settle_s: float) -> pa.Table:
    """`marks` are the rows of these kinds, `spans` has the last row of each observer in each run, `lacking` the runs of
    which rows were set aside."""
    rows, ends = frame(membership_events).sort("ordinal"), frame(spans)
    keys = ["channel", "observer"]
    # An observer is in one run, as its id is drawn anew at each connect. If not, the run that it was last in counts.
    who = ends.filter(pl.col("observer").is_not_null()).sort("last", "run").unique(keys, keep="last")
    for kind, name in (("joined", "joined"), ("leaving", "leaving"), ("left", "left")):
        first = rows.filter(pl.col("kind") == kind).unique(keys, keep="first")
        told = [pl.col("time").alias(name), pl.col("ordinal").alias(f"{name}_ordinal")]
        who = who.join(first.select(*keys, *told, *(["name"] if kind == "joined" else [])), keys, "left")
    present = rows.filter(pl.col("kind").is_in(["joined", "link_up"])).unique(keys, keep="first")
    who = who.join(present.select(*keys, pl.col("ordinal").alias("present_ordinal")), keys, "left")
    # If the joining is not on the tapes, they do not show the beginning, and a first link may have been before it.
    who = who.with_columns(pl.when(pl.col("joined").is_not_null()).then("present_ordinal").alias("present_ordinal"))
    who = _with_end_status(who, rows)
    run_ends = ends.group_by("channel", "run").agg(pl.col("last").max().alias("run_end"))
    who = who.join(run_ends, ["channel", "run"], "left").with_columns(
        pl.when(pl.col("ending") == "left")
        .then(pl.coalesce("leaving", "left"))
        .when(pl.col("ending") == "present")
        .then(pl.col("run_end"))
        .otherwise(pl.col("last"))
        .alias("until")
    )
    who = _with_disruptions(who, rows, settle_s)
    holes = pl.concat(
        [
            rows.filter(pl.col("kind") == EventKind.ROWS_DROPPED.value).select("channel", "run"),
            frame(quarantined).filter("lacking").select("channel", "run"),
        ]
    ).unique()
    who = who.join(holes.with_columns(pl.lit(True).alias("lacking")), ["channel", "run"], "left")
    return to_schema(who.with_columns(pl.col("lacking").fill_null(False)).rename({"observer": "peer"}), SCHEMA)


def _with_end_status(recorded: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """A link stands at the end if nobody of the two that recorded says otherwise."""
    said = rows.filter(pl.col("kind").is_in(["link_up", "link_down"]))
    said = said.group_by("channel", "observer", "neighbour", maintain_order=True).agg(pl.col("kind").last())
    back = said.rename({"observer": "neighbour", "neighbour": "observer", "kind": "other_kind"})
    stands = said.join(back, ["channel", "observer", "neighbour"], "left").filter(
        (pl.col("kind") == "link_up") & (pl.col("other_kind").fill_null("link_up") == "link_up")
    )
    told = []
    for (channel,), group in recorded.group_by("channel", maintain_order=True):
        edges = stands.filter(pl.col("channel") == channel)
        peers = group["observer"].to_list()
        there = group["left"].is_null() & group["leaving"].is_null()
        part = _components(peers, edges["observer"].to_list(), edges["neighbour"].to_list())
        latest = group.with_columns(pl.Series("part", part)).filter(there).sort("last")
        living = latest["part"].last() if latest.height else -1
        ending = np.where(~there.to_numpy(), "left", np.where(part == living, "present", "gone"))
        told.append(group.select("channel", "observer").with_columns(pl.Series("ending", ending.tolist(), pl.String)))
    if not told:
        return recorded.with_columns(pl.lit(None, pl.String).alias("ending"))
    return recorded.join(pl.concat(told), ["channel", "observer"], "left")


def _components(peers: list[str], ones: list[str], others: list[str]) -> NDArray[np.int64]:
    """Number of the connected part that each peer is in; peers that did not record tie others together too."""
    number = {peer: place for place, peer in enumerate(dict.fromkeys([*peers, *ones, *others]))}
    one = np.array([number[peer] for peer in ones], dtype=np.int64)
    other = np.array([number[peer] for peer in others], dtype=np.int64)
    return component_labels(len(number), one, other)[: len(peers)]


def _with_disruptions(recorded: pl.DataFrame, rows: pl.DataFrame, settle_s: float) -> pl.DataFrame:
    tears = rows.filter((pl.col("kind") == "link_down") & pl.col("why").is_in(list(_DISRUPTION_REASONS)))
    tears = tears.select("channel", pl.col("time").alias("torn")).unique().sort("torn")
    recorded = recorded.with_columns((pl.col("until") + pl.duration(seconds=settle_s)).alias("noticed")).sort("noticed")
    return recorded.join_asof(
        tears, left_on="noticed", right_on="torn", by="channel", coalesce=False, check_sortedness=False
    )
