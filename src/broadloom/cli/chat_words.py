"""The words and help of `broadloom chat …`: a part of `cli.py`.

`broadloom chat NAME` is short for `broadloom chat join NAME`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from broadloom.cli.options import JoinOptions, with_join_options

if TYPE_CHECKING:
    from broadloom.cli.runner import StopSignal

LOBBY = "chat/lobby"


class _DefaultSubcommandGroup(TyperGroup):
    """A first word that is no command is somebody's name."""

    default = "join"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "--"):
            args = [self.default, *args]
        return list(super().parse_args(ctx, args))


chat = typer.Typer(
    cls=_DefaultSubcommandGroup,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Talk in groups, with answers below what they answer, in the terminal.

    `broadloom chat NAME` joins the chat under that name: it is short for `broadloom chat join NAME`, whose options it
    has. What was said is kept on this machine, so whoever comes back finds it. Needs the extra:
    `pip install 'broadloom[chat]'`.

    Examples:

    - `broadloom chat Anna`
    - `broadloom chat Anna --channel chat/club --portal 10.0.0.5`
    - `broadloom chat export "Chess club" --format html --out club.html`
    """,
)

ChannelOption = Annotated[str, typer.Option("--channel", help="Type and instance of the channel.")]
StoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="FILE",
        help="The file with the history; else one in your data folder, for this name and channel.",
        show_default=False,
    ),
]


@chat.command()
@with_join_options
def join(
    name: Annotated[str, typer.Argument(help="How the others see you.")],
    join_options: JoinOptions,
    channel: ChannelOption = LOBBY,
    store: StoreOption = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Keep nothing: you are somebody new each time, with this name.")
    ] = False,
) -> None:
    """Join the chat, in this terminal, until Ctrl-Q.

    In the chat, `?` shows all keys. You stay a member of your groups when you quit, and get what you missed when you
    come back.

    Examples:

    - `broadloom chat join Anna`
    - `broadloom chat join Anna --channel chat/club --portal 10.0.0.5`
    - `broadloom chat join Anna --memory`
    """

    raise typer.Exit(_run_reporting_errors(lambda: _join(name, join_options, channel, store, memory=memory)))


@chat.command()
def export(
    group: Annotated[str, typer.Argument(help="The group's name, or its id as `--format json` tells it.")],
    format: Annotated[str, typer.Option("--format", metavar="md|json|html", help="What to write.")] = "md",
    channel: ChannelOption = LOBBY,
    name: Annotated[
        str, typer.Option("--name", help="Whose store; not needed if there is only one.", show_default=False)
    ] = "",
    store: StoreOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write here, not to the output.", show_default=False)
    ] = None,
) -> None:
    """Write down a conversation from a store, without joining the channel.

    The store must not be in use: quit the chat first.

    Examples:

    - `broadloom chat export "Chess club"`
    - `broadloom chat export "Chess club" --format html --out club.html`
    - `broadloom chat export "Chess club" --format json --name Anna --channel chat/club | jq .messages`
    """

    def work() -> int:
        from broadloom.apps.chat import command

        return command.export(group, format, channel=channel, name=name, store=store, out=out)

    raise typer.Exit(_run_reporting_errors(work))


def _join(name: str, join_options: JoinOptions, channel: str, store: Path | None, *, memory: bool) -> int:
    from broadloom.apps.chat import command
    from broadloom.cli.runner import route_warnings_to, run
    from broadloom.cli.taking_part import joined_channel

    files = command.prepare(channel, name, store, memory=memory)

    async def work(end: "StopSignal") -> int:
        async with joined_channel(channel, join_options, end) as joined:
            end.interrupt_is_success = True
            return await command.run_chat(joined, name, files, route_warnings_to)

    try:
        return run("chat", work)
    finally:
        files.close()


def _run_reporting_errors(act: Callable[[], int]) -> int:
    """Words and files that do not fit are told as such."""
    from broadloom.apps.chat.storage import ChatStoreError
    from broadloom.cli.exit_codes import UsageError
    from broadloom.cli.runner import run_reporting_errors

    def work() -> int:
        try:
            return act()
        except ChatStoreError as problem:
            raise UsageError(str(problem)) from None

    return run_reporting_errors("chat", work)
