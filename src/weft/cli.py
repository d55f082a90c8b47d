"""The command `weft`: arguments in, results out, no logic of its own. What each command does is in `commands`."""

from pathlib import Path
from typing import Annotated

import typer

from weft import __version__
from weft.commands.bench_words import bench
from weft.commands.chat_words import chat
from weft.commands.demo_words import demo
from weft.commands.group_words import group
from weft.commands.options import (
    ChannelArgument,
    ForOption,
    Joining,
    JsonOption,
    MaybeChannelArgument,
    PeerOption,
    joins,
)
from weft.commands.overlay_words import study
from weft.commands.pipeline_words import pipeline
from weft.commands.study_words import sim, trial
from weft.commands.ticket_words import ticket
from weft.commands.web_words import web

app = typer.Typer(
    no_args_is_help=True,
    help="Shared channels without a server: every message, once, in order, to everyone who is there.",
    epilog="Ends with 0 if all went well, 1 if it did not work out on the channel (not joined, nobody there, something "
    "lost), 2 for wrong use (words, files, missing parts). Where Ctrl-C is the usual end it is 0, else 130.",
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.add_typer(ticket, name="ticket")
app.add_typer(group, name="group")
app.add_typer(pipeline, name="pipeline")
app.add_typer(study, name="study")
app.add_typer(chat, name="chat")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"weft {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version and end.")
    ] = False,
) -> None:
    pass


@app.command()
@joins
def join(
    channel: ChannelArgument,
    joining: Joining,
    stay: Annotated[bool, typer.Option("--stay", help="Go on after the input has ended, until Ctrl-C.")] = False,
) -> None:
    """Take part: what you type goes to all, what others say is printed.

    From a terminal, each line is a message, and Ctrl-D or Ctrl-C leaves. From a pipe, the end of the input does.

    Examples:

    - `weft join chess/club-42`
    - `weft join chess/club-42 --portal 10.0.0.5`
    - `./game | weft join chess/x --stay`
    """
    from weft.commands import join as command

    raise typer.Exit(command.join(channel, joining, stay=stay))


@app.command()
@joins
def send(
    channel: ChannelArgument,
    joining: Joining,
    text: Annotated[
        list[str] | None,
        typer.Argument(help="One message. Without it, or with `-`: each line of the input."),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file",
            help="Send this file, with its name and a hash that receivers check; may be repeated. `-` is the input, as "
            "one message.",
            show_default=False,
        ),
    ] = None,
    priority: Annotated[
        str,
        typer.Option(
            metavar="low|normal|high|0..255",
            help="Whoever cannot keep up gets the higher ones first, and is spared the low ones.",
        ),
    ] = "normal",
    lifetime: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Whoever has not got it by then is told that it was missed, instead. Else it is kept as long as any.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Broadcast and go.

    Waits until somebody is there to get it: ends with 1, and sends nothing, if nobody comes within --timeout. A message
    or a file has at most 64 MiB. At a terminal, a bar shows how much of a file has gone out.

    Examples:

    - `weft send news/today Rain at noon`
    - `tail -f log | weft send logs/web -`
    - `weft send pics/x --file a.png --file b.png`
    - `weft send games/x --priority high --lifetime 2 "the ball is at 3,4"`
    """
    from weft.commands import send as command

    raise typer.Exit(
        command.send(channel, joining, words=text or [], files=file or [], priority=priority, lifetime_s=lifetime)
    )


@app.command()
@joins
def listen(
    channel: ChannelArgument,
    joining: Joining,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line: messages, and an `event` where some were missed.")
    ] = False,
    events: Annotated[bool, typer.Option("--events", help="Tell also of neighbours that come and go.")] = False,
    count: Annotated[int | None, typer.Option(min=0, help="End after so many messages.", show_default=False)] = None,
    for_: ForOption = None,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Put files that others send into this directory. None is written over: a name that is taken gets a "
            "number.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print what others broadcast, until Ctrl-C.

    A file is one line with its name and size; --save keeps it. With --count and --for together, ends with 1 if fewer
    messages came in time; with --save, if a file came damaged or could not be written.

    Examples:

    - `weft listen news/today`
    - `weft listen news/today --json | jq .text`
    - `weft listen jobs/x --count 1 --for 60`
    - `weft listen pics/x --save pictures`
    """
    from weft.commands import listen as command

    raise typer.Exit(command.listen(channel, joining, json=json, events=events, count=count, for_s=for_, save=save))


@app.command()
def status(channel: MaybeChannelArgument = "", peer: PeerOption = "", json: JsonOption = False) -> None:
    """Show your peers on this machine: state, neighbours, counters.

    Those of the command `weft`, and of programs that use `weft.commands.visible`. Ends with 1 if there are none.

    Examples:

    - `weft status`
    - `weft status chess/club-42`
    - `weft status --json | jq .counters`
    """
    from weft.commands import status as command

    raise typer.Exit(command.status(channel, peer=peer, json=json))


@app.command()
def watch(
    channel: MaybeChannelArgument = "",
    peer: PeerOption = "",
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How often to look.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="One picture, and end.")] = False,
) -> None:
    """Watch one of your peers on this machine: its neighbours, and what passes, until Ctrl-C.

    Examples:

    - `weft watch`
    - `weft watch chess/club-42`
    - `weft watch --peer 9462 --every 5`
    """
    from weft.commands import status as command

    raise typer.Exit(command.watch(channel, peer=peer, every_s=every, once=once))


@app.command()
@joins
def record(
    channel: ChannelArgument,
    joining: Joining,
    to: Annotated[Path, typer.Option(help="Directory of the tape; may hold others already.")],
    payload: Annotated[bool, typer.Option("--payload", help="Keep the messages themselves too.")] = False,
    for_: ForOption = None,
) -> None:
    """Listen, and write what is seen to a tape (Parquet files), until Ctrl-C.

    Needs the extra `record`. Ends with 1 if rows were lost, as on a full disk.

    Examples:

    - `weft record chess/club-42 --to tapes`
    - `weft record news/today --to tapes --payload --for 3600`
    """
    from weft.commands import record as command

    raise typer.Exit(command.record(channel, joining, to=to, payload=payload, for_s=for_))


@app.command()
def tape(
    directory: Annotated[Path, typer.Argument(help="As given to `weft record --to`.")], json: JsonOption = False
) -> None:
    """Say what is on a tape, channel by channel.

    Examples:

    - `weft tape tapes`
    - `weft tape tapes --json | jq .kinds`
    """
    from weft.commands import record as command

    raise typer.Exit(command.tape(directory, json=json))


@app.command()
def key(
    owner: Annotated[
        Path | None, typer.Option(help="Make an owner's file here, to issue tickets with.", show_default=False)
    ] = None,
    channel: Annotated[
        str, typer.Option(help="The owner's tickets are good for this channel only.", show_default=False)
    ] = "",
) -> None:
    """Make a key that members share; or, with --owner, the file of a channel's owner, who issues tickets.

    Examples:

    - `export WEFT_KEY=$(weft key)`
    - `weft key --owner club.owner --channel chess/club-42`
    """
    from weft.commands import keys as command

    raise typer.Exit(command.key(owner, channel))


@app.command()
def ports(
    channel: ChannelArgument,
    count: Annotated[int, typer.Option(min=1, help="How many.")] = 16,
    json: JsonOption = False,
) -> None:
    """Say on which ports of a machine a channel's peers listen, first to last: what a firewall has to let through.

    Each peer takes the first that is free, so a machine with three peers needs the first three. Those who look for the
    channel try the first 16.

    Examples:

    - `weft ports chess/club-42 --count 4`
    """
    from weft.commands import ports as command

    raise typer.Exit(command.ports(channel, count, json=json))


app.command()(sim)
app.command()(trial)
app.command()(bench)
app.command()(demo)
app.command()(web)


def main() -> None:
    """Entry point of the command."""
    app()
