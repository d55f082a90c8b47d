"""Sentences for people about what was done to peers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broadloom.testing.cluster.cluster_state import PeerRecord

NAMED_MAX = 12
_PASSIVE_EVENTS = ("killed", "frozen", "thawed")


def format_seconds(duration_s: float) -> str:
    return f"{duration_s:.2f} s" if duration_s < 1 else f"{duration_s:.1f} s"


def describe_count(count: int, event: str) -> str:
    """ "1 peer was killed", "8 peers came"."""
    if count == 1:
        return f"1 peer was {event}" if event in _PASSIVE_EVENTS else f"1 peer {event}"
    return f"{count} peers were {event}" if event in _PASSIVE_EVENTS else f"{count} peers {event}"


def describe_peers(peers: "Sequence[PeerRecord]", event: str) -> str:
    """The same with their numbers."""
    if len(peers) == 1:
        return f"peer {peers[0].number} {'was ' if event in _PASSIVE_EVENTS else ''}{event}"
    numbers = ", ".join(str(known.number) for known in sorted(peers, key=lambda each: each.number)[:NAMED_MAX])
    more = f" and {len(peers) - NAMED_MAX} more" if len(peers) > NAMED_MAX else ""
    return f"{describe_count(len(peers), event)}: {numbers}{more}"
