"""The fabric at one moment as a page draws it, and the entries that change it.

An entry is a tuple that is sent to the browser as it is: seconds since the start, a letter, and its arguments. Peers
are running numbers, which are short and fit into a JavaScript number.
"""

from dataclasses import dataclass, field
from typing import Any

from broadloom.topology import connected_components, diameter, link_adjacency

Entry = tuple[Any, ...]

DIAMETER_PEERS_MAX = 5_000
"""Computing the diameter of a larger fabric would block the server."""

(
    PEER_ADDED,
    PEER_REMOVED,
    LINK_ADDED,
    LINK_REMOVED,
    MESSAGE_SENT,
    MESSAGE_HOP,
    MESSAGES_MISSED,
    ANNOTATION,
    PEER_STATS,
) = "c", "w", "u", "d", "s", "h", "m", "t", "f"
"""The letters.

    (at, "c", peer, name, id in hex)              a peer was added
    (at, "w", peer, reason)                       it left, was killed or crashed
    (at, "u", a, b), (at, "d", a, b)              a link came up, went down
    (at, "s", author, sequence, size)             a message was sent
    (at, "h", author, sequence, source, peer, hops)
    (at, "m", peer, author, first, last)          a peer reported missed messages
    (at, "t", text)                               a sentence for the log
    (at, "f", estimate, free slots, full mesh, paused)  what the peers report about themselves

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
                self.version += 1
            case "d":
                self.links.pop((entry[2], entry[3]), None)
                self.version += 1
            case "c":
                self.peers[entry[2]] = (entry[3], entry[4])
                self.version += 1
            case "w":
                self.peers.pop(entry[2], None)
                self.version += 1
            case "f":
                self.peer_stats = entry
            case "m":
                self.missed += entry[5] - entry[4] + 1

    def copy(self) -> "Snapshot":
        return Snapshot(dict(self.peers), dict(self.links), self.peer_stats, self.missed, self.version)

    def visible_links(self) -> list[tuple[int, int]]:
        """Links between peers of the snapshot: what is counted and drawn."""
        return [(a, b) for a, b in self.links if a in self.peers and b in self.peers]

    def stats(self) -> dict[str, Any]:
        """The figures beside the drawing; `diameter` is None if the fabric is partitioned or too large."""
        links = self.visible_links()
        adjacency = link_adjacency(self.peers, links)
        components = connected_components(adjacency)
        is_measured = len(components) == 1 and len(self.peers) <= DIAMETER_PEERS_MAX
        stats: dict[str, Any] = {
            "peers": len(self.peers),
            "links": len(links),
            "parts": len(components),
            "diameter": diameter(adjacency) if is_measured else None,
            "missed": self.missed,
            "estimate": None,
            "holes": None,
            "small": None,
            "frozen": [],
            "lacking": [],
        }
        if self.peer_stats is not None:
            _, _, estimate, free_slots, is_small, paused = self.peer_stats
            with_free_slots = [[peer, count] for peer, count in free_slots if peer in self.peers]
            stats |= {
                "estimate": estimate,
                "holes": sum(count for _, count in with_free_slots),
                "small": is_small,
                "frozen": paused,
                "lacking": with_free_slots,
            }
        return stats
