"""Random back-off: many could answer, one shall.

Everyone waits for a random time and keeps quiet if it hears the answer of another meanwhile. With equal odds for all
times, the answers would be as many as there are peers whose time falls into the first journey of a message. So early
times are rare: the odds grow exponentially towards the end, the faster the more peers there are. Then a handful answer
among ten or ten thousand (the truncated exponential timers of the multicast literature, as in RFC 5401).

Where few listen, a storm is small whatever happens, and people wait for the answer: the window is shorter then.
"""

from math import exp, log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

MANY = 64
"""Who does not know how many there are may simply be new, and thinks of so many: too many costs some time, too few a
storm."""
WHOLE_WINDOW_PEERS = 32
"""So many need the whole window..."""
WINDOW_LEAST = 1 / 6
"""...and two or three this part of it, lest all of them send much before they hear each other."""


def window_s(whole_s: float, peers: int) -> float:
    """The time in which they answer, if there are so many with us and the asker."""
    if peers <= 2:
        return 0.0  # nobody else can
    return whole_s * min(max(peers / WHOLE_WINDOW_PEERS, WINDOW_LEAST), 1.0)


def backoff_s(random: "Random", window_s: float, peers: int) -> float:
    """How long to wait, at most `window_s`."""
    steep = log(peers) + 1
    return window_s * log(1 + random.random() * (exp(steep) - 1)) / steep
