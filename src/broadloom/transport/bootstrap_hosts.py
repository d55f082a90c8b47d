"""`BootstrapHosts`: where to look for a channel. The list may change while the program runs."""

import logging
from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from broadloom.transport.addresses import LOOPBACK, parse_address
from broadloom.wire import Address

log = logging.getLogger("broadloom")

HOSTS_MAX = 256
FILE_BYTES_MAX = 64 << 10


class BootstrapHosts:
    """The hosts that were given and those in a file, one per line; this machine if there are none."""

    def __init__(self, given: Iterable[str] = (), file: "str | PathLike[str] | None" = None) -> None:
        """Raises `ValueError` if an address is invalid or the file cannot be read."""
        self._given = tuple(map(parse_address, given))
        self._file = Path(file) if file is not None else None
        self._in_file = _read(self._file) if self._file is not None else ()
        self._has_failed = False

    @property
    def addresses(self) -> tuple[Address, ...]:
        return tuple(dict.fromkeys(self._given + self._in_file)) or (Address(LOOPBACK, 0),)

    def replace(self, given: Iterable[str]) -> None:
        """Use these hosts instead of the given ones, next to those in the file."""
        self._given = tuple(map(parse_address, given))

    def reload(self) -> None:
        """Read the file again. If it became invalid, log it once and keep the last hosts."""
        if self._file is None:
            return
        try:
            self._in_file = _read(self._file)
            self._has_failed = False
        except ValueError as problem:
            if not self._has_failed:
                log.warning("%s; the hosts read before stay in use", problem)
            self._has_failed = True


def _read(path: Path) -> tuple[Address, ...]:
    """One address per line; `#` begins a comment."""
    try:
        with path.open("rb") as file:
            lines = file.read(FILE_BYTES_MAX).decode().splitlines()
    except OSError as problem:
        raise ValueError(f"cannot read the bootstrap file {path}: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"the bootstrap file {path} is not a text file: write one address per line") from None
    addresses = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if text:
            try:
                addresses.append(parse_address(text))
            except ValueError as problem:
                raise ValueError(f"{path}, line {number}: {problem}") from None
    if len(addresses) > HOSTS_MAX:
        raise ValueError(f"the bootstrap file {path} has {len(addresses)} hosts: use at most {HOSTS_MAX}")
    return tuple(addresses)
