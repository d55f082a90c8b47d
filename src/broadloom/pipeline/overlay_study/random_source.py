"""A seeded random generator for compiled code (SplitMix64): the same seed gives the same fabric on every machine.

Its state is one number, held in an array of one element so that functions can update it.
"""

import numpy as np
import numpy.typing as npt

from broadloom.pipeline.overlay_study.kernels import compiled

Rng = npt.NDArray[np.uint64]

STEP = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)


def new_rng(*numbers: int) -> Rng:
    """A generator seeded with these numbers."""
    return np.random.SeedSequence(numbers).generate_state(1, np.uint64).astype(np.uint64)


@compiled
def random_below(rng: Rng, limit: int) -> int:
    """A number from 0 to limit - 1, by multiplication: faster than a remainder, and as even for 32-bit limits."""
    rng[0] += STEP
    mixed = rng[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * SECOND
    mixed ^= mixed >> np.uint64(31)
    # Not `int`, which stays unsigned in compiled code and turns sums into floats.
    return np.int64(((mixed >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32))  # type: ignore[return-value]
