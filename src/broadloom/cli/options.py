"""Arguments and options that commands share.

A command that joins a channel takes a parameter `join_options: JoinOptions` and the decorator `with_join_options`.
"""

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broadloom.cli.exit_codes import UsageError

if TYPE_CHECKING:
    from broadloom.channel import PendingConnection
    from broadloom.protocol.runtime import ObserverFactory

BOOTSTRAP_VARIABLE = "BROADLOOM_BOOTSTRAP"
KEY_VARIABLE = "BROADLOOM_KEY"
KEY_FILE_BYTES_MAX = 64 << 10


def command_group(help: str, **more: Any) -> typer.Typer:
    return typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", add_completion=False, help=help, **more)


def option(*names: str, help: str, metavar: str | None = None, **more: Any) -> Any:
    """An option whose default is not worth showing."""
    return typer.Option(*names, help=help, metavar=metavar, show_default=False, **more)


def _local_channels(incomplete: str) -> list[str]:
    """Shell completion: the channels that the user's programs have joined on this machine."""
    from broadloom.channel.status_socket import find_local_peers

    statuses = (peer.status for peer in find_local_peers() if peer.status is not None)
    return sorted({str(status["channel"]) for status in statuses if str(status["channel"]).startswith(incomplete)})


ChannelArgument = Annotated[
    str,
    typer.Argument(metavar="CHANNEL", help="Type and instance, as in `chess/club-42`.", autocompletion=_local_channels),
]
OptionalChannelArgument = Annotated[
    str,
    typer.Argument(metavar="[CHANNEL]", help="Only this channel.", autocompletion=_local_channels, show_default=False),
]
PeerOption = Annotated[str, option("--peer", metavar="ID", help="Select the peer whose ID starts with this.")]
JsonOption = Annotated[bool, typer.Option("--json", "-j", help="Print JSON: one object, or one object per line.")]
DurationOption = Annotated[float | None, option("--duration", min=0, metavar="SECONDS", help="Stop after this time.")]
KeepOpenOption = Annotated[
    bool, typer.Option("--keep-open", help="Stay connected after the end of the input, until interrupted.")
]
TapeOption = Annotated[Path | None, option("--tape", metavar="DIR", help="Record to this directory.")]
DegreeOption = Annotated[int, option("--degree", metavar="N", help="Links per peer. Default: as the scenario defines.")]
NoTlsOption = Annotated[bool, typer.Option("--no-tls", help="Disable encryption.")]

_PANEL = "Joining the channel"


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """How to find and join a channel: the options of `broadloom.connect` for the command line. What is not given keeps
    the default of `connect`."""

    bootstrap: Annotated[
        list[str] | None,
        option(
            "--bootstrap",
            metavar="HOST[:PORT]",
            help=f"Host to contact first; repeatable. Default: `{BOOTSTRAP_VARIABLE}` (comma-separated), then this "
            "machine.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    key: Annotated[
        str | None,
        option(
            "--key",
            help=f"Shared key. Prefer `{KEY_VARIABLE}` or `--key-file`: command lines are visible to other users.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    key_file: Annotated[
        Path | None,
        option("--key-file", metavar="FILE", help="Read the shared key from a file.", rich_help_panel=_PANEL),
    ] = None
    ticket: Annotated[
        Path | None,
        option("--ticket", metavar="FILE", help="Your ticket, instead of a shared key.", rich_help_panel=_PANEL),
    ] = None
    revocation_list: Annotated[
        Path | None,
        option(
            "--revocation-list",
            metavar="FILE",
            help="Revoked tickets, as published by the authority.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    no_tls: Annotated[
        bool,
        typer.Option("--no-tls", help="Disable encryption. Use only on trusted networks.", rich_help_panel=_PANEL),
    ] = False
    signed: Annotated[
        bool,
        typer.Option("--signed", help="Sign every message. Always on with tickets.", rich_help_panel=_PANEL),
    ] = False
    advertise: Annotated[
        str | None,
        option("--advertise", metavar="HOST", help="Address that other peers dial.", rich_help_panel=_PANEL),
    ] = None
    port: Annotated[
        int | None,
        option(
            "--port",
            min=0,
            max=65535,
            help="Port to listen on. Default: the first free port of the channel's port order.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    local_peers: Annotated[
        int | None,
        option(
            "--local-peers",
            min=1,
            max=16,
            metavar="N",
            help="Number of peers to run in this process. Default: 1.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=0.1, metavar="SECONDS", help="Maximum time to join.", rich_help_panel=_PANEL),
    ] = 30.0

    def connect(self, channel: str, *, tape: "ObserverFactory | None" = None) -> "PendingConnection":
        """Check the options, without joining yet."""
        import broadloom

        given = {
            "bootstrap": self._bootstrap_hosts(),
            "key": self._key(),
            "ticket": self.ticket,
            "revocation_list": self.revocation_list,
            "tls": not self.no_tls,
            "signed": self.signed or None,
            "advertise_host": self.advertise,
            "port": self.port,
            "local_peers": self.local_peers,
            "timeout_s": self.timeout,
            "tape": tape,
        }
        options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        try:
            return broadloom.connect(channel, **options)
        except ValueError as problem:
            raise UsageError(str(problem)) from None

    def _bootstrap_hosts(self) -> list[str]:
        given = self.bootstrap if self.bootstrap else [os.environ.get(BOOTSTRAP_VARIABLE, "")]
        return [part.strip() for text in given for part in text.split(",") if part.strip()]

    def _key(self) -> str | bytes | None:
        """Options take precedence over the environment."""
        if self.key is not None and self.key_file is not None:
            raise UsageError("use --key or --key-file, not both")
        if self.key_file is not None:
            try:
                with self.key_file.open("rb") as file:
                    return file.read(KEY_FILE_BYTES_MAX)
            except OSError as problem:
                raise UsageError(f"cannot read the key file {self.key_file}: {problem.strerror}") from None
        if self.key is None and self.ticket is None and not self.no_tls:
            return os.environ.get(KEY_VARIABLE)
        return self.key


def with_join_options(command: Callable[..., int]) -> Callable[..., int]:
    """Replace the parameter `join_options` by one option per field of `JoinOptions`."""
    own, shared = inspect.signature(command).parameters, inspect.signature(JoinOptions).parameters

    @functools.wraps(command)
    def with_options(**arguments: Any) -> int:
        join_options = JoinOptions(**{name: arguments.pop(name) for name in shared})
        return command(**arguments, join_options=join_options)

    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own.values(), *shared.values())]
    parameters = [each for each in parameters if each.name != "join_options"]
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_options
