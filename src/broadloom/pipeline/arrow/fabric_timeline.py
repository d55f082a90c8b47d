"""The fabric of one channel through time: who was there, which links there were, and when it was regular.

The rule: a link counts between two peers that are there, from its `up` to its `down`; half links do not count.
"""

from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from broadloom.pipeline.arrow.frames import to_polars
from broadloom.record.arrow_import import pa
from broadloom.topology import Topology, analyze_topology, component_labels, link_adjacency

EXACT_PEERS_MAX = 3_000
"""Distances of larger fabrics are sampled."""

NEVER = np.int64(2**62)
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class FabricTimeline:
    """Made of the tables `links` and `lives` of one channel. `degree` 0: the most links that a peer ever had."""

    def __init__(self, links: pa.Table, intervals: pa.Table, degree: int = 0) -> None:
        members = to_polars(intervals).sort("peer")
        self.names: list[str] = members["peer"].to_list()
        self.is_recorded: Flags = members["is_recorded"].to_numpy().astype(bool)
        self.start: Ints = members["since"].to_numpy().astype(np.int64)
        self.end: Ints = members["gone"].fill_null(int(NEVER)).to_numpy().astype(np.int64)
        self.end_status: list[str] = members["how"].to_list()
        number = pl.DataFrame({"peer": self.names, "number": np.arange(len(self.names))})
        whole = (
            to_polars(links)
            .filter(pl.col("known_by") != "half")
            .join(number.rename({"peer": "low", "number": "a"}), on="low")
            .join(number.rename({"peer": "high", "number": "b"}), on="high")
        )
        self.a: Ints = whole["a"].to_numpy().astype(np.int64)
        self.b: Ints = whole["b"].to_numpy().astype(np.int64)
        up = whole["up"].to_numpy().astype(np.int64)
        down = whole["down"].fill_null(int(NEVER)).to_numpy().astype(np.int64)
        self.link_start = np.maximum(up, np.maximum(self.start[self.a], self.start[self.b]))
        self.link_end = np.maximum(self.link_start, np.minimum(down, np.minimum(self.end[self.a], self.end[self.b])))
        self.degree = degree or self.degree_max

    @cached_property
    def times(self) -> Ints:
        """Moments at which anything changes."""
        every = np.concatenate([self.link_start, self.link_end, self.start, self.end])
        return np.unique(every[every < NEVER])

    @cached_property
    def degree_max(self) -> int:
        """The most links that a peer had at once. No operation takes a peer above its degree, so that is it."""
        peer, time, change = self._changes()
        order = np.lexsort((change, time, peer))  # at the same moment, what ends comes first
        peer, so_far = peer[order], np.cumsum(change[order])
        if not len(peer):
            return 0
        first = np.concatenate([[0], np.flatnonzero(np.diff(peer)) + 1])
        before = np.repeat(np.concatenate([[0], so_far[first[1:] - 1]]), np.diff(np.append(first, len(peer))))
        return int((so_far - before).max())

    def is_present(self, time: int) -> Flags:
        return (self.start <= time) & (time < self.end)

    def graph(self, time: int) -> tuple[Ints, Ints, Ints]:
        """The numbers of the peers at a moment, and the ends of the links as places among these."""
        peers = np.flatnonzero(self.is_present(time))
        place = np.zeros(len(self.names), dtype=np.int64)
        place[peers] = np.arange(len(peers))
        linked = (self.link_start <= time) & (time < self.link_end)
        ends = np.sort(np.stack([place[self.a[linked]], place[self.b[linked]]]), axis=0)
        a, b = np.unique(ends, axis=1)  # the two ends may differ for a moment on which link of theirs it is
        return peers, a, b

    def topology(self, time: int) -> Topology:
        peers, a, b = self.graph(time)
        links = link_adjacency(range(len(peers)), zip(a.tolist(), b.tolist(), strict=True))
        return analyze_topology(links, exact_peers_max=EXACT_PEERS_MAX)

    def component_count(self, time: int) -> int:
        peers, a, b = self.graph(time)
        return int(component_labels(len(peers), a, b).max(initial=-1)) + 1

    def recorded_degrees(self, time: int) -> dict[int, int]:
        """Degree -> peers, of those that record: of the others not all links are known."""
        peers, a, b = self.graph(time)
        degree = np.bincount(np.concatenate([a, b]), minlength=len(peers))[self.is_recorded[peers]]
        values, counts = np.unique(degree, return_counts=True)
        return dict(zip(values.tolist(), counts.tolist(), strict=True))

    @cached_property
    def is_regular(self) -> Flags:
        """For each of `times`, whether everyone who records has its degree of links then."""
        peer, time, change = self._changes()
        at = np.searchsorted(self.times, time)
        order = np.lexsort((at, peer))
        peer, at, change = peer[order], at[order], change[order]
        total = np.cumsum(change)
        first = np.searchsorted(peer, peer)  # where the peer of each row begins
        after = total - (total[first] - change[first])
        keep = self.is_recorded[peer]
        top = self.degree + 1  # what has more links than it should is as wrong as what has many more
        held = np.zeros((len(self.times) + 1, top + 1), dtype=np.int64)
        np.add.at(held, (at[keep], np.minimum(after, top)[keep]), 1)
        np.subtract.at(held, (at[keep], np.minimum(after - change, top)[keep]), 1)
        for moment, sign in ((self.start, 1), (self.end, -1)):
            counted = (moment < NEVER) & self.is_recorded
            np.add.at(held[:, 0], np.searchsorted(self.times, moment[counted]), sign)
        held = np.cumsum(held, axis=0)[:-1]
        peers = self.peer_counts(self.times)
        wanted = np.clip(np.minimum(self.degree, peers - 1), 0, None)
        rows = np.arange(len(self.times))
        right = held[rows, wanted]
        short = np.where(wanted > 0, held[rows, np.maximum(wanted - 1, 0)], 0)
        spare = wanted * peers % 2
        known = held.sum(axis=1)
        return np.asarray((right == known) | ((right + short == known) & (short <= spare)))

    def peer_counts(self, times: Ints) -> Ints:
        came = np.searchsorted(np.sort(self.start), times, side="right")
        went = np.searchsorted(np.sort(self.end), times, side="right")
        return np.asarray(came - went, dtype=np.int64)

    def _changes(self) -> tuple[Ints, Ints, Ints]:
        """Each end of each link, when it came and when it went: peer, time, +1 or -1."""
        lasting = self.link_start < self.link_end
        a, b, up, down = self.a[lasting], self.b[lasting], self.link_start[lasting], self.link_end[lasting]
        ended = down < NEVER
        peer = np.concatenate([a, b, a[ended], b[ended]])
        time = np.concatenate([up, up, down[ended], down[ended]])
        change = np.concatenate([np.ones(2 * len(a), np.int64), -np.ones(2 * int(ended.sum()), np.int64)])
        return peer, time, change
