"""`broadloom web`: pages for a channel, tapes and tables."""

import asyncio
import os
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from broadloom.cli.exit_codes import UsageError, require_extra
from broadloom.cli.options import JoinOptions, JsonOption, OptionalChannelArgument, option
from broadloom.cli.output import print_result
from broadloom.cli.runner import StopSignal, command, hint, joined_channel

PASSWORD_VARIABLE = "BROADLOOM_WEB_PASSWORD"


@command("web")
async def web(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: OptionalChannelArgument = "",
    tapes: Annotated[Path | None, option("Tapes to replay.", "DIR")] = None,
    results: Annotated[Path | None, option("Results of `pipeline run`.", "DIR")] = None,
    listen: Annotated[
        str,
        option(
            "Address to serve on; anything but loopback requires a password. Port 0 selects a free port.", "[HOST:]PORT"
        ),
    ] = "127.0.0.1:8470",
    password: Annotated[
        str | None,
        option(f"Password; prefer `{PASSWORD_VARIABLE}`: command lines are visible to other users."),
    ] = None,
    open_browser: Annotated[bool, option("Open the browser.", None, "--open")] = False,
    json: JsonOption = False,
) -> None:
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
        print_result({"url": url}, url, json=json)
        hint("Ctrl-C stops it.")
        if open_browser:
            # In a thread: some browsers block until they are closed.
            asyncio.get_running_loop().run_in_executor(None, webbrowser.open, url)

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
    await _serve(stop, channel, join_options, serve_options)


async def _serve(stop: StopSignal, name: str, join_options: JoinOptions, serve_options: dict[str, Any]) -> None:
    from broadloom.web.peer_timeline import PeerTimeline
    from broadloom.web.server import check, serve

    check(serve_options["host"], serve_options["password"])
    if not name:
        stop.interrupt_is_success = True
        await serve(**serve_options)
        return
    peer_timeline = PeerTimeline()
    async with joined_channel(name, join_options, stop, tape=peer_timeline) as channel:
        peer_timeline.channel = channel
        stop.interrupt_is_success = True
        connect = replace(join_options, port=0).connect  # several players: each has a port of its own
        await serve(channel=channel, peer_timeline=peer_timeline, connect=connect, **serve_options)


def _parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--listen must be a port or host:port, as 127.0.0.1:8470, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)
