"""Arguments and options that commands share, each spelled once.

`option` declares an option. Its name is that of the parameter, a boolean has no `--no-…` form, and a default is shown
if it is not empty. A command that joins a channel takes a parameter `join_options: JoinOptions`.
"""

import copy
import inspect
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_origin

import typer

from broadloom.channel.options import LOCAL_PEERS_MAX, ConnectOptions
from broadloom.cli.exit_codes import UsageError, usage_errors
from broadloom.private_files import warn_if_readable_by_others
from broadloom.protocol.settings import DEGREE_MAX, DEGREE_MIN, ChannelSettings
from broadloom.wire.xdr import PORT_MAX

if TYPE_CHECKING:
    from broadloom.channel import PendingConnection
    from broadloom.protocol.runtime import ObserverFactory
    from broadloom.rules import Rules

BOOTSTRAP_VARIABLE = "BROADLOOM_BOOTSTRAP"
KEY_VARIABLE = "BROADLOOM_KEY"
RULES_VARIABLE = "BROADLOOM_RULES"
KEY_FILE_BYTES_MAX = 64 << 10
JOIN_PANEL = "Joining the channel"
PARAMETER_TEXTS = {
    "key, ticket and tls=False": "--key, --ticket and --no-tls",
    "signed=True": "--signed",
    "revocation_list works": "--revocation-list works",
    "advertise_host=": "--advertise ",
    "name and ticket exclude": "--as and --ticket exclude",
    "name=": "--as ",
    "port=": "--port ",
    **{f"{name}_per_s is": f"--{name} is" for name in ("chat", "ticks", "identifications", "ads")},
    " (ChannelSettings.message_bytes_max)": "",
    "set ChannelSettings.degree": "use --degree",
}
"""How error messages of the library name its parameters, and what the command line says instead."""


def with_option_names(text: str) -> str:
    """An error message of the library, with the names of options in place of parameters."""
    for parameter, option_name in PARAMETER_TEXTS.items():
        text = text.replace(parameter, option_name)
    return text


def command_group(help: str, **more: Any) -> typer.Typer:
    return typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", add_completion=False, help=help, **more)


def option(help: str, metavar: str | None = None, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, **more)


def argument(help: str, metavar: str, **more: Any) -> Any:
    return typer.Argument(help=help, metavar=metavar, **more)


def checked_option(check: Callable[[str], Any], name: str, value: str) -> None:
    """Raises `UsageError` if the check fails."""
    try:
        check(value)
    except ValueError as problem:
        raise UsageError(f"{name}: {problem}") from None


def _local_channels(incomplete: str) -> list[str]:
    """Shell completion: the channels that the user's programs have joined on this machine."""
    from broadloom.channel.status_socket import find_local_peers

    statuses = (peer.status for peer in find_local_peers() if peer.status is not None)
    return sorted({str(status["channel"]) for status in statuses if str(status["channel"]).startswith(incomplete)})


ChannelArgument = Annotated[
    str, argument("Type and instance, as in `chess/club-42`.", "CHANNEL", autocompletion=_local_channels)
]
OptionalChannelArgument = Annotated[str, argument("Only this channel.", "[CHANNEL]", autocompletion=_local_channels)]
PeerOption = Annotated[str, option("Select the peer whose ID starts with this.", "ID")]
JsonOption = Annotated[bool, option("Print JSON: one object, or one object per line.", None, "--json", "-j")]
DurationOption = Annotated[float | None, option("Stop after this time.", "SECONDS", min=0)]
KeepOpenOption = Annotated[bool, option("Stay connected after the end of the input, until interrupted.")]
TapeOption = Annotated[Path | None, option("Record to this directory.", "DIR")]
TapesOption = Annotated[Path, option("Directory of tapes.", "DIR")]
DegreeOption = Annotated[int, option("Links per peer. Default: as the scenario defines.", "N")]
SeedsOption = Annotated[str, option("Seed or range, as 7 or 1..20.", "N|N..N")]
NoTlsOption = Annotated[bool, option("Disable encryption. Use only on trusted networks.")]
MasterOption = Annotated[str, option("Spark master URL. Default: all cores of this machine.", "URL")]

RulesOption = Annotated[
    Path | None,
    option(f"Rules that every message passes before it is sent. Default: `{RULES_VARIABLE}`.", "FILE"),
]
ProgramsOption = Annotated[
    list[str] | None, option("Program that rules may run; repeatable.", "NAME=COMMAND", "--rule-program")
]


def named_values(given: list[str] | None, option_name: str) -> dict[str, str]:
    """Options as `--header subject=plans`. Raises `UsageError`."""
    pairs = [each.partition("=") for each in given or ()]
    for name, separator, _ in pairs:
        if not name or not separator:
            raise UsageError(f"{option_name} {name}: must be a name and a value, as in NAME=VALUE")
    return {name: value for name, _, value in pairs}


def parse_programs(given: list[str] | None) -> dict[str, list[str]]:
    """Commands are split into words as in a shell, but not run by one."""
    with usage_errors("--rule-program: "):
        programs = {name: shlex.split(words) for name, words in named_values(given, "--rule-program").items()}
    for name, words in programs.items():
        if not words:
            raise UsageError(f"--rule-program {name}: the command is missing")
    return programs


def bootstrap_hosts(given: list[str] | None) -> list[str]:
    """The hosts of `--bootstrap`, else of the environment."""
    texts = given or [os.environ.get(BOOTSTRAP_VARIABLE, "")]
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def load_rules(given: Path | None, programs: list[str] | None, *, held: Path | None = None) -> "Rules | None":
    """Options take precedence over the environment."""
    path = given or os.environ.get(RULES_VARIABLE)
    if not path:
        return None
    from broadloom.rules import Rules

    return Rules.load(path, programs=parse_programs(programs), held=held)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOptions:
    """How to find and join a channel: the options of `broadloom.connect` for the command line, with its defaults."""

    bootstrap: Annotated[
        list[str] | None,
        option(
            f"Host to contact first; repeatable. Default: `{BOOTSTRAP_VARIABLE}` (comma-separated), then this machine.",
            "HOST[:PORT]",
        ),
    ] = None
    bootstrap_file: Annotated[
        Path | None, option("File with more such hosts, one per line; read again when it changes.", "FILE")
    ] = None
    key: Annotated[
        str | None,
        option(f"Shared key. Prefer `{KEY_VARIABLE}` or `--key-file`: command lines are visible to other users."),
    ] = None
    key_file: Annotated[Path | None, option("Read the shared key from a file.", "FILE")] = None
    ticket: Annotated[Path | None, option("Your ticket, instead of a shared key.", "FILE")] = None
    revocation_list: Annotated[Path | None, option("Revoked tickets, as published by the authority.", "FILE")] = None
    card: Annotated[Path | None, option("The channel's card, signed by its owner.", "FILE")] = None
    no_tls: NoTlsOption = not ConnectOptions.tls
    signed: Annotated[bool, option("Sign every message. Always on with tickets.")] = False
    member_name: Annotated[
        str, option("Name that other members see. With a ticket, the name on it is used.", "NAME", "--as")
    ] = ConnectOptions.name
    advertise: Annotated[str, option("Address that other peers dial.", "HOST")] = ConnectOptions.advertise_host
    port: Annotated[
        int, option("Port to listen on. Default: the first free port of the channel's port order.", min=0, max=PORT_MAX)
    ] = ConnectOptions.port
    local_peers: Annotated[int, option("Number of peers to run in this process.", "N", min=1, max=LOCAL_PEERS_MAX)] = (
        ConnectOptions.local_peers
    )
    degree: Annotated[
        int,
        option("Links per peer, the same for all members of the channel.", "N", min=DEGREE_MIN, max=DEGREE_MAX),
    ] = ChannelSettings().degree
    rules: RulesOption = None
    rule_program: ProgramsOption = None
    private_key: Annotated[
        list[Path] | None,
        option("Key for messages that rules of others encrypt, from `broadloom rules key`; repeatable.", "FILE"),
    ] = None
    timeout: Annotated[float, option("Maximum time to join.", "SECONDS", min=0.1)] = ConnectOptions.timeout_s

    def connect(self, channel: str, *, tape: "ObserverFactory | None" = None) -> "PendingConnection":
        """Check the options, without joining yet."""
        import broadloom

        with usage_errors():
            options = ConnectOptions(
                bootstrap=bootstrap_hosts(self.bootstrap),
                bootstrap_file=self.bootstrap_file,
                key=self._key(),
                ticket=self.ticket,
                revocation_list=self.revocation_list,
                card=self.card,
                tls=not self.no_tls,
                signed=self.signed or None,
                name=self.member_name,
                advertise_host=self.advertise,
                port=self.port,
                local_peers=self.local_peers,
                timeout_s=self.timeout,
                tape=tape,
                rules=self.loaded_rules(),
                private_keys=self.private_key or (),
                settings=ChannelSettings(degree=self.degree),
            )
            return broadloom.connect(channel, options=options)

    def loaded_rules(self, *, held: Path | None = None) -> "Rules | None":
        return load_rules(self.rules, self.rule_program, held=held)

    def _key(self) -> str | bytes | None:
        """Options take precedence over the environment."""
        if self.key is not None and self.key_file is not None:
            raise UsageError("use --key or --key-file, not both")
        if self.key_file is not None:
            try:
                warn_if_readable_by_others(self.key_file, "the key file")
                with self.key_file.open("rb") as file:
                    return file.read(KEY_FILE_BYTES_MAX)
            except OSError as problem:
                raise UsageError(f"cannot read the key file {self.key_file}: {problem.strerror}") from None
        if self.key is None and self.ticket is None and not self.no_tls:
            return os.environ.get(KEY_VARIABLE)
        return self.key


def option_dataclasses(own: Mapping[str, inspect.Parameter]) -> dict[str, type[Any]]:
    """The parameters of a command that stand for several options."""
    kinds = {name: each.annotation for name, each in own.items() if isinstance(each.annotation, type)}
    return {name: kind for name, kind in kinds.items() if is_dataclass(kind)}


def typer_signature(own: Mapping[str, inspect.Parameter]) -> inspect.Signature:
    """The parameters that Typer sees: those of the command, then the fields of its option dataclasses."""
    parameters = [_refined(each, None) for each in own.values() if get_origin(each.annotation) is Annotated]
    for kind in option_dataclasses(own).values():
        panel = JOIN_PANEL if kind is JoinOptions else None
        parameters += [_refined(each, panel) for each in inspect.signature(kind).parameters.values()]
    return inspect.Signature([each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters])


def _refined(parameter: inspect.Parameter, panel: str | None) -> inspect.Parameter:
    """Complete what `option` leaves open: it does not know its parameter."""
    kind, info = parameter.annotation.__origin__, copy.copy(parameter.annotation.__metadata__[0])
    if kind is bool and info.default is ... and not info.param_decls:
        info.param_decls = (f"--{parameter.name.replace('_', '-')}",)
    if info.show_default is True and not parameter.default:
        info.show_default = False
    info.rich_help_panel = panel or info.rich_help_panel
    return parameter.replace(annotation=Annotated[kind, info])
