"""The local truth about one peer: what `channel.status()` tells."""

from dataclasses import asdict, dataclass
from typing import Any

from weft.fabric.state import State
from weft.net import Node


@dataclass(frozen=True, slots=True)
class Neighbour:
    peer: str
    address: str
    name: str
    """As on its ticket; empty without tickets."""
    linked_s: float
    queued_bytes: int
    """Waiting on our side for it to read."""
    neighbours: tuple[str, ...]
    """Its own neighbours, as it told last."""


@dataclass(frozen=True, slots=True)
class Status:
    """As this peer sees it. Nobody knows the whole."""

    channel: str
    peer: str
    address: str
    name: str
    role: str
    state: str
    security: str
    """`plain`, `tls`, or `tls, signed`."""
    degree: int
    neighbours: tuple[Neighbour, ...]
    holes: int
    """Links that are lacking. In a fabric of at most degree + 1 peers, everyone is linked to everyone and some
    stay."""
    small: bool
    """Whether everyone is linked to everyone."""
    diameter: int
    """Estimated: how far anything was seen to travel."""
    authors: int
    retained_bytes: int
    unread: int
    unread_bytes: int
    counters: dict[str, int]
    """What was sent, delivered, dropped and refused, and why."""
    others: "tuple[Status, ...]" = ()
    """The other peers of a set that acts as one."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def status_of(channel: str, node: Node, *, unread: int = 0, unread_bytes: int = 0) -> Status:
    peer, now = node.peer, node.now()
    neighbours = tuple(
        Neighbour(
            peer=f"{link.neighbour:016x}",
            address=str(link.contact.address),
            name=link.identity.name if link.identity is not None else "",
            linked_s=round(now - link.made_at, 3),
            queued_bytes=link.queued_bytes,
            neighbours=tuple(f"{each:016x}" for each in link.view or ()),
        )
        for link in peer.links
    )
    identity = node.membership.identity if node.membership is not None else None
    signed = peer.stream.signing is not None
    return Status(
        channel=channel,
        peer=f"{peer.me.peer:016x}",
        address=str(peer.me.address),
        name=identity.name if identity is not None else "",
        role=identity.role.value if identity is not None else "producer",
        state=peer.state.value,
        security="plain" if identity is None else "tls, signed" if signed else "tls",
        degree=peer.settings.degree,
        neighbours=neighbours,
        holes=peer.links.holes if peer.state is not State.LEFT else 0,
        small=peer.joining.small,
        diameter=peer.diameter.estimate,
        authors=len(peer.stream.authors),
        retained_bytes=peer.stream.retention.held_bytes,
        unread=unread,
        unread_bytes=unread_bytes,
        counters=_counters(node),
    )


def _counters(node: Node) -> dict[str, int]:
    counters = asdict(node.peer.counters)
    refusals = asdict(node.refusals)
    counters["malformed"] += refusals.pop("malformed")
    return {
        **counters,
        **{f"refused_{name}": count for name, count in refusals.items()},
        "turned_away": node.doorman.turned_away,
        "hurried": node.doorman.hurried,
    }
