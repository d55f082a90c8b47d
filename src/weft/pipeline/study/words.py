"""The words of the command line, as numbers: sizes, seeds, shares. If one is not understood, an example is given."""

from decimal import Decimal, InvalidOperation
from pathlib import Path

from weft.pipeline.study.grow import PEERS_MAX
from weft.pipeline.study.ways import Way

SEEDS_MAX = 100_000
SHARE_STEP = Decimal("0.1")
CHOICES_MAX = 64


class WrongUse(ValueError):
    """The words do not fit; says what would."""


def sizes(text: str, *, least: int = 1) -> list[int]:
    """`100,1000,1_000_000`, in this order, each once."""
    try:
        found = list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise WrongUse(f"--peers takes numbers as in 1000 or 100,1000,10000, not {text!r}") from None
    for size in found:
        if not least <= size <= PEERS_MAX:
            raise WrongUse(f"--peers: a fabric has {least} to {PEERS_MAX:,} peers here, not {size:,}")
    return found


def seeds(text: str) -> list[int]:
    """`7`, or `1..20`."""
    first, dots, last = text.partition("..")
    try:
        low, high = int(first), int(last if dots else first)
    except ValueError:
        raise WrongUse(f"--seeds takes a number or a range as in 1..20, not {text!r}") from None
    if low < 0 or high < low:
        raise WrongUse(f"--seeds: there is no number from 0 on in {text!r}; a range is written 1..20")
    if high - low >= SEEDS_MAX:
        raise WrongUse(f"--seeds: at most {SEEDS_MAX:,} at a time, not {high - low + 1:,}")
    return list(range(low, high + 1))


def shares(text: str) -> list[float]:
    """`0.2`, `0.1,0.25`, or `0.1..0.9` in steps of a tenth."""
    found: list[Decimal] = []
    try:
        for part in text.split(","):
            first, dots, last = part.partition("..")
            low = Decimal(first)
            high = Decimal(last) if dots else low
            if not (0 <= low <= high < 1):  # also what is no number at all
                raise WrongUse(f"--share: a share is from 0 up to less than 1, lowest first, not {part!r}")
            while low <= high:
                found.append(low)
                low += SHARE_STEP
    except InvalidOperation:
        raise WrongUse(f"--share takes shares as in 0.2 or 0.1,0.5 or 0.1..0.9, not {text!r}") from None
    return [float(share) for share in dict.fromkeys(found)]


def way(text: str) -> tuple[Way, int]:
    """`weft`, or `far-4`: a way, and of how many it takes the best."""
    name, dash, number = text.partition("-")
    try:
        found = Way[name.strip().upper()]
        choices = int(number) if dash else 1
    except (KeyError, ValueError):
        raise WrongUse(f"there is no way of pinning {text!r}; there are {', '.join(way_names())}") from None
    takes_best = found in (Way.SPARSE, Way.FAR)
    if takes_best != bool(dash) or not (1 if not dash else 2) <= choices <= CHOICES_MAX:
        raise WrongUse(f"no way of pinning is {text!r}: sparse-k and far-k have a k of 2 to {CHOICES_MAX}, others none")
    return found, choices


def way_names() -> list[str]:
    return [f"{each.name.lower()}{'-4' if each in (Way.SPARSE, Way.FAR) else ''}" for each in Way]


def way_name(found: Way, choices: int) -> str:
    return found.name.lower() + (f"-{choices}" if found in (Way.SPARSE, Way.FAR) else "")


def degree(number: int) -> int:
    if not 3 <= number <= 64:
        raise WrongUse(f"--degree: a peer keeps 3 to 64 links, not {number}")
    return number


def picture(path: Path | None) -> Path | None:
    """Looked at before hours of work are done for it."""
    if path is not None:
        if path.suffix.lower() not in (".svg", ".png"):
            raise WrongUse(f"--plot: the name must end in .svg or .png, not {path.name!r}")
        if not path.absolute().parent.is_dir():
            raise WrongUse(f"--plot: there is no folder {path.absolute().parent}")
    return path
