"""Bounds of the diameter (SWAN, section III-A), and the expected diameter of a random regular graph.

The bounds are the theorem of Bollobas and Fernandez de la Vega for almost every large random regular graph; the paper
tabulates them for degree 4. `expected_distances` estimates where between the bounds.
"""

import math

PAPER_BOUNDS = {
    100: (4, 9),
    1_000: (6, 11),
    10_000: (8, 14),
    100_000: (10, 16),
    1_000_000: (13, 18),
    10_000_000: (15, 21),
}
"""As printed, for degree 4: peers -> lower and upper bound."""
PAPER_OBSERVED = {200: 6, 450: 7}
"""Diameters reported in the paper: peers -> diameter."""


def diameter_range(peers: int, degree: int) -> tuple[int, int]:
    """Lower and upper bound of the diameter of almost every random regular graph of this size."""
    if peers < 1 or degree < 3:
        raise ValueError(f"no random regular graph has {peers} peers of degree {degree}")
    if peers <= degree + 1:
        only = min(peers - 1, 1)
        return only, only
    base, log_peers = degree - 1, math.log(peers)
    whole = 0  # in integers: exact powers of the base must not be rounded down
    while base ** (whole + 1) <= peers:
        whole += 1
    lower = whole + math.floor(math.log(log_peers, base) - math.log(6 * degree / (degree - 2), base)) + 1
    upper = math.ceil(math.log(peers, base) + math.log(log_peers, base) + math.log(2 * degree, base)) + 1
    return max(lower, 2), min(upper, peers - 1)


def expected_distances(peers: int, degree: int) -> tuple[int, float]:
    """Diameter and mean distance if every search goes exactly as the average one does.

    After each step a search has `open_ends` loose link ends. Each of them meets any loose end with the same
    probability, so a peer stays unreached if none of its own ends is met. The diameter is reached when less than one
    pair is left.
    """
    if peers <= degree + 1:
        return min(peers - 1, 1), float(min(peers - 1, 1))
    left = float(peers - 1)
    """Peers not reached yet from one source."""
    open_ends, step, distance_sum = float(degree), 0, 0.0
    while left * peers / 2 >= 1 and step < 1_000:
        loose = open_ends + left * degree
        missed_by_all = (1 - open_ends / loose) ** degree
        after = left * missed_by_all
        distance_sum += left  # each of them is at least one step farther away
        # Ends that meet another end of the search, or the same peer twice, reach nothing new.
        met = left * degree * open_ends / loose
        open_ends = max((left - after) * degree - met, 0.0)
        left, step = after, step + 1
    return step, distance_sum / (peers - 1)
