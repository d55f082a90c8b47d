"""Components and diameter of a small graph, with numpy, for live tables."""

import numpy as np
from numpy.typing import NDArray

DIAMETER_NODES_MAX = 512
"""Above this, the diameter takes too long for a live table."""

Nodes = NDArray[np.int64]


def components(count: int, ends: Nodes, other_ends: Nodes) -> int:
    """Number of connected components: every node takes the lowest label it can reach."""
    label = np.arange(count)
    while True:
        least = label.copy()
        np.minimum.at(least, ends, label[other_ends])
        np.minimum.at(least, other_ends, label[ends])
        least = least[least]
        if np.array_equal(least, label):
            return int(np.unique(label).size)
        label = least


def diameter(count: int, ends: Nodes, other_ends: Nodes) -> int | None:
    """Diameter; None if the graph is not connected or too large."""
    if not 0 < count <= DIAMETER_NODES_MAX:
        return None
    linked = np.zeros((count, count), dtype=np.float32)
    linked[ends, other_ends] = linked[other_ends, ends] = 1
    reached = np.eye(count, dtype=bool)
    steps = 0
    while not reached.all():
        further = reached | (reached.astype(np.float32) @ linked > 0)
        if np.array_equal(further, reached):
            return None
        reached = further
        steps += 1
    return steps
