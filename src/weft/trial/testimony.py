"""What the peers of one process answer when the coordinator audits: their own side of every promise."""

from typing import TYPE_CHECKING, Any

from weft.trial.ledger import Head, furthest

if TYPE_CHECKING:
    from weft.trial.member import Member

LACKING_TOLD_MAX = 5


def heads(members: "list[Member]", gone: list[int]) -> dict[str, Any]:
    """What our own peers have sent, and how far they have heard those that are no more."""
    wanted = dict.fromkeys(gone)
    heard = furthest(
        (author, entry.last, entry.last_ns)
        for member in members
        for author, entry in member.ledger.heard.items()
        if author in wanted
    )
    return {
        "living": [[member.id, member.sent, member.sent_ns] for member in members],
        "gone": [[author, head.last, head.last_ns] for author, head in heard.items()],
    }


def check(members: "list[Member]", told: list[list[int]]) -> dict[str, Any]:
    """What they lack of what is owed, and what they have that nobody sent."""
    roll = {author: Head(last, last_ns) for author, last, last_ns in told}
    lacking: list[str] = []
    beyond: list[str] = []
    for member in members:
        lacking += [f"peer {member.number} ({member.id:016x}) {text}" for text in member.ledger.lacking(roll)]
        beyond += [f"peer {member.number} ({member.id:016x}) {text}" for text in member.ledger.beyond(roll)]
    return {
        "lacking": lacking[:LACKING_TOLD_MAX],
        "lacking_count": len(lacking),
        "beyond": beyond[:LACKING_TOLD_MAX],
    }


def held(members: "list[Member]", ranges: list[list[int]]) -> list[list[int]]:
    """Of these ranges, those of which one of our peers has a message, or sent it: with the first such one."""
    found = []
    for author, first, last in ranges:
        for member in members:
            had = member.ledger.has_any(author, first, last)
            if member.id == author and first <= member.sent:
                had = first
            if had is not None:
                found.append([author, first, last, had])
                break
    return found
