"""Parameters of a study, parsed from text: sizes, seeds, fractions, join strategies. Errors give an example."""

from decimal import Decimal, InvalidOperation
from pathlib import Path

from broadloom.pipeline.overlay_study.grow import PEERS_MAX
from broadloom.pipeline.overlay_study.join_strategies import JoinStrategy

SEEDS_MAX = 100_000
FRACTION_STEP = Decimal("0.1")
CHOICES_MAX = 64
EXACT_PEERS_MAX = 100_000
"""Up to this size a diameter is exact by default; the work grows with the square of the peers."""
FARTHEST_PEERS_MAX = 20_000
"""For the strategy that searches the whole overlay for each joining peer."""

_STRATEGY_NAMES = {each: each.name.lower().replace("_", "-") for each in JoinStrategy}
_BEST_OF = (JoinStrategy.LEAST_CLUSTERED, JoinStrategy.FARTHEST)
"""Strategies that take the best of several candidates; their names end in the number of candidates."""

Strategy = tuple[JoinStrategy, int]
"""A join strategy and its number of candidates."""


class StudyUsageError(ValueError):
    """A parameter is invalid. The message gives an example of a valid one."""


def parse_sizes(text: str, *, minimum: int = 1) -> list[int]:
    """Parse `100,1000,1_000_000`; keeps the order and drops duplicates."""
    try:
        found = list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise StudyUsageError(f"--peers must be a number or a list, as 1000 or 100,1000,10000, not {text!r}") from None
    for size in found:
        if not minimum <= size <= PEERS_MAX:
            raise StudyUsageError(f"--peers must be {minimum} to {PEERS_MAX:,}, not {size:,}")
    return found


def parse_seeds(text: str) -> list[int]:
    """Parse `7` or `1..20`."""
    first, dots, last = text.partition("..")
    try:
        low, high = int(first), int(last if dots else first)
    except ValueError:
        raise StudyUsageError(f"--seeds must be a number or a range, as 7 or 1..20, not {text!r}") from None
    if low < 0 or high < low:
        raise StudyUsageError(f"--seeds: {text!r} is not a range of non-negative numbers, as 1..20")
    if high - low >= SEEDS_MAX:
        raise StudyUsageError(f"--seeds: at most {SEEDS_MAX:,} seeds, not {high - low + 1:,}")
    return list(range(low, high + 1))


def default_seeds(peers: int) -> range:
    """Fewer overlays of larger sizes."""
    return range(1, 21 if peers <= 10_000 else 5 if peers <= 1_000_000 else 3)


def parse_fractions(text: str) -> list[float]:
    """Parse `0.2`, `0.1,0.25`, or `0.1..0.9` in steps of a tenth."""
    found: list[Decimal] = []
    try:
        for part in text.split(","):
            first, dots, last = part.partition("..")
            low = Decimal(first)
            high = Decimal(last) if dots else low
            if not (0 <= low <= high < 1):  # also false for NaN
                raise StudyUsageError(f"--fraction must be from 0 to less than 1, lowest first, not {part!r}")
            while low <= high:
                found.append(low)
                low += FRACTION_STEP
    except InvalidOperation:
        raise StudyUsageError(f"--fraction must be as 0.2 or 0.1,0.5 or 0.1..0.9, not {text!r}") from None
    return [float(fraction) for fraction in dict.fromkeys(found)]


def parse_strategy(text: str) -> Strategy:
    """Parse `broadloom` or `farthest-4`."""
    by_name = {name: strategy for strategy, name in _STRATEGY_NAMES.items()}
    name, _, number = text.strip().rpartition("-")
    if text.strip() in by_name:
        name, number = text.strip(), ""
    if name not in by_name or not (number.isdecimal() or not number):
        raise StudyUsageError(f"unknown join strategy {text!r}; choose one of {', '.join(strategy_names())}")
    strategy, choices = by_name[name], int(number or 1)
    if (strategy in _BEST_OF) != bool(number) or not (2 if number else 1) <= choices <= CHOICES_MAX:
        raise StudyUsageError(
            f"{text!r}: least-clustered and farthest end in the number of candidates, 2 to {CHOICES_MAX}, as farthest-4"
        )
    return strategy, choices


def strategy_names() -> list[str]:
    """All strategies, with four candidates where they take the best of several."""
    return [strategy_name(each, 4) for each in JoinStrategy]


def strategy_name(strategy: JoinStrategy, choices: int) -> str:
    return _STRATEGY_NAMES[strategy] + (f"-{choices}" if strategy in _BEST_OF else "")


def check_exact_sizes(sizes: list[int], strategies: list[Strategy]) -> None:
    """A comparison of join strategies measures exact distances."""
    for size in sizes:
        if size > FARTHEST_PEERS_MAX and any(strategy is JoinStrategy.FARTHEST for strategy, _ in strategies):
            raise StudyUsageError(
                f"farthest-K searches the whole overlay for each joining peer: at most {FARTHEST_PEERS_MAX:,} peers"
            )
        if size > EXACT_PEERS_MAX:
            raise StudyUsageError(f"--peers: at most {EXACT_PEERS_MAX:,} for exact distances, not {size:,}")


def check_degree(number: int) -> int:
    if not 3 <= number <= 64:
        raise StudyUsageError(f"--degree: a peer has 3 to 64 links, not {number}")
    return number


def check_image_path(path: Path | None) -> Path | None:
    """Fail before hours of work, not after."""
    if path is not None:
        if path.suffix.lower() not in (".svg", ".png"):
            raise StudyUsageError(f"--plot: the name must end in .svg or .png, not {path.name!r}")
        if not path.absolute().parent.is_dir():
            raise StudyUsageError(f"--plot: no such directory: {path.absolute().parent}")
    return path
