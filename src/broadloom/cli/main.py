"""The root command: a table of all commands, whose modules are imported when they are used."""

from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from broadloom import __version__
from broadloom.cli.exit_codes import MEANINGS

COMMANDS = {
    "join": "join:join",
    "send": "send:send",
    "listen": "listen:listen",
    "group": "group:group",
    "chat": "chat:chat",
    "status": "status:status",
    "top": "status:top",
    "ports": "status:ports",
    "key": "keys:key",
    "authority": "keys:authority",
    "ticket": "keys:ticket",
    "record": "record:record",
    "tape": "record:tape",
    "pipeline": "pipeline:pipeline",
    "web": "web:web",
    "demo": "demo:demo",
    "bench": "bench:bench",
    "sim": "simulate:sim",
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
        typer.echo(f"broadloom {__version__}")
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
    app()
