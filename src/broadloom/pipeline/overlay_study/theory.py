"""What is left of a random regular fabric when each peer dies with the same chance, before anybody repairs anything.

Around any peer such a fabric looks like a tree, so all follows from one number: the chance that nothing endless lies
beyond a link. It is known as site percolation on the Bethe lattice: a large part remains as long as more than
1/(r-1) of the peers live.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SurvivingStats:
    """Shares of the survivors."""

    largest: float
    """In the one large part; 0 if there is none."""
    isolated: float
    """Without any neighbour."""
    components: float
    """Parts, apart from the large one, for each survivor."""


def fraction_max(degree: int) -> float:
    """If more than this share die, nothing large hangs together."""
    return 1 - 1 / (degree - 1)


def surviving_stats(fraction: float, degree: int) -> SurvivingStats:
    """What a share of deaths leaves of an endless fabric."""
    live = 1 - fraction
    nothing_beyond = 0.0
    for _ in range(100_000):
        better = fraction + live * nothing_beyond ** (degree - 1)
        if abs(better - nothing_beyond) < 1e-15:
            break
        nothing_beyond = better
    in_small = nothing_beyond**degree
    # Small parts are trees: one more peer than links. So peers less links counts them.
    small_links = degree / 2 * live * nothing_beyond ** (2 * (degree - 1))
    return SurvivingStats(1 - in_small, fraction**degree, in_small - small_links)
