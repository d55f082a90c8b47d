"""The words and help of `weft chat …`: a part of `cli.py`. `weft chat NAME` is short for `weft chat join NAME`."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from weft.commands.options import Joining, joins

if TYPE_CHECKING:
    from weft.commands.ending import End

LOBBY = "chat/lobby"


class _NameFirst(TyperGroup):
    """A first word that is no command is somebody's name."""

    default = "join"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "--"):
            args = [self.default, *args]
        return list(super().parse_args(ctx, args))


chat = typer.Typer(
    cls=_NameFirst,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Talk in groups, with answers below what they answer, in the terminal.

    `weft chat NAME` joins the chat under that name: it is short for `weft chat join NAME`, whose options it has. What
    was said is kept on this machine, so whoever comes back finds it. Needs the extra: `pip install 'weft[chat]'`.

    Examples:

    - `weft chat Anna`
    - `weft chat Anna --channel chat/club --portal 10.0.0.5`
    - `weft chat export "Chess club" --format html --out club.html`
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
@joins
def join(
    name: Annotated[str, typer.Argument(help="How the others see you.")],
    joining: Joining,
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

    - `weft chat join Anna`
    - `weft chat join Anna --channel chat/club --portal 10.0.0.5`
    - `weft chat join Anna --memory`
    """

    raise typer.Exit(_told(lambda: _join(name, joining, channel, store, memory=memory)))


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

    - `weft chat export "Chess club"`
    - `weft chat export "Chess club" --format html --out club.html`
    - `weft chat export "Chess club" --format json --name Anna --channel chat/club | jq .messages`
    """

    def work() -> int:
        from weft.apps.chat import command

        return command.export(group, format, channel=channel, name=name, store=store, out=out)

    raise typer.Exit(_told(work))


def _join(name: str, joining: Joining, channel: str, store: Path | None, *, memory: bool) -> int:
    from weft.apps.chat import command
    from weft.commands.ending import run, warnings_go_to
    from weft.commands.taking_part import taking_part

    kept = command.prepare(channel, name, store, memory=memory)

    async def work(end: "End") -> int:
        async with taking_part(channel, joining, end) as joined:
            end.by_hand_is_fine = True
            return await command.chat_on(joined, name, kept, warnings_go_to)

    try:
        return run("chat", work)
    finally:
        kept.close()


def _told(act: Callable[[], int]) -> int:
    """Words and files that do not fit are told as such."""
    from weft.apps.chat.stores import NotUsable
    from weft.commands.ending import told
    from weft.commands.errors import Mistake

    def work() -> int:
        try:
            return act()
        except NotUsable as problem:
            raise Mistake(str(problem)) from None

    return told("chat", work)
