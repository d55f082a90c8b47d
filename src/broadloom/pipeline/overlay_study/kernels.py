"""Helpers for functions compiled with numba: the inner loops over millions of peers.

Only arrays and numbers go in and out. Compiled code is cached on disk, next to the source or in the user's cache, so
that tasks and later runs need not compile again.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

Given = ParamSpec("Given")
Made = TypeVar("Made")

Fabric = npt.NDArray[np.int32]
"""One row per peer, one column per port: the number of the neighbor, or NO_PEER."""
NO_PEER = -1


def compiled(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """The function, compiled at its first call."""
    return cast("Callable[Given, Made]", numba.njit(cache=True, nogil=True)(function))


@compiled
def neighbor(fabric: Fabric, peer: int, port: int) -> int:
    """The neighbor as a 64-bit number: mixing sizes makes compiled code slow, or impossible."""
    return np.int64(fabric[peer, port])  # type: ignore[return-value]
