"""A source of randomness with a seed, for compiled code: the same seed gives the same fabric on every machine.

It is the generator known as SplitMix64. Its whole state is one number, held in an array of one element so that a
function can move it on.
"""

import numpy as np
import numpy.typing as npt

from broadloom.pipeline.overlay_study.kernels import compiled

Rng = npt.NDArray[np.uint64]

STEP = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)


def new_rng(*numbers: int) -> Rng:
    """The source that belongs to these numbers, such as a seed and what it is used for."""
    return np.random.SeedSequence(numbers).generate_state(1, np.uint64).astype(np.uint64)


@compiled
def random_below(rng: Rng, limit: int) -> int:
    """A number from 0 to limit - 1. (By a product, not a remainder: quicker, and as even for limits of 32 bits.)"""
    rng[0] += STEP
    mixed = rng[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * SECOND
    mixed ^= mixed >> np.uint64(31)
    # Not `int`, which compiled would stay unsigned, and make fractions of what is added to it.
    return np.int64(((mixed >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32))  # type: ignore[return-value]
