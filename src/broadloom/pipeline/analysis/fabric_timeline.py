"""The fabric of one channel through time: its peers, its links, and when it was regular.

A link counts from its start to its end while both peers are present. Disputed links do not count.
"""

from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from broadloom.pipeline.analysis.frames import MICROSECONDS_PER_S, in_us
from broadloom.testing.checks.settling import FabricState
from broadloom.topology import Topology, analyze_topology, component_labels, link_adjacency, target_degree

EXACT_PEERS_MAX = 3_000
"""Distances of larger fabrics are sampled."""

NEVER = np.int64(2**62)
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class FabricTimeline:
    """Built from `links` and `membership_intervals` of one channel. `degree` 0: the most links any peer recorded."""

    def __init__(self, links: pl.DataFrame, intervals: pl.DataFrame, degree: int = 0) -> None:
        members = in_us(intervals).sort("peer")
        self.names: list[str] = members["peer"].to_list()
        self.is_recorded: Flags = members["is_recorded"].to_numpy().astype(bool)
        self.start: Ints = members["start_time"].to_numpy().astype(np.int64)
        self.end: Ints = members["end_time"].fill_null(int(NEVER)).to_numpy().astype(np.int64)
        self.end_status: list[str] = members["end_status"].to_list()
        number = pl.DataFrame({"peer": self.names, "number": np.arange(len(self.names))})
        undisputed = (
            in_us(links)
            .filter(pl.col("evidence") != "disputed")
            .join(number.rename({"peer": "peer_a", "number": "a"}), on="peer_a")
            .join(number.rename({"peer": "peer_b", "number": "b"}), on="peer_b")
        )
        self.a: Ints = undisputed["a"].to_numpy().astype(np.int64)
        self.b: Ints = undisputed["b"].to_numpy().astype(np.int64)
        self.a_recorded: Flags = undisputed["a_start_time"].is_not_null().to_numpy()
        self.b_recorded: Flags = undisputed["b_start_time"].is_not_null().to_numpy()
        start = undisputed["start_time"].to_numpy().astype(np.int64)
        end = undisputed["end_time"].fill_null(int(NEVER)).to_numpy().astype(np.int64)
        self.link_start = np.maximum(start, np.maximum(self.start[self.a], self.start[self.b]))
        self.link_end = np.maximum(self.link_start, np.minimum(end, np.minimum(self.end[self.a], self.end[self.b])))
        self.degree = degree or self.degree_max

    @cached_property
    def times(self) -> Ints:
        """Times at which the fabric changes."""
        every = np.concatenate([self.link_start, self.link_end, self.start, self.end])
        return np.unique(every[every < NEVER])

    @cached_property
    def degree_max(self) -> int:
        """The most links that a peer recorded at once. No operation takes a peer above its degree.

        What others recorded about a peer does not count. Of a peer without a tape, or whose tape ended before it was
        killed, its old neighbor may record the end of a link after its new neighbor has recorded the start.
        """
        peer, time, change = self._changes(self.a_recorded, self.b_recorded)
        order = np.lexsort((change, time, peer))  # at the same time, ends come first
        peer, total = peer[order], np.cumsum(change[order])
        if not len(peer):
            return 0
        first = np.concatenate([[0], np.flatnonzero(np.diff(peer)) + 1])
        before = np.repeat(np.concatenate([[0], total[first[1:] - 1]]), np.diff(np.append(first, len(peer))))
        return int((total - before).max())

    def is_present(self, time: int) -> Flags:
        return (self.start <= time) & (time < self.end)

    def graph(self, time: int) -> tuple[Ints, Ints, Ints]:
        """The peers present at a time, and the links as indexes into these.

        A peer without a tape is out of sight while no recorded peer has a link to it.
        """
        linked = (self.link_start <= time) & (time < self.link_end)
        in_sight = self.is_recorded.copy()
        in_sight[self.a[linked]] = in_sight[self.b[linked]] = True
        peers = np.flatnonzero(self.is_present(time) & in_sight)
        position = np.zeros(len(self.names), dtype=np.int64)
        position[peers] = np.arange(len(peers))
        ends = np.sort(np.stack([position[self.a[linked]], position[self.b[linked]]]), axis=0)
        a, b = np.unique(ends, axis=1)  # for a moment, two links between the same peers may overlap
        return peers, a, b

    def topology(self, time: int) -> Topology:
        peers, a, b = self.graph(time)
        links = link_adjacency(range(len(peers)), zip(a.tolist(), b.tolist(), strict=True))
        return analyze_topology(links, exact_peers_max=EXACT_PEERS_MAX)

    def component_count(self, time: int) -> int:
        peers, a, b = self.graph(time)
        return int(component_labels(len(peers), a, b).max(initial=-1)) + 1

    def recorded_degrees(self, time: int) -> dict[int, int]:
        """Degree -> number of recorded peers. Of the other peers not all links are known."""
        peers, a, b = self.graph(time)
        degree = np.bincount(np.concatenate([a, b]), minlength=len(peers))[self.is_recorded[peers]]
        values, counts = np.unique(degree, return_counts=True)
        return dict(zip(values.tolist(), counts.tolist(), strict=True))

    @cached_property
    def is_regular(self) -> Flags:
        """For each of `times`, whether all recorded peers have their degree of links."""
        every = np.ones(len(self.a), dtype=bool)
        peer, time, change = self._changes(every, every)
        at = np.searchsorted(self.times, time)
        order = np.lexsort((at, peer))
        peer, at, change = peer[order], at[order], change[order]
        total = np.cumsum(change)
        first = np.searchsorted(peer, peer)  # first row of the same peer
        after = total - (total[first] - change[first])
        keep = self.is_recorded[peer]
        top = self.degree + 1  # all degrees above the right one are equally wrong
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

    def repaired_since(self, time: int) -> int | None:
        """When the fabric was first regular and connected, at this time or later; None if never."""
        place = max(int(np.searchsorted(self.times, time, side="right")) - 1, 0)
        for index in np.flatnonzero(self.is_regular[place:]) + place:
            if self.component_count(int(self.times[index])) <= 1:
                return max(int(self.times[index]), time)
        return None

    def state_at(self, now: int, disruptions: Ints, settle_s: float) -> FabricState:
        """How far the repair is. `disruptions` are the times up to now at which a link was lost abruptly, in order."""
        if not len(disruptions) or not len(self.times):
            return FabricState()
        repaired = self.repaired_since(int(disruptions[-1]))
        if repaired is not None and repaired <= now:
            return FabricState(repaired_s=(now - repaired) / MICROSECONDS_PER_S, settle_s=settle_s)
        whole = next(
            (
                int(self.times[index])
                for index in np.flatnonzero(self.is_regular & (self.times <= now))[::-1]
                if self.component_count(int(self.times[index])) <= 1
            ),
            0,
        )
        since = int(disruptions[disruptions >= whole][0]) if whole <= disruptions[-1] else int(disruptions[-1])
        held = self.recorded_degrees(now)
        wanted = target_degree(int(self.peer_counts(np.array([now]))[0]), self.degree)
        free_slots = sum(max(wanted - degree, 0) * count for degree, count in held.items())
        repairing_s = (now - since) / MICROSECONDS_PER_S
        return FabricState(self.component_count(now), free_slots, repairing_s=repairing_s, settle_s=settle_s)

    def peer_counts(self, times: Ints) -> Ints:
        started = np.searchsorted(np.sort(self.start), times, side="right")
        ended = np.searchsorted(np.sort(self.end), times, side="right")
        return np.asarray(started - ended, dtype=np.int64)

    def _changes(self, at_a: Flags, at_b: Flags) -> tuple[Ints, Ints, Ints]:
        """Start and end of each link at these of its ends: peer, time, +1 or -1."""
        lasting = self.link_start < self.link_end
        in_a, in_b = lasting & at_a, lasting & at_b
        peer = np.concatenate([self.a[in_a], self.b[in_b]])
        up = np.concatenate([self.link_start[in_a], self.link_start[in_b]])
        down = np.concatenate([self.link_end[in_a], self.link_end[in_b]])
        ended = down < NEVER
        change = np.concatenate([np.ones(len(peer), np.int64), -np.ones(int(ended.sum()), np.int64)])
        return np.concatenate([peer, peer[ended]]), np.concatenate([up, down[ended]]), change
