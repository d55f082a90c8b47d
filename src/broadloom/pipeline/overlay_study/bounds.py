"""Diameters in the SWAN paper (III-A), and the distances to expect between `topology.diameter_bounds`."""

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
"""Diameters of fabrics that the paper's authors saw: peers -> diameter."""


def expected_distances(peers: int, degree: int) -> tuple[int, float]:
    """Diameter and mean distance if every search went exactly as the average one does.

    A search from one peer has `open_ends` loose link ends after each step. Each of them meets any of the loose ends
    there are, so a peer that was not reached stays so if none of its own ends is met. The diameter is where less than
    one pair of all is left.
    """
    if peers <= degree + 1:
        return min(peers - 1, 1), float(min(peers - 1, 1))
    left = float(peers - 1)
    """Peers not reached yet, from one source."""
    open_ends, step, distance_sum = float(degree), 0, 0.0
    while left * peers / 2 >= 1 and step < 1_000:
        loose = open_ends + left * degree
        missed_by_all = (1 - open_ends / loose) ** degree
        after = left * missed_by_all
        distance_sum += left  # each of them is at least one step farther away than was known
        # Ends that met an end of the search itself, or the same peer twice, lead nowhere new.
        met = left * degree * open_ends / loose
        open_ends = max((left - after) * degree - met, 0.0)
        left, step = after, step + 1
    return step, distance_sum / (peers - 1)
