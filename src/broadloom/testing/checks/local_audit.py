"""What the peers of one process answer when the coordinator audits: their own side of every promise."""

from typing import TYPE_CHECKING, Any

from broadloom.testing.checks.delivery_log import AuthorHead, latest_heads

if TYPE_CHECKING:
    from broadloom.testing.chaos.managed_peer import ManagedPeer

MISSING_REPORTED_MAX = 5


def author_heads(peers: "list[ManagedPeer]", departed: list[int]) -> dict[str, Any]:
    """What our own peers have sent, and how far they have heard those that are no more."""
    wanted = dict.fromkeys(departed)
    heads = latest_heads(
        (author, entry.last_sequence, entry.last_sent_ns)
        for member in peers
        for author, entry in member.delivery_log.author_logs.items()
        if author in wanted
    )
    return {
        "living": [[member.peer_id, member.sent_count, member.last_sent_ns] for member in peers],
        "gone": [[author, head.last_sequence, head.last_sent_ns] for author, head in heads.items()],
    }


def find_missing(peers: "list[ManagedPeer]", rows: list[list[int]]) -> dict[str, Any]:
    """What they lack of what is owed, and what they have that nobody sent."""
    expected = {author: AuthorHead(last, last_ns) for author, last, last_ns in rows}
    missing: list[str] = []
    unsent: list[str] = []
    for peer in peers:
        missing += [
            f"peer {peer.number} ({peer.peer_id:016x}) {text}" for text in peer.delivery_log.find_missing(expected)
        ]
        unsent += [
            f"peer {peer.number} ({peer.peer_id:016x}) {text}" for text in peer.delivery_log.find_unsent(expected)
        ]
    return {
        "lacking": missing[:MISSING_REPORTED_MAX],
        "lacking_count": len(missing),
        "beyond": unsent[:MISSING_REPORTED_MAX],
    }


def find_held(peers: "list[ManagedPeer]", ranges: list[list[int]]) -> list[list[int]]:
    """Of these ranges, those of which one of our peers has a message, or sent it: with the first such one."""
    found = []
    for author, first, last in ranges:
        for peer in peers:
            first_held = peer.delivery_log.first_held(author, first, last)
            if peer.peer_id == author and first <= peer.sent_count:
                first_held = first
            if first_held is not None:
                found.append([author, first, last, first_held])
                break
    return found
