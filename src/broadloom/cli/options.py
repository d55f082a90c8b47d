"""The words that all commands share which join a channel: written down once, as the fields of `Joining`.

A command asks for them with a parameter `joining: Joining` and the decorator `joins`.
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

_PANEL = "Joining the channel"


def _option(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_PANEL, **more)


def _local_channels(incomplete: str) -> list[str]:
    """For the shell's completion: the channels that this user's programs have joined on this machine."""
    from broadloom.channel.status_socket import find_local_peers

    statuses = (peer.status for peer in find_local_peers() if peer.status is not None)
    return sorted({str(status["channel"]) for status in statuses if str(status["channel"]).startswith(incomplete)})


ChannelArgument = Annotated[
    str,
    typer.Argument(help="Type and instance, as in `chess/club-42`.", autocompletion=_local_channels),
]
MaybeChannelArgument = Annotated[
    str,
    typer.Argument(help="Only peers of this channel.", autocompletion=_local_channels),
]
PeerOption = Annotated[str, typer.Option("--peer", metavar="ID", help="Only the peer whose id begins like this.")]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]
ForOption = Annotated[
    float | None, typer.Option("--for", min=0, metavar="SECONDS", help="End after this time.", show_default=False)
]


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """How a channel is found and entered; the counterpart of the arguments of `broadloom.connect`."""

    bootstrap: Annotated[
        list[str] | None,
        _option(
            "--portal",
            metavar="HOST[:PORT]",
            help=f"Where to look for the channel; may be repeated. Else `{BOOTSTRAP_VARIABLE}` (separated by commas), "
            "else this machine.",
            show_default=False,
        ),
    ] = None
    key: Annotated[
        str | None,
        _option(
            help=f"The key that all members share. Better in `{KEY_VARIABLE}` or a file: others on this machine see "
            "the words of a command.",
            show_default=False,
        ),
    ] = None
    key_file: Annotated[Path | None, _option(help="A file that holds the key.", show_default=False)] = None
    ticket: Annotated[
        Path | None, _option(help="Your ticket, from the channel's owner, in place of a key.", show_default=False)
    ] = None
    revocation_list: Annotated[
        Path | None, _option("--revoked", help="The owner's list of withdrawn tickets.", show_default=False)
    ] = None
    plain: Annotated[bool, _option("--plain", help="No encryption: for trusted machines and measurements.")] = False
    signed: Annotated[
        bool, _option("--signed", help="Each message is signed by its author; always so with tickets.")
    ] = False
    advertise: Annotated[
        str,
        _option(
            "--host", help="Where others reach this machine, if that is not found out by itself.", show_default=False
        ),
    ] = ""
    port: Annotated[
        int | None,
        _option(min=0, max=65535, help="Listen here, not in the channel's order of ports.", show_default=False),
    ] = None
    local_peers: Annotated[
        int | None, _option("--peers", min=1, max=16, help="Hold so many peers, which act as one.", show_default=False)
    ] = None
    timeout: Annotated[
        float | None, _option(min=0.1, metavar="SECONDS", help="How long to try to join.", show_default=False)
    ] = None

    @property
    def timeout_s(self) -> float:
        from broadloom.channel.options import ConnectOptions

        return ConnectOptions.timeout_s if self.timeout is None else self.timeout

    def connect(self, channel: str, *, tape: "ObserverFactory | None" = None) -> "PendingConnection":
        """Not joined yet; what cannot work is a `Mistake` already."""
        import broadloom

        try:
            given = {
                "bootstrap": self._bootstrap_hosts(),
                "key": self._key(),
                "ticket": self.ticket,
                "revocation_list": self.revocation_list,
                "tls": not self.plain,
                "signed": self.signed or None,
                "advertise_host": self.advertise or None,
                "port": self.port,
                "local_peers": self.local_peers,
                "timeout_s": self.timeout,
                "tape": tape,
            }
            options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
            return broadloom.connect(channel, **options)
        except ValueError as problem:
            raise UsageError(str(problem)) from None

    def _bootstrap_hosts(self) -> list[str]:
        given = self.bootstrap if self.bootstrap else [os.environ.get(BOOTSTRAP_VARIABLE, "")]
        return [part.strip() for text in given for part in text.split(",") if part.strip()]

    def _key(self) -> str | bytes | None:
        """What was said on the command line goes before what stands in the environment."""
        if self.key is not None and self.key_file is not None:
            raise UsageError("give --key or --key-file, not both")
        if self.key_file is not None:
            try:
                with self.key_file.open("rb") as file:
                    return file.read(KEY_FILE_BYTES_MAX)
            except OSError as problem:
                raise UsageError(f"cannot read the key file {self.key_file}: {problem.strerror}") from None
        if self.key is None and self.ticket is None and not self.plain:
            return os.environ.get(KEY_VARIABLE)
        return self.key


def with_join_options(command: Callable[..., None]) -> Callable[..., None]:
    """In place of the command's parameter `joining` stand all options of `Joining`."""
    own, shared = inspect.signature(command).parameters, inspect.signature(JoinOptions).parameters

    @functools.wraps(command)
    def with_options(**arguments: Any) -> None:
        join_options = JoinOptions(**{name: arguments.pop(name) for name in shared})
        command(**arguments, join_options=join_options)

    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own.values(), *shared.values())]
    parameters = [each for each in parameters if each.name != "join_options"]
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_options
