"""The words and help of `weft group …`: a part of `cli.py`, with no logic either."""

from pathlib import Path
from typing import Annotated

import typer

from weft.commands.options import ChannelArgument, Joining, JsonOption, joins

group = typer.Typer(
    no_args_is_help=True,
    help="Talk in groups: conversations on a channel, with members, answers and a history.\n\n"
    "With --store you are one member from day to day, who stays in its groups and gets what it missed; without it you "
    "are somebody new each time.\n\n"
    "Examples:\n\n"
    '- `weft group join chat/lobby "Chess club" --create`\n'
    "- `weft group list chat/lobby`",
)

NameOption = Annotated[
    str | None,
    typer.Option("--name", help="Who you are to the others.", show_default="as on your ticket, or your login name"),
]
StoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="FILE",
        help="Who you are, your groups and their messages; made if there is none. One program at a time.",
        show_default=False,
    ),
]
GroupArgument = Annotated[
    str,
    typer.Argument(
        metavar="GROUP", help="What it is called (its description or identity), or the first digits of its id."
    ),
]


@group.command("list")
@joins
def list_(
    channel: ChannelArgument,
    joining: Joining,
    name: NameOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """List the groups of a channel: what they are called, who is there, gone or left, and how much you hold.

    Asks those who are there, which takes some seconds. Ends with 1 if nobody is.

    Examples:

    - `weft group list chat/lobby`
    - `weft group list chat/lobby --store anna.db --json | jq .description`
    """
    from weft.commands import group as command

    raise typer.Exit(command.list_groups(channel, joining, command.Who(name, store), json=json))


@group.command()
@joins
def create(
    channel: ChannelArgument,
    joining: Joining,
    description: Annotated[str, typer.Argument(help="What it is called, or about.")],
    name: NameOption = None,
    store: StoreOption = None,
    identity: Annotated[
        str | None,
        typer.Option(help="Whoever creates a group by the same text finds the same group.", show_default=False),
    ] = None,
    keep_messages: Annotated[int, typer.Option(min=0, help="Members keep so many messages; 0: all.")] = 0,
    keep_age: Annotated[int, typer.Option(min=0, metavar="SECONDS", help="Members keep what is younger; 0: all.")] = 0,
    keep_bytes: Annotated[int, typer.Option(min=0, help="Members keep so much, about; 0: all.")] = 0,
    ids_only: Annotated[
        bool, typer.Option("--ids-only", help="Who comes late gets the tree, and not what was said.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Create a group and print its id.

    Those who take part in groups on the channel remember it; with --store you do too, and are its first member. Ends
    with 1 if nobody is there and there is no --store.

    Examples:

    - `weft group create chat/lobby "Chess club"`
    - `weft group create chat/lobby Prices --identity prices --keep-messages 10000 --store feed.db`
    """
    from weft.commands import group as command
    from weft.groups import Keep

    keep = Keep(messages=keep_messages, age_s=keep_age, total_bytes=keep_bytes, ids_only=ids_only)
    who = command.Who(name, store)
    raise typer.Exit(
        command.create(channel, joining, who, description=description, identity=identity, keep=keep, json=json)
    )


@group.command()
@joins
def join(
    channel: ChannelArgument,
    joining: Joining,
    group: GroupArgument,
    name: NameOption = None,
    store: StoreOption = None,
    create: Annotated[bool, typer.Option("--create", help="If there is no such group, create it.")] = False,
    reply_to: Annotated[
        str | None,
        typer.Option(metavar="ID", help="All lines answer this message, an `id` of --json.", show_default=False),
    ] = None,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="One JSON object a line, both ways: messages and events out, `text` (or `data`) and `reply_to` in.",
        ),
    ] = False,
    stay: Annotated[bool, typer.Option("--stay", help="Go on after the input has ended, until Ctrl-C.")] = False,
) -> None:
    """Talk in a group: each line is a message, and what others say is printed, each answer after its question.

    What was said before comes first (with --store, what you have not seen yet). Each message has a number; a line that
    begins with it, as in `>3 I do`, answers message 3. So does the beginning of an id, as in `>a1b2c3d4-7 I do`. From a
    terminal, Ctrl-D or Ctrl-C leaves; from a pipe, the end of the input does. Without --store you leave the group for
    good.

    Examples:

    - `weft group join chat/lobby "Chess club" --name Anna --store anna.db`
    - `echo "Server is up" | weft group join ops/x alerts --name cron --create`
    - `echo "I do" | weft group join chat/lobby "Chess club" --reply-to 00c0ffee00c0ffee-3`
    - `./bot | weft group join chat/lobby "Chess club" --json --stay`
    """
    from weft.commands import group as command

    who = command.Who(name, store)
    raise typer.Exit(
        command.join(channel, joining, who, called=group, create_it=create, reply_to=reply_to, json=json, stay=stay)
    )


@group.command()
@joins
def history(
    channel: ChannelArgument,
    joining: Joining,
    group: GroupArgument,
    name: NameOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Print what was said in a group as a tree, each answer below its question; nobody is told that you read it.

    Asks those who are there for what you do not hold. If nobody is there, prints what your --store holds.

    Examples:

    - `weft group history chat/lobby "Chess club"`
    - `weft group history chat/lobby "Chess club" --json | jq -r .text`
    """
    from weft.commands import group as command

    raise typer.Exit(command.history(channel, joining, command.Who(name, store), called=group, json=json))
