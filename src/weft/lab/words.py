"""Sentences for people about what was done to peers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.lab.roster import Known

NAMED_MAX = 12
_PASSIVE = ("killed", "frozen", "thawed")


def seconds(took_s: float) -> str:
    return f"{took_s:.2f} s" if took_s < 1 else f"{took_s:.1f} s"


def peers_were(count: int, what: str) -> str:
    """ "1 peer was killed", "8 peers came"."""
    if count == 1:
        return f"1 peer was {what}" if what in _PASSIVE else f"1 peer {what}"
    return f"{count} peers were {what}" if what in _PASSIVE else f"{count} peers {what}"


def those_were(peers: "Sequence[Known]", what: str) -> str:
    """The same with their numbers."""
    if len(peers) == 1:
        return f"peer {peers[0].number} {'was ' if what in _PASSIVE else ''}{what}"
    numbers = ", ".join(str(known.number) for known in sorted(peers, key=lambda each: each.number)[:NAMED_MAX])
    more = f" and {len(peers) - NAMED_MAX} more" if len(peers) > NAMED_MAX else ""
    return f"{peers_were(len(peers), what)}: {numbers}{more}"
