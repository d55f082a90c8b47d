"""The fabric at one moment as a page draws it, and the entries that change it.

An entry is a tuple that is sent to the browser as it is: seconds since the start, a letter, and the fields of a
timeline's change in their order. Peers are running numbers, which are short and fit into a JavaScript number.
"""

from dataclasses import dataclass, field
from typing import Any

from broadloom.testing.cluster.timeline import (
    Annotation,
    Change,
    LinkAdded,
    LinkRemoved,
    MessageHop,
    MessageSent,
    MessagesMissed,
    PeerAdded,
    PeerRemoved,
)
from broadloom.topology import connected_components, diameter, link_adjacency

Entry = tuple[Any, ...]

DIAMETER_PEERS_MAX = 5_000
"""Computing the diameter of a larger fabric would block the server."""

LETTERS: dict[type[Change], str] = {
    PeerAdded: "c",  # peer, name, ID in hex
    PeerRemoved: "w",  # peer, reason
    LinkAdded: "u",  # a, b, with a < b
    LinkRemoved: "d",  # a, b
    MessageSent: "s",  # author, sequence, size
    MessageHop: "h",  # author, sequence, source, peer, hops
    MessagesMissed: "m",  # peer, author, first, last
    Annotation: "t",  # text
}
PEER_ADDED, PEER_REMOVED, LINK_REMOVED = LETTERS[PeerAdded], LETTERS[PeerRemoved], LETTERS[LinkRemoved]
ANNOTATION = LETTERS[Annotation]
PEER_STATS = "f"
"""What the peers report about themselves: (at, "f", diameter estimate, free slots, full mesh, paused).

Free slots are a list of [peer, count], paused is a list of peers.
"""


@dataclass(slots=True)
class Snapshot:
    peers: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Number to name and ID in hex."""
    links: dict[tuple[int, int], None] = field(default_factory=dict)
    """A link may end at a peer that is not in the snapshot."""
    peer_stats: Entry | None = None
    missed: int = 0
    """Messages reported as missed up to this moment."""
    version: int = 0
    """Increases with each change of peers or links."""

    def apply(self, entry: Entry) -> None:
        match entry[1]:
            case "u":
                self.links[entry[2], entry[3]] = None
            case "d":
                self.links.pop((entry[2], entry[3]), None)
            case "c":
                self.peers[entry[2]] = (entry[3], entry[4])
            case "w":
                self.peers.pop(entry[2], None)
            case "f":
                self.peer_stats = entry
                return
            case "m":
                self.missed += entry[5] - entry[4] + 1
                return
            case _:
                return
        self.version += 1

    def copy(self) -> "Snapshot":
        return Snapshot(dict(self.peers), dict(self.links), self.peer_stats, self.missed, self.version)

    def visible_links(self) -> list[tuple[int, int]]:
        """Links between peers of the snapshot: what is counted and drawn."""
        return [(a, b) for a, b in self.links if a in self.peers and b in self.peers]

    def partition_count(self) -> int:
        return len(connected_components(link_adjacency(self.peers, self.visible_links())))

    def stats(self) -> dict[str, Any]:
        """The figures beside the drawing; `diameter` is None if the fabric is partitioned or too large."""
        links = self.visible_links()
        adjacency = link_adjacency(self.peers, links)
        partitions = len(connected_components(adjacency))
        is_measured = partitions == 1 and len(self.peers) <= DIAMETER_PEERS_MAX
        estimate, free_slots, is_full_mesh, paused = self.peer_stats[2:] if self.peer_stats else (None, None, None, [])
        return {
            "peers": len(self.peers),
            "links": len(links),
            "partitions": partitions,
            "diameter": diameter(adjacency) if is_measured else None,
            "missed": self.missed,
            "estimate": estimate,
            "free_slots": None if free_slots is None else sum(n for peer, n in free_slots if peer in self.peers),
            "is_full_mesh": is_full_mesh,
            "paused": paused,
        }
