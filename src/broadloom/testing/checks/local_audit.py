"""The part of an audit that a worker answers for its own peers."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from broadloom.testing.checks.audit import encode_heads, latest_heads

if TYPE_CHECKING:
    from broadloom.testing.processes.managed_peer import ManagedPeer

DESCRIPTIONS_MAX = 5


def author_heads(peers: "Iterable[ManagedPeer]", departed: list[int]) -> dict[str, Any]:
    """What these peers have sent, and the last message they have of each departed author."""
    peers, wanted = list(peers), set(departed)
    heads = latest_heads(
        (author, log.last_sequence, log.last_sent_ns)
        for peer in peers
        for author, log in peer.delivery_log.author_logs.items()
        if author in wanted
    )
    running = [[peer.peer_id, peer.sent_count, peer.last_sent_ns] for peer in peers]
    return {"running": running, "departed": encode_heads(heads)}


def find_missing(peers: "Iterable[ManagedPeer]", rows: list[list[int]]) -> dict[str, Any]:
    peers, expected = list(peers), latest_heads(rows)
    missing = [_label(peer, text) for peer in peers for text in peer.delivery_log.find_missing(expected)]
    pairs = len(expected) * len(peers)
    return {"missing": missing[:DESCRIPTIONS_MAX], "missing_count": len(missing), "pairs": pairs}


def find_unsent(peers: "Iterable[ManagedPeer]", rows: list[list[int]]) -> list[str]:
    expected = latest_heads(rows)
    unsent = [_label(peer, text) for peer in peers for text in peer.delivery_log.find_unsent(expected)]
    return unsent[:DESCRIPTIONS_MAX]


def find_held(peers: "Iterable[ManagedPeer]", ranges: list[list[int]]) -> list[list[int]]:
    """Return the ranges of which one of these peers has or sent a message, each with the first such message."""
    peers, found = list(peers), []
    for author, first, last in ranges:
        for peer in peers:
            first_held = peer.delivery_log.first_held(author, first, last)
            if peer.peer_id == author and first <= peer.sent_count:
                first_held = first
            if first_held is not None:
                found.append([author, first, last, first_held])
                break
    return found


def _label(peer: "ManagedPeer", text: str) -> str:
    return f"peer {peer.number} ({peer.peer_id:016x}) {text}"
