"""The command `broadloom`: arguments in, results out, no logic of its own. What each command does is in `commands`."""

from pathlib import Path
from typing import Annotated

import typer

from broadloom import __version__
from broadloom.cli.bench_words import bench
from broadloom.cli.chat_words import chat
from broadloom.cli.demo_words import demo
from broadloom.cli.group_words import group
from broadloom.cli.options import (
    ChannelArgument,
    ForOption,
    JoinOptions,
    JsonOption,
    MaybeChannelArgument,
    PeerOption,
    with_join_options,
)
from broadloom.cli.overlay_words import study
from broadloom.cli.pipeline_words import pipeline
from broadloom.cli.sim_words import sim, trial
from broadloom.cli.ticket_words import ticket
from broadloom.cli.web_words import web

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
        typer.echo(f"broadloom {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version and end.")
    ] = False,
) -> None:
    pass


@app.command()
@with_join_options
def join(
    channel: ChannelArgument,
    join_options: JoinOptions,
    stay: Annotated[bool, typer.Option("--stay", help="Go on after the input has ended, until Ctrl-C.")] = False,
) -> None:
    """Take part: what you type goes to all, what others say is printed.

    From a terminal, each line is a message, and Ctrl-D or Ctrl-C leaves. From a pipe, the end of the input does.

    Examples:

    - `broadloom join chess/club-42`
    - `broadloom join chess/club-42 --portal 10.0.0.5`
    - `./game | broadloom join chess/x --stay`
    """
    from broadloom.cli import join as command

    raise typer.Exit(command.join(channel, join_options, stay=stay))


@app.command()
@with_join_options
def send(
    channel: ChannelArgument,
    join_options: JoinOptions,
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

    - `broadloom send news/today Rain at noon`
    - `tail -f log | broadloom send logs/web -`
    - `broadloom send pics/x --file a.png --file b.png`
    - `broadloom send games/x --priority high --lifetime 2 "the ball is at 3,4"`
    """
    from broadloom.cli import send as command

    raise typer.Exit(
        command.send(channel, join_options, text=text or [], files=file or [], priority=priority, ttl_s=lifetime)
    )


@app.command()
@with_join_options
def listen(
    channel: ChannelArgument,
    join_options: JoinOptions,
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

    - `broadloom listen news/today`
    - `broadloom listen news/today --json | jq .text`
    - `broadloom listen jobs/x --count 1 --for 60`
    - `broadloom listen pics/x --save pictures`
    """
    from broadloom.cli import listen as command

    raise typer.Exit(
        command.listen(channel, join_options, json=json, events=events, count=count, for_s=for_, save=save)
    )


@app.command()
def status(channel: MaybeChannelArgument = "", peer: PeerOption = "", json: JsonOption = False) -> None:
    """Show your peers on this machine: state, neighbours, counters.

    Those of the command `broadloom`, and of programs that use `broadloom.expose_status`. Ends with 1 if there are none.

    Examples:

    - `broadloom status`
    - `broadloom status chess/club-42`
    - `broadloom status --json | jq .counters`
    """
    from broadloom.cli import status as command

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

    - `broadloom watch`
    - `broadloom watch chess/club-42`
    - `broadloom watch --peer 9462 --every 5`
    """
    from broadloom.cli import status as command

    raise typer.Exit(command.watch(channel, peer=peer, every_s=every, once=once))


@app.command()
@with_join_options
def record(
    channel: ChannelArgument,
    join_options: JoinOptions,
    to: Annotated[Path, typer.Option(help="Directory of the tape; may hold others already.")],
    payload: Annotated[bool, typer.Option("--payload", help="Keep the messages themselves too.")] = False,
    for_: ForOption = None,
) -> None:
    """Listen, and write what is seen to a tape (Parquet files), until Ctrl-C.

    Needs the extra `record`. Ends with 1 if rows were lost, as on a full disk.

    Examples:

    - `broadloom record chess/club-42 --to tapes`
    - `broadloom record news/today --to tapes --payload --for 3600`
    """
    from broadloom.cli import record as command

    raise typer.Exit(command.record(channel, join_options, to=to, include_payload=payload, for_s=for_))


@app.command()
def tape(
    directory: Annotated[Path, typer.Argument(help="As given to `broadloom record --to`.")], json: JsonOption = False
) -> None:
    """Say what is on a tape, channel by channel.

    Examples:

    - `broadloom tape tapes`
    - `broadloom tape tapes --json | jq .kinds`
    """
    from broadloom.cli import record as command

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

    - `export BROADLOOM_KEY=$(broadloom key)`
    - `broadloom key --owner club.owner --channel chess/club-42`
    """
    from broadloom.cli import keys as command

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

    - `broadloom ports chess/club-42 --count 4`
    """
    from broadloom.cli import ports as command

    raise typer.Exit(command.ports(channel, count, json=json))


app.command()(sim)
app.command()(trial)
app.command()(bench)
app.command()(demo)
app.command()(web)


def main() -> None:
    """Entry point of the command."""
    app()
