"""`broadloom web`: pages for a channel, tapes and tables."""

import asyncio
import os
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from broadloom.channel.options import ConnectOptions
from broadloom.cli.exit_codes import UsageError, require_extra, usage_errors
from broadloom.cli.options import JoinOptions, JsonOption, OptionalChannelArgument, bootstrap_hosts, option
from broadloom.cli.output import print_result
from broadloom.cli.runner import StopSignal, command, hint, joined_channel

if TYPE_CHECKING:
    from broadloom.web.delivery_site import DeliverySite

PASSWORD_VARIABLE = "BROADLOOM_WEB_PASSWORD"


@command("web")
async def web(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: OptionalChannelArgument = "",
    tapes: Annotated[Path | None, option("Tapes to replay.", "DIR")] = None,
    results: Annotated[Path | None, option("Results of `pipeline run`.", "DIR")] = None,
    service: Annotated[
        str, option("Directory of a delivery service; its visitors sign in with their tickets.", "CHANNEL")
    ] = "",
    bills: Annotated[
        Path | None, option("Results of `pipeline run` with the bills of --service. Visitors see their own.", "DIR")
    ] = None,
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
    notaries: Annotated[int, option("Number of notaries of an auction on the channel: 3, 5, 7 or 9.", "N")] = 3,
    sealed_bids: Annotated[
        Path | None, option("File that keeps the secrets of your sealed bids until they are revealed.", "FILE")
    ] = None,
    open_browser: Annotated[bool, option("Open the browser.", None, "--open")] = False,
    json: JsonOption = False,
) -> None:
    """Serve pages for a channel, tapes, tables and the topics of a delivery service until interrupted.

    Joins the channel as one more peer; the pages show what that peer sees. For a cluster with peers to kill, use
    `broadloom demo`. With --service and no channel, --ticket is offered to everyone on the sign-in page. Needs the
    extra `web`.

    Examples:

    - `broadloom web chess/club-42`
    - `broadloom web --tapes tapes`
    - `broadloom web --tapes tapes --results results --open`
    - `broadloom web --service delivery/news --ticket ann.ticket --bills results`
    - `BROADLOOM_WEB_PASSWORD=… broadloom web news/today --listen 0.0.0.0:8470`
    """

    def on_ready(url: str) -> None:
        print_result({"url": url}, url, json=json)
        hint("Ctrl-C stops it.")
        if open_browser:
            # In a thread: some browsers block until they are closed.
            asyncio.get_running_loop().run_in_executor(None, webbrowser.open, url)

    if not channel and tapes is None and results is None and not service:
        raise UsageError("nothing to show: pass a channel, --tapes, --results or --service")
    if bills is not None and not service:
        raise UsageError("--bills shows the bills of a delivery service: name it with --service")
    if tapes is not None and not tapes.is_dir():
        raise UsageError(f"{tapes} is not a directory; create tapes with `broadloom record --out`")
    host, port = _parse_address(listen)
    require_extra("web")
    serve_options: dict[str, Any] = {
        "tapes_dir": tapes,
        "results_dir": results,
        "host": host,
        "port": port,
        "password": password if password is not None else os.environ.get(PASSWORD_VARIABLE),
        "on_ready": on_ready,
    }
    if service:
        serve_options["delivery"] = _delivery_site(service, bills, join_options, is_offered=not channel)
    await _serve(stop, channel, join_options, serve_options, {"notaries": notaries, "sealed_bids": sealed_bids})


def _delivery_site(service: str, bills: Path | None, join_options: JoinOptions, *, is_offered: bool) -> "DeliverySite":
    from broadloom.protocol import ChannelName
    from broadloom.security import Ticket
    from broadloom.web.delivery_site import DeliverySite

    with usage_errors():
        options: dict[str, Any] = {
            "bootstrap": bootstrap_hosts(join_options.bootstrap),
            "advertise_host": join_options.advertise,
            "timeout_s": join_options.timeout,
        }
        ConnectOptions(**options)
        ChannelName.parse(service)
        tickets = [Ticket.load(join_options.ticket)] if join_options.ticket is not None and is_offered else []
    return DeliverySite(service, options=options, tickets=tickets, bills_dir=bills)


async def _serve(
    stop: StopSignal,
    name: str,
    join_options: JoinOptions,
    serve_options: dict[str, Any],
    auction_options: dict[str, Any],
) -> None:
    from broadloom.web.auction_client import AuctionClient
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
        with usage_errors():
            auction_client = AuctionClient(channel, **auction_options)
        await serve(
            channel=channel,
            peer_timeline=peer_timeline,
            connect=connect,
            auction_client=auction_client,
            **serve_options,
        )


def _parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--listen must be a port or host:port, as 127.0.0.1:8470, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)
