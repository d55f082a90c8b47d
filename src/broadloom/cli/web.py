"""`broadloom web`: pages for a channel, tapes and tables."""

import asyncio
import os
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from broadloom.cli.exit_codes import SUCCESS, UsageError, require_extra
from broadloom.cli.options import JoinOptions, JsonOption, OptionalChannelArgument, option, with_join_options
from broadloom.cli.output import print_json
from broadloom.cli.runner import StopSignal, hint, joined_channel, run

PASSWORD_VARIABLE = "BROADLOOM_WEB_PASSWORD"


@with_join_options
def web(
    join_options: JoinOptions,
    channel: OptionalChannelArgument = "",
    tapes: Annotated[Path | None, option("--tapes", metavar="DIR", help="Tapes to replay.")] = None,
    results: Annotated[Path | None, option("--results", metavar="DIR", help="Results of `pipeline run`.")] = None,
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="[HOST:]PORT",
            help="Address to serve on; anything but loopback requires a password. Port 0 selects a free port.",
        ),
    ] = "127.0.0.1:8470",
    password: Annotated[
        str | None,
        option("--password", help=f"Password; prefer `{PASSWORD_VARIABLE}`: command lines are visible to other users."),
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the browser.")] = False,
    json: JsonOption = False,
) -> int:
    """Serve pages for a channel, tapes and tables until interrupted.

    Joins the channel as one more peer; the pages show what that peer sees. For a cluster with peers to kill, use
    `broadloom demo`. Needs the extra `web`.

    Examples:

    - `broadloom web chess/club-42`
    - `broadloom web --tapes tapes`
    - `broadloom web --tapes tapes --results results --open`
    - `BROADLOOM_WEB_PASSWORD=… broadloom web news/today --listen 0.0.0.0:8470`
    """

    def on_ready(url: str) -> None:
        if json:
            print_json({"url": url})
        else:
            print(url, flush=True)
        hint("Ctrl-C stops it.")
        if open_browser:
            # In a thread: some browsers block until they are closed.
            asyncio.get_running_loop().run_in_executor(None, webbrowser.open, url)

    async def work(stop: StopSignal) -> int:
        if not channel and tapes is None and results is None:
            raise UsageError("nothing to show: pass a channel, --tapes or --results")
        if tapes is not None and not tapes.is_dir():
            raise UsageError(f"{tapes} is not a directory; create tapes with `broadloom record --out`")
        host, port = _parse_address(listen)
        require_extra("web")
        serve_options = {
            "tapes_dir": tapes,
            "results_dir": results,
            "host": host,
            "port": port,
            "password": password if password is not None else os.environ.get(PASSWORD_VARIABLE),
            "on_ready": on_ready,
        }
        return await _serve(stop, channel, join_options, serve_options)

    return run("web", work)


async def _serve(stop: StopSignal, name: str, join_options: JoinOptions, serve_options: dict[str, Any]) -> int:
    from broadloom.web.peer_timeline import PeerTimeline
    from broadloom.web.server import ServeError, check, serve

    try:
        check(serve_options["host"], serve_options["password"])
        if not name:
            stop.interrupt_is_success = True
            await serve(**serve_options)
            return SUCCESS
        peer_timeline = PeerTimeline()
        async with joined_channel(name, join_options, stop, tape=peer_timeline) as channel:
            peer_timeline.channel = channel
            stop.interrupt_is_success = True
            await serve(channel=channel, peer_timeline=peer_timeline, **serve_options)
    except ServeError as problem:
        raise UsageError(str(problem)) from None
    return SUCCESS


def _parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--listen must be a port or host:port, as 127.0.0.1:8470, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)
