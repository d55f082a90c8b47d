"""The fabric as it changes: who is a member, which links there are, at the end of each window in which that changed.

Each end of a link says by itself when it comes up and goes down. A link counts as long as one end has said that it is
up and none that it is down. A peer that dies says nothing: it counts as gone when all its links are said to be down
and nothing was heard of it for `SILENT_US`.
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
        "time": pl.Int64,
        "run": pl.String,
        "ordinal": pl.Int64,
        "kind": pl.String,
        "observer": pl.String,
        "neighbour": pl.String,
    }
)
"""What was said above the watermark."""
ENDS = pl.Schema({"observer": pl.String, "neighbour": pl.String, "up": pl.Boolean})
"""The last word of each end of each link."""
PEERS = pl.Schema({"observer": pl.String, "member": pl.Boolean, "seen": pl.Int64})
"""Whether a peer is a member by its own word, and when it was last heard of."""


def step(
    changes: pl.DataFrame, ends: pl.DataFrame, peers: pl.DataFrame, events: pl.DataFrame, watermark: Watermark
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """What is to be kept, and a row for each window with a change that is final, and one for now."""
    fresh = events.filter(pl.col("kind").is_in(KINDS)).select(CHANGES.names())
    changes = pl.concat([changes, fresh]).sort("time", "run", "ordinal")
    seen = events.group_by("observer").agg(seen=pl.col("time").max()).drop_nulls()
    settled = changes.filter(watermark.is_final_time("time"))
    changes = changes.filter(~watermark.is_final_time("time"))
    peers = _update_last_seen(peers, seen)
    told = []
    for (start,), part in settled.group_by(watermark.window_of("time"), maintain_order=True):
        assert isinstance(start, int)
        ends, peers = _apply_changes(ends, peers, part)
        told.append({"start": start, "final": True, **snapshot(ends, peers, start + watermark.window_us)})
    ends, peers = _remove_departed(ends, peers, watermark)
    if changes.height:
        now = snapshot(*_apply_changes(ends, peers, changes), watermark.newest_us)
        told.append({"start": watermark.newest_us // watermark.window_us * watermark.window_us, "final": False, **now})
    return changes, ends, peers, pl.DataFrame(told, schema=SNAPSHOTS)


SNAPSHOTS = pl.Schema(
    {
        "start": pl.Int64,
        "final": pl.Boolean,
        "time": pl.Int64,
        "peers": pl.Int64,
        "unrecorded": pl.Int64,
        "links": pl.Int64,
        "degree_min": pl.Int64,
        "degree_mean": pl.Float64,
        "degree_max": pl.Int64,
        "components": pl.Int64,
        "diameter": pl.Int64,
    }
)


def snapshot(ends: pl.DataFrame, peers: pl.DataFrame, time_us: int) -> dict[str, int | float | None]:
    """The figures of one moment."""
    links = _links(ends, peers)
    linked = set(links["one"]) | set(links["other"])
    is_here = pl.col("member") & (
        pl.col("observer").is_in(list(linked)) | (pl.col("seen") >= time_us - PEER_TIMEOUT_US)
    )
    here = set(peers.filter(is_here)["observer"])
    links = links.filter(pl.col("one").is_in(list(here)) | pl.col("other").is_in(list(here)))
    unrecorded = (set(links["one"]) | set(links["other"])) - here
    nodes = {peer: number for number, peer in enumerate([*sorted(here), *sorted(unrecorded)])}
    one = np.array([nodes[peer] for peer in links["one"]], dtype=np.int64)
    other = np.array([nodes[peer] for peer in links["other"]], dtype=np.int64)
    degrees = np.bincount(np.concatenate([one, other]), minlength=len(nodes))[: len(here)]
    adjacency = link_adjacency(nodes, zip(links["one"], links["other"], strict=True))
    component_count = len(connected_components(adjacency))
    is_measured = component_count == 1 and len(nodes) <= DIAMETER_PEERS_MAX
    return {
        "time": time_us,
        "peers": len(here),
        "unrecorded": len(unrecorded),
        "links": links.height,
        "degree_min": int(degrees.min()) if here else 0,
        "degree_mean": float(degrees.mean()) if here else 0.0,
        "degree_max": int(degrees.max()) if here else 0,
        "components": component_count,
        "diameter": diameter(adjacency) if is_measured else None,
    }


def _links(ends: pl.DataFrame, peers: pl.DataFrame) -> pl.DataFrame:
    """Each link once."""
    gone = peers.filter(~pl.col("member"))["observer"]
    return (
        ends.with_columns(
            one=pl.min_horizontal("observer", "neighbour"), other=pl.max_horizontal("observer", "neighbour")
        )
        .group_by("one", "other")
        .agg(pl.col("up").all())
        .filter("up", ~pl.col("one").is_in(gone.to_list()), ~pl.col("other").is_in(gone.to_list()))
        .sort("one", "other")
    )


def _apply_changes(ends: pl.DataFrame, peers: pl.DataFrame, changes: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """After these changes, which are in their order: the last word counts."""
    kind = pl.col("kind")
    said = changes.filter(kind.str.starts_with("link_")).select("observer", "neighbour", up=kind == "link_up")
    ends = pl.concat([ends, said]).unique(["observer", "neighbour"], keep="last", maintain_order=True)
    spoke = changes.filter(kind.is_in(["joined", "leaving", "left"])).select(
        "observer", member=kind == "joined", seen="time"
    )
    return ends, (
        pl.concat([peers, spoke])
        .group_by("observer", maintain_order=True)
        .agg(pl.col("member").drop_nulls().last(), pl.col("seen").max())
    )


def _update_last_seen(peers: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
    """Whoever was heard of is known, but no member before it says so."""
    fresh = seen.select("observer", member=pl.lit(None, pl.Boolean), seen="seen")
    return (
        pl.concat([peers, fresh])
        .group_by("observer", maintain_order=True)
        .agg(pl.col("member").drop_nulls().last(), pl.col("seen").max())
    )


def _remove_departed(
    ends: pl.DataFrame, peers: pl.DataFrame, watermark: Watermark
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Without those that are gone for good: ids are drawn anew at each connect, so they do not come back."""
    long_ago = watermark.after_us - PEER_TIMEOUT_US
    left = peers.filter(~pl.col("member") & (pl.col("seen") < long_ago))["observer"].to_list()
    peers = peers.filter(~pl.col("observer").is_in(left))
    known = peers["observer"].to_list()
    ends = ends.filter(pl.col("observer").is_in(known))
    up_with = ends.filter("up")
    linked = set(up_with["observer"]) | set(up_with["neighbour"])
    return ends, peers.filter((pl.col("seen") >= long_ago) | pl.col("observer").is_in(list(linked)))
