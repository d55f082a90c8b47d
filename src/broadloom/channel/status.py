"""The local truth about one peer: what `channel.status()` tells."""

from dataclasses import asdict, dataclass
from typing import Any

from broadloom.protocol.events import PeerState
from broadloom.transport import TcpNode


@dataclass(frozen=True, slots=True)
class NeighborStatus:
    peer_id: str
    address: str
    name: str
    """As on its ticket; empty without tickets."""
    link_age_s: float
    send_queue_bytes: int
    """Waiting on our side for it to read."""
    neighbors: tuple[str, ...]
    """Its own neighbours, as it told last."""


@dataclass(frozen=True, slots=True)
class Status:
    """As this peer sees it. Nobody knows the whole."""

    channel: str
    peer_id: str
    address: str
    name: str
    role: str
    state: str
    security: str
    """`plain`, `tls`, or `tls, signed`."""
    degree: int
    neighbors: tuple[NeighborStatus, ...]
    free_slots: int
    """Links that are lacking. In a fabric of at most degree + 1 peers, everyone is linked to everyone and some
    stay."""
    is_full_mesh: bool
    """Whether everyone is linked to everyone."""
    diameter_estimate: int
    """Estimated: how far anything was seen to travel."""
    author_count: int
    retained_bytes: int
    unread_count: int
    unread_bytes: int
    counters: dict[str, int]
    """What was sent, delivered, dropped and refused, and why."""
    local_peers: "tuple[Status, ...]" = ()
    """The other peers of a set that acts as one."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def status_of(channel: str, node: TcpNode, *, unread_count: int = 0, unread_bytes: int = 0) -> Status:
    peer, now = node.peer, node.now()
    neighbors = tuple(
        NeighborStatus(
            peer_id=f"{link.peer_id:016x}",
            address=str(link.peer_info.address),
            name=link.identity.name if link.identity is not None else "",
            link_age_s=round(now - link.linked_at, 3),
            send_queue_bytes=link.queued_bytes,
            neighbors=tuple(f"{each:016x}" for each in link.neighbor_list or ()),
        )
        for link in peer.links
    )
    identity = node.credentials.identity if node.credentials is not None else None
    signed = peer.broadcaster.verifier is not None
    return Status(
        channel=channel,
        peer_id=f"{peer.me.peer_id:016x}",
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
    return {
        **counters,
        **{f"rejected_{name}": count for name, count in handshakes.items()},
        "connections_denied": node.admission_control.connections_denied,
        "handshakes_evicted": node.admission_control.handshakes_evicted,
    }
