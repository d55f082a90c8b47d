"""The words of the command line, as numbers: sizes, seeds, shares. If one is not understood, an example is given."""

from decimal import Decimal, InvalidOperation
from pathlib import Path

from broadloom.pipeline.overlay_study.grow import PEERS_MAX
from broadloom.pipeline.overlay_study.join_strategies import JoinStrategy

SEEDS_MAX = 100_000
FRACTION_STEP = Decimal("0.1")
CHOICES_MAX = 64


class StudyUsageError(ValueError):
    """The words do not fit; says what would."""


def parse_sizes(text: str, *, minimum: int = 1) -> list[int]:
    """`100,1000,1_000_000`, in this order, each once."""
    try:
        found = list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise StudyUsageError(f"--peers takes numbers as in 1000 or 100,1000,10000, not {text!r}") from None
    for size in found:
        if not minimum <= size <= PEERS_MAX:
            raise StudyUsageError(f"--peers: a fabric has {minimum} to {PEERS_MAX:,} peers here, not {size:,}")
    return found


def parse_seeds(text: str) -> list[int]:
    """`7`, or `1..20`."""
    first, dots, last = text.partition("..")
    try:
        low, high = int(first), int(last if dots else first)
    except ValueError:
        raise StudyUsageError(f"--seeds takes a number or a range as in 1..20, not {text!r}") from None
    if low < 0 or high < low:
        raise StudyUsageError(f"--seeds: there is no number from 0 on in {text!r}; a range is written 1..20")
    if high - low >= SEEDS_MAX:
        raise StudyUsageError(f"--seeds: at most {SEEDS_MAX:,} at a time, not {high - low + 1:,}")
    return list(range(low, high + 1))


def parse_fractions(text: str) -> list[float]:
    """`0.2`, `0.1,0.25`, or `0.1..0.9` in steps of a tenth."""
    found: list[Decimal] = []
    try:
        for part in text.split(","):
            first, dots, last = part.partition("..")
            low = Decimal(first)
            high = Decimal(last) if dots else low
            if not (0 <= low <= high < 1):  # also what is no number at all
                raise StudyUsageError(f"--share: a share is from 0 up to less than 1, lowest first, not {part!r}")
            while low <= high:
                found.append(low)
                low += FRACTION_STEP
    except InvalidOperation:
        raise StudyUsageError(f"--share takes shares as in 0.2 or 0.1,0.5 or 0.1..0.9, not {text!r}") from None
    return [float(share) for share in dict.fromkeys(found)]


def parse_strategy(text: str) -> tuple[JoinStrategy, int]:
    """`broadloom`, or `far-4`: a way, and of how many it takes the best."""
    name, dash, number = text.partition("-")
    try:
        found = JoinStrategy[name.strip().upper()]
        choices = int(number) if dash else 1
    except (KeyError, ValueError):
        raise StudyUsageError(f"there is no way of pinning {text!r}; there are {', '.join(strategy_names())}") from None
    takes_best = found in (JoinStrategy.SPARSE, JoinStrategy.FAR)
    if takes_best != bool(dash) or not (1 if not dash else 2) <= choices <= CHOICES_MAX:
        raise StudyUsageError(
            f"no way of pinning is {text!r}: sparse-k and far-k have a k of 2 to {CHOICES_MAX}, others none"
        )
    return found, choices


def strategy_names() -> list[str]:
    return [
        f"{each.name.lower()}{'-4' if each in (JoinStrategy.SPARSE, JoinStrategy.FAR) else ''}" for each in JoinStrategy
    ]


def strategy_name(strategy: JoinStrategy, choices: int) -> str:
    return strategy.name.lower() + (f"-{choices}" if strategy in (JoinStrategy.SPARSE, JoinStrategy.FAR) else "")


def check_degree(number: int) -> int:
    if not 3 <= number <= 64:
        raise StudyUsageError(f"--degree: a peer keeps 3 to 64 links, not {number}")
    return number


def check_image_path(path: Path | None) -> Path | None:
    """Looked at before hours of work are done for it."""
    if path is not None:
        if path.suffix.lower() not in (".svg", ".png"):
            raise StudyUsageError(f"--plot: the name must end in .svg or .png, not {path.name!r}")
        if not path.absolute().parent.is_dir():
            raise StudyUsageError(f"--plot: there is no folder {path.absolute().parent}")
    return path
