"""`Chance`: the dice of a game. The same seed gives the same numbers at every player and in every version of Python."""

import hashlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Chance:
    """Numbers from SHA-256 in counter mode. Every action has a seed of its own, so no player can use up another's."""

    def __init__(self, *seed: object) -> None:
        self._parts = seed
        self._seed = b""
        self._count = 0

    def below(self, limit: int) -> int:
        """A whole number from 0 to `limit - 1`."""
        if limit < 1:
            raise ValueError(f"below({limit}): the limit must be at least 1")
        if not self._count:  # most actions need no chance
            self._seed = hashlib.sha256("\0".join(map(str, self._parts)).encode()).digest()
        self._count += 1
        digest = hashlib.sha256(self._seed + self._count.to_bytes(8, "big")).digest()
        return int.from_bytes(digest, "big") % limit  # 256 bits: the bias is too small to notice

    def choice(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """Different items, in random order; fewer if there are fewer."""
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in range(min(count, len(left)))]
