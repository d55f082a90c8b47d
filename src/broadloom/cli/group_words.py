"""The words and help of `broadloom group …`: a part of `cli.py`, with no logic either."""

from pathlib import Path
from typing import Annotated

import typer

from broadloom.cli.options import ChannelArgument, JoinOptions, JsonOption, with_join_options

group = typer.Typer(
    no_args_is_help=True,
    help="Talk in groups: conversations on a channel, with members, answers and a history.\n\n"
    "With --store you are one member from day to day, who stays in its groups and gets what it missed; without it you "
    "are somebody new each time.\n\n"
    "Examples:\n\n"
    '- `broadloom group join chat/lobby "Chess club" --create`\n'
    "- `broadloom group list chat/lobby`",
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
@with_join_options
def list_(
    channel: ChannelArgument,
    join_options: JoinOptions,
    name: NameOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """List the groups of a channel: what they are called, who is there, gone or left, and how much you hold.

    Asks those who are there, which takes some seconds. Ends with 1 if nobody is.

    Examples:

    - `broadloom group list chat/lobby`
    - `broadloom group list chat/lobby --store anna.db --json | jq .description`
    """
    from broadloom.cli import group as command

    raise typer.Exit(command.list_groups(channel, join_options, command.MemberOptions(name, store), json=json))


@group.command()
@with_join_options
def create(
    channel: ChannelArgument,
    join_options: JoinOptions,
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

    - `broadloom group create chat/lobby "Chess club"`
    - `broadloom group create chat/lobby Prices --identity prices --keep-messages 10000 --store feed.db`
    """
    from broadloom.cli import group as command
    from broadloom.groups import RetentionPolicy

    retention = RetentionPolicy(messages_max=keep_messages, age_max_s=keep_age, bytes_max=keep_bytes, ids_only=ids_only)
    member_options = command.MemberOptions(name, store)
    raise typer.Exit(
        command.create(
            channel,
            join_options,
            member_options,
            description=description,
            well_known_name=identity,
            retention=retention,
            json=json,
        )
    )


@group.command()
@with_join_options
def join(
    channel: ChannelArgument,
    join_options: JoinOptions,
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

    - `broadloom group join chat/lobby "Chess club" --name Anna --store anna.db`
    - `echo "Server is up" | broadloom group join ops/x alerts --name cron --create`
    - `echo "I do" | broadloom group join chat/lobby "Chess club" --reply-to 00c0ffee00c0ffee-3`
    - `./bot | broadloom group join chat/lobby "Chess club" --json --stay`
    """
    from broadloom.cli import group as command

    member_options = command.MemberOptions(name, store)
    raise typer.Exit(
        command.join(
            channel,
            join_options,
            member_options,
            name=group,
            create_missing=create,
            reply_to=reply_to,
            json=json,
            stay=stay,
        )
    )


@group.command()
@with_join_options
def history(
    channel: ChannelArgument,
    join_options: JoinOptions,
    group: GroupArgument,
    name: NameOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Print what was said in a group as a tree, each answer below its question; nobody is told that you read it.

    Asks those who are there for what you do not hold. If nobody is there, prints what your --store holds.

    Examples:

    - `broadloom group history chat/lobby "Chess club"`
    - `broadloom group history chat/lobby "Chess club" --json | jq -r .text`
    """
    from broadloom.cli import group as command

    raise typer.Exit(command.history(channel, join_options, command.MemberOptions(name, store), name=group, json=json))
