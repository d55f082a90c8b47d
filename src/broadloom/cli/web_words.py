"""`broadloom web`: its words, and how the pages are served from the command line."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broadloom.cli.options import JoinOptions, with_join_options

if TYPE_CHECKING:
    from broadloom.cli.runner import StopSignal

PASSWORD_VARIABLE = "BROADLOOM_WEB_PASSWORD"


@with_join_options
def web(
    join_options: JoinOptions,
    channel: Annotated[str, typer.Argument(help="A channel to take part in, as `chess/club-42`.")] = "",
    tape: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A tape, or a folder of tapes, to replay.", show_default=False)
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The results of `broadloom pipeline run --out`.", show_default=False),
    ] = None,
    at: Annotated[
        str,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Where the pages are served. Any host but this machine needs a password. Port 0 takes a free one.",
        ),
    ] = "127.0.0.1:8470",
    password: Annotated[
        str | None,
        typer.Option(
            help=f"Asked for before any page. Better in `{PASSWORD_VARIABLE}`: others on this machine see the words of "
            "a command.",
            show_default=False,
        ),
    ] = None,
    browser: Annotated[bool, typer.Option("--open", help="Open the first page in the browser.")] = False,
) -> None:
    """Show a channel, tapes and tables in the browser, until Ctrl-C.

    A channel is joined as one more peer: the pages show what that peer may know. Needs the extra `web`. For peers to
    kill, see `broadloom demo`.

    Examples:

    - `broadloom web chess/club-42`
    - `broadloom web --tape tapes`
    - `broadloom web --tape tapes --tables results --open`
    - `BROADLOOM_WEB_PASSWORD=… broadloom web news/today --at 0.0.0.0:8470`
    """
    from broadloom.cli.exit_codes import UsageError
    from broadloom.cli.runner import run

    async def work(end: "StopSignal") -> int:
        if not channel and tape is None and tables is None:
            raise UsageError("there is nothing to show: name a channel, or give --tape or --tables")
        if tape is not None and not tape.is_dir():
            raise UsageError(
                f"there is no folder {tape}; a tape is made by broadloom record --to, or by broadloom sim --tape"
            )
        host, port = _address(at)
        serve_options = {
            "tapes_dir": tape,
            "results_dir": tables,
            "host": host,
            "port": port,
            "password": password if password is not None else os.environ.get(PASSWORD_VARIABLE),
            "on_ready": lambda url: _ready(url, browser),
        }
        return await _serve(end, channel, join_options, serve_options)

    raise typer.Exit(run("web", work))


async def _serve(end: "StopSignal", name: str, join_options: JoinOptions, serve_options: dict[str, Any]) -> int:
    from broadloom.cli.exit_codes import UsageError
    from broadloom.cli.taking_part import joined_channel
    from broadloom.web.server import ServeError, check, serve

    try:
        check(serve_options["host"], serve_options["password"])
        if not name:
            end.interrupt_is_success = True
            await serve(**serve_options)
            return 0
        from broadloom.web.peer_timeline import PeerTimeline

        peer_timeline = PeerTimeline()
        async with joined_channel(name, join_options, end, tape=peer_timeline) as channel:
            peer_timeline.channel = channel
            end.interrupt_is_success = True
            await serve(channel=channel, peer_timeline=peer_timeline, **serve_options)
    except ServeError as problem:
        raise UsageError(str(problem)) from None
    return 0


def _ready(url: str, open_browser: bool) -> None:
    from broadloom.cli.runner import hint

    print(url, flush=True)
    hint("Ctrl-C ends it.")
    if open_browser:
        import webbrowser

        # In a thread: some browsers are waited for.
        asyncio.get_running_loop().run_in_executor(None, webbrowser.open, url)


def _address(text: str) -> tuple[str, int]:
    from broadloom.cli.exit_codes import UsageError

    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--at takes a port, or host:port, as in 127.0.0.1:8470, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)
