"""The fabric at the end of each window in which it changed.

Each end of a link records by itself when the link comes up and goes down. A link counts while at least one end has
recorded it as up and none as down. A crashed peer records nothing: it counts as gone when all its links are down and
nothing was recorded by it for `PEER_TIMEOUT_US`.
"""

import numpy as np
import polars as pl

from broadloom.pipeline.live.watermark import Watermark
from broadloom.topology import connected_components, diameter, link_adjacency

PEER_TIMEOUT_US = 60_000_000
DIAMETER_PEERS_MAX = 512
"""A dashboard should not wait for the diameter of a larger fabric."""

KINDS = ("joined", "leaving", "left", "link_up", "link_down")

CHANGES = pl.Schema(
    {
        "event_time": pl.Int64,
        "run_id": pl.String,
        "ordinal": pl.Int64,
        "kind": pl.String,
        "peer": pl.String,
        "neighbor": pl.String,
    }
)
"""Changes above the watermark."""
LINK_ENDS = pl.Schema({"peer": pl.String, "neighbor": pl.String, "is_up": pl.Boolean})
"""The last state recorded by each end of each link."""
PEERS = pl.Schema({"peer": pl.String, "is_member": pl.Boolean, "last_seen_time": pl.Int64})
"""Whether a peer is a member by its own record, and its last event."""


def step(
    changes: pl.DataFrame, link_ends: pl.DataFrame, peers: pl.DataFrame, events: pl.DataFrame, watermark: Watermark
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The new state, and one row per window with a final change plus one for now."""
    new_changes = events.filter(pl.col("kind").is_in(KINDS)).select(CHANGES.names())
    changes = pl.concat([changes, new_changes]).sort("event_time", "run_id", "ordinal")
    seen = events.group_by("peer").agg(last_seen_time=pl.col("event_time").max()).drop_nulls()
    final = changes.filter(watermark.is_final_time("event_time"))
    changes = changes.filter(~watermark.is_final_time("event_time"))
    peers = _update_last_seen(peers, seen)
    rows = []
    for (start,), part in final.group_by(watermark.window_of("event_time"), maintain_order=True):
        assert isinstance(start, int)
        link_ends, peers = _apply_changes(link_ends, peers, part)
        snapshot_at_end = snapshot(link_ends, peers, start + watermark.window_us)
        rows.append({"start_time": start, "is_final": True, **snapshot_at_end})
    link_ends, peers = _remove_departed(link_ends, peers, watermark)
    if changes.height:
        now = snapshot(*_apply_changes(link_ends, peers, changes), watermark.newest_us)
        start = watermark.newest_us // watermark.window_us * watermark.window_us
        rows.append({"start_time": start, "is_final": False, **now})
    return changes, link_ends, peers, pl.DataFrame(rows, schema=SNAPSHOTS)


SNAPSHOTS = pl.Schema(
    {
        "start_time": pl.Int64,
        "is_final": pl.Boolean,
        "snapshot_time": pl.Int64,
        "peer_count": pl.Int64,
        "unrecorded_count": pl.Int64,
        "link_count": pl.Int64,
        "degree_min": pl.Int64,
        "degree_mean": pl.Float64,
        "degree_max": pl.Int64,
        "component_count": pl.Int64,
        "diameter": pl.Int64,
    }
)


def snapshot(link_ends: pl.DataFrame, peers: pl.DataFrame, time_us: int) -> dict[str, int | float | None]:
    links = _links(link_ends, peers)
    linked = set(links["peer_a"]) | set(links["peer_b"])
    is_present = pl.col("is_member") & (
        pl.col("peer").is_in(list(linked)) | (pl.col("last_seen_time") >= time_us - PEER_TIMEOUT_US)
    )
    present = set(peers.filter(is_present)["peer"])
    links = links.filter(pl.col("peer_a").is_in(list(present)) | pl.col("peer_b").is_in(list(present)))
    unrecorded = (set(links["peer_a"]) | set(links["peer_b"])) - present
    nodes = {peer: number for number, peer in enumerate([*sorted(present), *sorted(unrecorded)])}
    a = np.array([nodes[peer] for peer in links["peer_a"]], dtype=np.int64)
    b = np.array([nodes[peer] for peer in links["peer_b"]], dtype=np.int64)
    degrees = np.bincount(np.concatenate([a, b]), minlength=len(nodes))[: len(present)]
    adjacency = link_adjacency(nodes, zip(links["peer_a"], links["peer_b"], strict=True))
    component_count = len(connected_components(adjacency))
    is_measured = component_count == 1 and len(nodes) <= DIAMETER_PEERS_MAX
    return {
        "snapshot_time": time_us,
        "peer_count": len(present),
        "unrecorded_count": len(unrecorded),
        "link_count": links.height,
        "degree_min": int(degrees.min()) if present else 0,
        "degree_mean": float(degrees.mean()) if present else 0.0,
        "degree_max": int(degrees.max()) if present else 0,
        "component_count": component_count,
        "diameter": diameter(adjacency) if is_measured else None,
    }


def _links(link_ends: pl.DataFrame, peers: pl.DataFrame) -> pl.DataFrame:
    """Each link once."""
    gone = peers.filter(~pl.col("is_member"))["peer"].to_list()
    return (
        link_ends.with_columns(
            peer_a=pl.min_horizontal("peer", "neighbor"), peer_b=pl.max_horizontal("peer", "neighbor")
        )
        .group_by("peer_a", "peer_b")
        .agg(pl.col("is_up").all())
        .filter("is_up", ~pl.col("peer_a").is_in(gone), ~pl.col("peer_b").is_in(gone))
        .sort("peer_a", "peer_b")
    )


def _apply_changes(
    link_ends: pl.DataFrame, peers: pl.DataFrame, changes: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Apply changes in their order: the last one counts."""
    kind = pl.col("kind")
    new_ends = changes.filter(kind.str.starts_with("link_")).select("peer", "neighbor", is_up=kind == "link_up")
    link_ends = pl.concat([link_ends, new_ends]).unique(["peer", "neighbor"], keep="last", maintain_order=True)
    members = changes.filter(kind.is_in(["joined", "leaving", "left"])).select(
        "peer", is_member=kind == "joined", last_seen_time="event_time"
    )
    return link_ends, _merge_peers(peers, members)


def _update_last_seen(peers: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
    """A peer with events is known, but no member before it records that it joined."""
    return _merge_peers(peers, seen.select("peer", "last_seen_time", is_member=pl.lit(None, pl.Boolean)))


def _merge_peers(peers: pl.DataFrame, more: pl.DataFrame) -> pl.DataFrame:
    return (
        pl.concat([peers, more.select(PEERS.names())])
        .group_by("peer", maintain_order=True)
        .agg(pl.col("is_member").drop_nulls().last(), pl.col("last_seen_time").max())
    )


def _remove_departed(
    link_ends: pl.DataFrame, peers: pl.DataFrame, watermark: Watermark
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Drop peers that are gone. Peer IDs are drawn at each connect, so they do not come back."""
    long_ago = watermark.after_us - PEER_TIMEOUT_US
    left = peers.filter(~pl.col("is_member") & (pl.col("last_seen_time") < long_ago))["peer"].to_list()
    peers = peers.filter(~pl.col("peer").is_in(left))
    link_ends = link_ends.filter(pl.col("peer").is_in(peers["peer"].to_list()))
    up = link_ends.filter("is_up")
    linked = set(up["peer"]) | set(up["neighbor"])
    return link_ends, peers.filter((pl.col("last_seen_time") >= long_ago) | pl.col("peer").is_in(list(linked)))
