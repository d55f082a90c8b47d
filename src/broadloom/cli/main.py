"""The root command: a table of all commands, whose modules are imported when they are used."""

import sys
from functools import cache
from importlib import import_module
from typing import Annotated, Any, TextIO, cast

import typer
from typer.core import TyperGroup

from broadloom import __version__
from broadloom.cli.exit_codes import MEANINGS, SUCCESS
from broadloom.cli.stdout import STDOUT, NamedStdout, discard_output, os_error_text

COMMANDS = {
    "join": "join:join",
    "send": "send:send",
    "listen": "listen:listen",
    "group": "group:group",
    "chat": "chat:chat",
    "mailbox": "mailboxes:mailbox",
    "keep": "mailboxes:keep",
    "switch": "switch:switch",
    "members": "members:members",
    "topics": "topics:topics",
    "meter": "meter:meter",
    "auction": "auction:auction",
    "conference": "conference:conference",
    "game": "game:game",
    "rules": "rules:rules",
    "status": "status:status",
    "top": "status:top",
    "ports": "status:ports",
    "key": "keys:key",
    "authority": "keys:authority",
    "ticket": "card:ticket",
    "card": "card:card",
    "record": "record:record",
    "tape": "record:tape",
    "pipeline": "pipeline:pipeline",
    "web": "web:web",
    "demo": "demo:demo",
    "bench": "bench:bench",
    "sim": "sim:sim",
    "chaos": "chaos:chaos",
    "study": "study:study",
}
"""Module and function, or module and command group, in the order of `--help`."""


@cache
def _load(name: str) -> Any:
    module, _, attribute = COMMANDS[name].partition(":")
    target = getattr(import_module(f"broadloom.cli.{module}"), attribute)
    if isinstance(target, typer.Typer):
        command: Any = typer.main.get_group(target)
    else:
        single = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        single.command()(target)
        command = typer.main.get_command(single)
    command.name = name
    return command


class _Root(TyperGroup):
    """Loads one command when it is used, and all of them only to list them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _load(cmd_name) if cmd_name in COMMANDS else None

    @property  # type: ignore[override]
    def commands(self) -> dict[str, Any]:
        return {name: _load(name) for name in COMMANDS}

    @commands.setter
    def commands(self, _registered: dict[str, Any]) -> None:
        pass


app = typer.Typer(
    cls=_Root,
    no_args_is_help=True,
    help="Shared channels without a server: every program receives every message exactly once and in order.",
    epilog="Exit status: " + " ".join(f"**{code}** {meaning}" for code, meaning in MEANINGS.items()),
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"broadloom {__version__}", flush=True)
        raise typer.Exit


def _exit(code: int, **_options: object) -> None:
    """Commands return their exit code."""
    raise typer.Exit(code)


@app.callback(result_callback=_exit)
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", "-v", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


def main() -> None:
    sys.stdout = cast("TextIO", NamedStdout(sys.stdout))
    try:
        app()
    except SystemExit as ended:
        # Rich and Click exit with 1 when the reader has gone, as in `broadloom --help | head -1`.
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        discard_output()
        sys.exit(SUCCESS)
    except OSError as problem:  # of the help and the version: commands handle their own errors
        if problem.filename != STDOUT:
            raise
        sys.exit(f"broadloom: {os_error_text(problem)}")
