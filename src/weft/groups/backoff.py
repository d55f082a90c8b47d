"""Random back-off: many could answer, one shall.

Everyone waits for a random time and keeps quiet if it hears the answer of another meanwhile. With equal odds for all
times, the answers would be as many as there are peers whose time falls into the first journey of a message. So early
times are rare: the odds grow exponentially towards the end, the faster the more peers there are. Then a handful answer
among ten or ten thousand (the truncated exponential timers of the multicast literature, as in RFC 5401).
"""

from math import exp, log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

PEERS_LEAST = 64
"""Who knows of few peers may simply be new: thinking of too many costs little, of too few a storm."""


def backoff_s(random: "Random", window_s: float, peers: int) -> float:
    """How long to wait, at most `window_s`."""
    steep = log(max(peers, PEERS_LEAST)) + 1
    return window_s * log(1 + random.random() * (exp(steep) - 1)) / steep
