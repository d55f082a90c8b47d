"""What is left of a random regular fabric when each peer fails with the same probability, before any repair.

Locally such a fabric looks like a tree, so everything follows from one number: the probability that nothing infinite
lies beyond a link (site percolation on the Bethe lattice). A giant component remains while more than 1/(r-1) of the
peers survive.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SurvivingStats:
    """Fractions of the survivors."""

    largest: float
    """In the giant component; 0 if there is none."""
    isolated: float
    """Without neighbors."""
    components: float
    """Number of other components per survivor."""


def fraction_max(degree: int) -> float:
    """If a larger fraction fails, there is no giant component."""
    return 1 - 1 / (degree - 1)


def surviving_stats(fraction: float, degree: int) -> SurvivingStats:
    """What is left of an infinite fabric after this fraction fails."""
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
