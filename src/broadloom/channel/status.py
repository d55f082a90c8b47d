"""`Status`: what one peer knows about itself and its neighbors."""

from dataclasses import asdict, dataclass, field
from typing import Any

from broadloom.protocol.events import PeerState
from broadloom.transport import TcpNode
from broadloom.wire import PeerId


@dataclass(frozen=True, slots=True)
class NeighborStatus:
    peer_id: PeerId
    address: str
    name: str
    """The name on its ticket; empty without tickets."""
    link_age_s: float
    send_queue_bytes: int
    """Queued on this side."""
    neighbors: tuple[PeerId, ...]
    """Its own neighbors, as last reported by it."""

    def as_dict(self) -> dict[str, Any]:
        """As `Status.as_dict`."""
        return {**asdict(self), "peer_id": str(self.peer_id), "neighbors": list(map(str, self.neighbors))}


@dataclass(frozen=True, slots=True)
class Status:
    """The local view of one peer."""

    channel: str
    peer_id: PeerId
    address: str
    name: str
    role: str
    state: str
    security: str
    """`plain`, `tls`, or `tls, signed`."""
    degree: int
    neighbors: tuple[NeighborStatus, ...]
    free_slots: int
    """Unfilled link slots. A full mesh of fewer than degree + 1 peers always has some."""
    is_full_mesh: bool
    """Whether every peer is linked to every other."""
    diameter_estimate: int
    """The longest path observed so far."""
    member_count: int
    """Peers in the roster, this one included."""
    author_count: int
    retained_bytes: int
    unread_count: int
    unread_bytes: int
    counters: dict[str, int]
    """Sent, delivered, dropped and rejected messages and connections, by reason."""
    unknown_layers: dict[str, int] = field(default_factory=dict)
    """Messages of layers that this program does not run, by mark."""
    local_peers: "tuple[Status, ...]" = ()
    """The secondary peers of this program."""

    def as_dict(self) -> dict[str, Any]:
        """The status as JSON-serializable values, with ids in hex."""
        return {
            **asdict(self),
            "peer_id": str(self.peer_id),
            "neighbors": [neighbor.as_dict() for neighbor in self.neighbors],
            "local_peers": [peer.as_dict() for peer in self.local_peers],
        }


def status_of(channel: str, node: TcpNode, *, unread_count: int = 0, unread_bytes: int = 0) -> Status:
    peer, now = node.peer, node.now()
    neighbors = tuple(
        NeighborStatus(
            peer_id=PeerId(link.peer_id),
            address=str(link.peer_info.address),
            name=link.identity.name if link.identity is not None else "",
            link_age_s=round(now - link.linked_at, 3),
            send_queue_bytes=link.queued_bytes,
            neighbors=tuple(map(PeerId, link.neighbor_list or ())),
        )
        for link in peer.links
    )
    identity = node.credentials.identity if node.credentials is not None else None
    signed = peer.broadcaster.verifier is not None
    return Status(
        channel=channel,
        peer_id=PeerId(peer.me.peer_id),
        address=str(peer.me.address),
        name=identity.name if identity is not None else "",
        role=identity.role.value if identity is not None else "producer",
        state=peer.state.value,
        security="plain" if identity is None else "tls, signed" if signed else "tls",
        degree=peer.settings.degree,
        neighbors=neighbors,
        free_slots=peer.links.free_slots if peer.state is not PeerState.LEFT else 0,
        is_full_mesh=peer.join_protocol.is_full_mesh,
        diameter_estimate=peer.diameter.estimate,
        member_count=len(peer.roster.peer_ids()),
        author_count=len(peer.broadcaster.receiver.windows),
        retained_bytes=peer.broadcaster.retention.retained_bytes,
        unread_count=unread_count,
        unread_bytes=unread_bytes,
        counters=_counters(node),
    )


def _counters(node: TcpNode) -> dict[str, int]:
    counters = asdict(node.peer.counters)
    handshakes = asdict(node.handshake_counters)
    counters["malformed_frames"] += handshakes.pop("malformed_frames")
    handshakes["revoked"] += counters.pop("revoked_links")
    return {
        **counters,
        **{f"rejected_{name}": count for name, count in handshakes.items()},
        "connections_denied": node.admission_control.connections_denied,
        "handshakes_evicted": node.admission_control.handshakes_evicted,
    }
