"""The fabric of one channel through time: who was there, which links there were, and when it was regular.

The rule: a link counts between two peers that are there, from its `up` to its `down`; half links do not count.
"""

from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from weft.pipeline.arrow.frames import to_polars
from weft.pipeline.arrow.graph import Shape, parts, shape_of
from weft.record.arrow import pa

NEVER = np.int64(2**62)
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Timeline:
    """Made of the tables `links` and `lives` of one channel. `degree` 0: the most links that a peer ever had."""

    def __init__(self, links: pa.Table, lives: pa.Table, degree: int = 0) -> None:
        members = to_polars(lives).sort("peer")
        self.names: list[str] = members["peer"].to_list()
        self.is_recorded: Flags = members["is_recorded"].to_numpy().astype(bool)
        self.since: Ints = members["since"].to_numpy().astype(np.int64)
        self.gone: Ints = members["gone"].fill_null(int(NEVER)).to_numpy().astype(np.int64)
        self.how: list[str] = members["how"].to_list()
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
        self.up = np.maximum(up, np.maximum(self.since[self.a], self.since[self.b]))
        self.down = np.maximum(self.up, np.minimum(down, np.minimum(self.gone[self.a], self.gone[self.b])))
        self.degree = degree or self.degree_most

    @cached_property
    def times(self) -> Ints:
        """Moments at which anything changes."""
        every = np.concatenate([self.up, self.down, self.since, self.gone])
        return np.unique(every[every < NEVER])

    @cached_property
    def degree_most(self) -> int:
        """The most links that a peer had at once. No operation takes a peer above its degree, so that is it."""
        peer, time, change = self._changes()
        order = np.lexsort((change, time, peer))  # at the same moment, what ends comes first
        peer, so_far = peer[order], np.cumsum(change[order])
        if not len(peer):
            return 0
        first = np.concatenate([[0], np.flatnonzero(np.diff(peer)) + 1])
        before = np.repeat(np.concatenate([[0], so_far[first[1:] - 1]]), np.diff(np.append(first, len(peer))))
        return int((so_far - before).max())

    def there(self, time: int) -> Flags:
        return (self.since <= time) & (time < self.gone)

    def graph(self, time: int) -> tuple[Ints, Ints, Ints]:
        """The numbers of the peers at a moment, and the ends of the links as places among these."""
        peers = np.flatnonzero(self.there(time))
        place = np.zeros(len(self.names), dtype=np.int64)
        place[peers] = np.arange(len(peers))
        linked = (self.up <= time) & (time < self.down)
        ends = np.sort(np.stack([place[self.a[linked]], place[self.b[linked]]]), axis=0)
        a, b = np.unique(ends, axis=1)  # the two ends may differ for a moment on which link of theirs it is
        return peers, a, b

    def shape(self, time: int) -> Shape:
        peers, a, b = self.graph(time)
        return shape_of(a, b, len(peers))

    def parts(self, time: int) -> int:
        peers, a, b = self.graph(time)
        return parts(a, b, len(peers))

    def degrees_recorded(self, time: int) -> dict[int, int]:
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
        for moment, sign in ((self.since, 1), (self.gone, -1)):
            counted = (moment < NEVER) & self.is_recorded
            np.add.at(held[:, 0], np.searchsorted(self.times, moment[counted]), sign)
        held = np.cumsum(held, axis=0)[:-1]
        peers = self.peers_at(self.times)
        wanted = np.clip(np.minimum(self.degree, peers - 1), 0, None)
        rows = np.arange(len(self.times))
        right = held[rows, wanted]
        short = np.where(wanted > 0, held[rows, np.maximum(wanted - 1, 0)], 0)
        spare = wanted * peers % 2
        known = held.sum(axis=1)
        return np.asarray((right == known) | ((right + short == known) & (short <= spare)))

    def peers_at(self, times: Ints) -> Ints:
        came = np.searchsorted(np.sort(self.since), times, side="right")
        went = np.searchsorted(np.sort(self.gone), times, side="right")
        return np.asarray(came - went, dtype=np.int64)

    def _changes(self) -> tuple[Ints, Ints, Ints]:
        """Each end of each link, when it came and when it went: peer, time, +1 or -1."""
        lasting = self.up < self.down
        a, b, up, down = self.a[lasting], self.b[lasting], self.up[lasting], self.down[lasting]
        ended = down < NEVER
        peer = np.concatenate([a, b, a[ended], b[ended]])
        time = np.concatenate([up, up, down[ended], down[ended]])
        change = np.concatenate([np.ones(2 * len(a), np.int64), -np.ones(2 * int(ended.sum()), np.int64)])
        return peer, time, change
