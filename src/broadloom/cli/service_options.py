"""How commands use a delivery service: its ticket, and where to find it. And lists of names in files."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from broadloom.channel.options import ConnectOptions
from broadloom.cli.exit_codes import UsageError, usage_errors
from broadloom.cli.options import (
    BOOTSTRAP_VARIABLE,
    ProgramsOption,
    RulesOption,
    bootstrap_hosts,
    load_rules,
    option,
)

if TYPE_CHECKING:
    from broadloom.apps.delivery import Service
    from broadloom.apps.delivery.entitlements import Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryOptions:
    """How to reach the channel of the directory."""

    bootstrap: Annotated[
        list[str] | None,
        option(
            f"Host to contact first; repeatable. Default: `{BOOTSTRAP_VARIABLE}` (comma-separated), then this machine.",
            "HOST[:PORT]",
        ),
    ] = None
    advertise: Annotated[str, option("Address that other peers dial.", "HOST")] = ConnectOptions.advertise_host
    timeout: Annotated[float, option("Maximum time to join, and for a desk to answer.", "SECONDS", min=0.1)] = (
        ConnectOptions.timeout_s
    )
    rules: RulesOption = None
    rule_program: ProgramsOption = None

    def connect_options(self) -> dict[str, Any]:
        """Raises `UsageError`."""
        hosts = bootstrap_hosts(self.bootstrap)
        options: dict[str, Any] = {"bootstrap": hosts, "advertise_host": self.advertise, "timeout_s": self.timeout}
        with usage_errors():
            options["rules"] = load_rules(self.rules, self.rule_program)
            ConnectOptions(**options)
        return options


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions(DirectoryOptions):
    """The same with the ticket of a subscriber, a producer or a meter."""

    ticket: Annotated[Path | None, option("Your ticket, as issued by the operator of the service.", "FILE")] = None

    def checked_ticket(self) -> Path:
        if self.ticket is None:
            raise UsageError("a delivery service needs a ticket of its operator: give it with --ticket")
        return self.ticket

    def open(self, channel: str) -> "Service":
        from broadloom.apps import delivery

        with usage_errors():
            return delivery.join(channel, self.checked_ticket(), **self.connect_options())


class NamesFile:
    """The names in a file, one per line, with `#` comments. It is read again whenever it changes."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._stamp: tuple[int, int] | None = None
        self._names: frozenset[str] = frozenset()
        self._read()

    def _read(self) -> None:
        try:
            found = self._path.stat()
            if (found.st_mtime_ns, found.st_size) == self._stamp:
                return
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
            raise UsageError(f"cannot read {self._path}: {reason}") from None
        self._stamp = found.st_mtime_ns, found.st_size
        self._names = frozenset(line.partition("#")[0].strip() for line in lines) - {""}

    def __call__(self, name: str) -> bool:
        """While the file cannot be read, nobody is on it."""
        self._read()
        return name in self._names


def expanded_names(names: list[str] | None) -> "Condition":
    from broadloom.apps.delivery.entitlements import everyone

    return everyone if "*" in (names or ()) else frozenset(names or ())
