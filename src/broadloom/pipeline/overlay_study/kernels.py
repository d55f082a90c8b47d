"""Functions that numba compiles: the inner loops over millions of peers.

The rule: only plain arrays and numbers go in and out, so a compiled function is a pure function like any other. What is
compiled is kept on disk, beside the source or in the user's cache, so that tasks and later runs need not wait for it.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

Given = ParamSpec("Given")
Made = TypeVar("Made")

Fabric = npt.NDArray[np.int32]
"""One row a peer, one column a port: the neighbour's number there, or NOBODY."""
NO_PEER = -1


def compiled(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """The same function, compiled when it is first called."""
    return cast("Callable[Given, Made]", numba.njit(cache=True, nogil=True)(function))


@compiled
def neighbor(fabric: Fabric, peer: int, port: int) -> int:
    """Who is there, as a number of 64 bits like all others: mixing sizes makes compiled code slow, or impossible."""
    return np.int64(fabric[peer, port])  # type: ignore[return-value]
