"""Times by the million in a few hundred counters: exact to about three in a hundred, and easily added up."""

from collections.abc import Mapping

_FRACTION_BITS = 5


class LatencyHistogram:
    """Counts of nanoseconds, 32 steps to each power of two."""

    __slots__ = ("_counts", "max_ns", "total")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.total = 0
        self.max_ns = 0

    def add(self, time_ns: int) -> None:
        bits = time_ns.bit_length()
        shift = bits - _FRACTION_BITS - 1
        step = bits << _FRACTION_BITS | (time_ns >> shift if shift > 0 else time_ns) & (1 << _FRACTION_BITS) - 1
        self._counts[step] = self._counts.get(step, 0) + 1
        self.total += 1
        if time_ns > self.max_ns:
            self.max_ns = time_ns

    def quantile_ms(self, fraction: float) -> float:
        """The time that this share of all did not exceed."""
        rank = fraction * self.total
        passed = 0
        for step in sorted(self._counts):
            passed += self._counts[step]
            if passed >= rank:
                return min(_upper_ns(step), self.max_ns) / 1e6
        return 0.0

    def as_dict(self) -> dict[str, int]:
        """For JSON."""
        return {str(step): count for step, count in self._counts.items()} | {"max_ns": self.max_ns}

    def merge(self, counts: Mapping[str, int]) -> None:
        """Add what another one told of itself."""
        for name, count in counts.items():
            if name == "max_ns":
                self.max_ns = max(self.max_ns, count)
            else:
                self._counts[int(name)] = self._counts.get(int(name), 0) + count
                self.total += count


def _upper_ns(step: int) -> int:
    """The largest time that falls into this step."""
    bits, fraction = step >> _FRACTION_BITS, step & (1 << _FRACTION_BITS) - 1
    shift = bits - _FRACTION_BITS - 1
    if shift <= 0:  # so short that its bits stand in the step as they are, but for a sixth one, which is always set
        return fraction | (1 << _FRACTION_BITS if bits > _FRACTION_BITS else 0)
    return ((1 << _FRACTION_BITS | fraction) + 1 << shift) - 1
