"""What theory expects of a random regular fabric: its distances, and what is left of it after failures.

Locally such a fabric looks like a tree, so everything about failures follows from one number: the probability that
nothing infinite lies beyond a link (site percolation on the Bethe lattice). A giant component remains while more than
1/(r-1) of the peers survive.
"""

from dataclasses import dataclass

PAPER_OBSERVED = {200: 6, 450: 7}
"""Diameters reported in the SWAN paper (III-A), for degree 4: peers -> diameter."""


@dataclass(frozen=True, slots=True)
class SurvivingStats:
    """Fractions of the survivors."""

    largest: float
    """In the giant component; 0 if there is none."""
    isolated: float
    """Without neighbors."""
    components: float
    """Number of other components per survivor."""


def surviving_stats(fraction: float, degree: int) -> SurvivingStats:
    """What is left of an infinite fabric after this fraction fails, before any repair."""
    live = 1 - fraction
    nothing_beyond = 0.0
    for _ in range(100_000):
        better = fraction + live * nothing_beyond ** (degree - 1)
        if abs(better - nothing_beyond) < 1e-15:
            break
        nothing_beyond = better
    in_small = nothing_beyond**degree
    # Small components are trees with one more peer than links, so peers minus links counts them.
    small_links = degree / 2 * live * nothing_beyond ** (2 * (degree - 1))
    return SurvivingStats(1 - in_small, fraction**degree, in_small - small_links)


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
