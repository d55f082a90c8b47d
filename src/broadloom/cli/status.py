"""`broadloom status`, `broadloom top` and `broadloom ports`: the user's peers on this machine, and a channel's
ports."""

import time
from collections.abc import Sequence
from contextlib import closing, nullcontext
from itertools import islice
from typing import Annotated, Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from broadloom.channel.status_socket import LocalPeer, PeerExitedError, StatusClient, StatusJson, require_local_peers
from broadloom.cli.exit_codes import FAILURE, SUCCESS, UsageError, usage_errors
from broadloom.cli.formatting import SHORT_ID_DIGITS, escape_control_chars
from broadloom.cli.options import ChannelArgument, JsonOption, OptionalChannelArgument, PeerOption, option
from broadloom.cli.output import console, print_json, print_result, table
from broadloom.cli.runner import command, print_error
from broadloom.protocol import ChannelName
from broadloom.protocol.channel_name import PortOrder

RATE_COUNTERS = ("delivered", "duplicates", "sent")
COMMON_COUNTERS = {*RATE_COUNTERS, "missed"}
"""Counters with a column of their own. Each of the others, if not zero, reports rejected input or dropped work."""
NEIGHBORS_SHOWN = 8
"""Two-hop neighbors per row."""


@command("status")
def status(channel: OptionalChannelArgument = "", peer: PeerOption = "", json: JsonOption = False) -> None:
    """Show the state, neighbors and counters of your peers on this machine.

    Shows the peers of the `broadloom` command and of programs that call `broadloom.expose_status`. Exit status 1 if
    there are none.

    Examples:

    - `broadloom status`
    - `broadloom status chess/club-42`
    - `broadloom status --json | jq .counters`
    """
    found = require_local_peers(channel, peer)
    first = found[0].status
    if not json:
        console().print(_peer_view(first) if len(found) == 1 and first is not None else _peers_table(found))
        return
    for each in found:
        print_json(each.status if each.status is not None else {"peer_id": each.peer_id, "error": "no response"})


@command("top")
def top(
    channel: OptionalChannelArgument = "",
    peer: PeerOption = "",
    interval: Annotated[float, option("Time between updates.", "SECONDS", min=0.1)] = 1.0,
    once: Annotated[bool, option("Print one snapshot and exit.")] = False,
    json: JsonOption = False,
) -> int:
    """Show a live view of one of your peers on this machine.

    Examples:

    - `broadloom top`
    - `broadloom top chess/club-42`
    - `broadloom top --peer 9462 --interval 5`
    """
    chosen = _single_peer(require_local_peers(channel, peer))
    try:
        with closing(StatusClient(chosen.path)) as client:
            _show_updates(client, interval, once=once, json=json)
    except PeerExitedError:
        print_error("top", f"the peer {chosen.peer_id} has left")
    except TimeoutError:
        print_error("top", f"the peer {chosen.peer_id} does not respond")
        return FAILURE
    except KeyboardInterrupt:
        pass  # the normal way to stop
    return SUCCESS


@command("ports")
def ports(
    channel: ChannelArgument,
    count: Annotated[int, option("Number of ports to list.", "N", "--count", "-n", min=1)] = 16,
    json: JsonOption = False,
) -> None:
    """List the ports that peers of a channel listen on.

    These are the ports to open in a firewall. Each peer takes the first free port of this order, so a machine with
    three peers needs the first three. Joining peers probe the first 16.

    Examples:

    - `broadloom ports chess/club-42 --count 4`
    """
    with usage_errors():
        order = PortOrder(ChannelName.parse(channel).id)
    first = list(islice(order, count))
    print_result({"channel": channel, "ports": first}, "\n".join(map(str, first)), json=json)


def _single_peer(found: list[LocalPeer]) -> LocalPeer:
    if len(found) == 1:
        return found[0]
    console(stderr=True).print(_peers_table(found))
    raise UsageError("several peers run on this machine: select one by its channel, or with --peer")


def _show_updates(client: StatusClient, interval_s: float, *, once: bool, json: bool) -> None:
    """At a terminal the view is updated in place; otherwise snapshots are printed one after the other."""
    out = console()
    live = Live(console=out, auto_refresh=False, screen=False) if out.is_terminal and not (once or json) else None
    before: StatusJson | None = None
    then = 0.0
    with live if live is not None else nullcontext():
        while True:
            now, seen = time.monotonic(), client.request_status()
            if json:
                print_json(seen)
            elif live is not None:
                live.update(_peer_view(seen, before, now - then), refresh=True)
            else:
                out.print(_peer_view(seen, before, now - then))
            if once:
                return
            before, then = seen, now
            time.sleep(interval_s)


# -- tables


def _peers_table(peers: Sequence[LocalPeer]) -> Table:
    rows = table(["channel", "peer", "state", "address", "neighbors", "sent", "delivered", "program"])
    for each in peers:
        status = each.status
        if status is None:
            rows.add_row("?", each.peer_id[:SHORT_ID_DIGITS], Text("no response", style="red"))
            continue
        counters = status["counters"]
        rows.add_row(
            _text(status["channel"]),
            each.peer_id[:SHORT_ID_DIGITS],
            _state(status["state"]),
            status["address"],
            _neighbor_count(status),
            f"{counters['sent']:,}",
            f"{counters['delivered']:,}",
            _text(f"{status.get('program', '')} ({status.get('pid', '?')})"),
        )
    return rows


def _peer_view(status: StatusJson, before: StatusJson | None = None, elapsed_s: float = 0.0) -> RenderableType:
    """Everything about one peer; with an earlier status, also rates since then."""
    parts: list[RenderableType] = [_head(status), Text(), _flow(status, before, elapsed_s), Text(), _neighbors(status)]
    nonzero = {name: count for name, count in status["counters"].items() if count and name not in COMMON_COUNTERS}
    if nonzero:
        listed = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in sorted(nonzero.items()))
        parts += [Text(), Text(f"rejected or dropped: {listed}", style="yellow")]
    for other in status["local_peers"]:
        parts += [Text(), Text("local peer", style="dim"), _head(other), _neighbors(other)]
    return Group(*parts)


def _head(status: StatusJson) -> Table:
    grid = Table.grid(padding=(0, 2))
    name = f", {status['name']} ({status['role']})" if status["name"] else ""
    grid.add_row(Text("channel", style="dim"), _text(status["channel"], style="bold"))
    grid.add_row(Text("peer", style="dim"), _text(f"{status['peer_id']}{name}, at {status['address']}"))
    state = _state(status["state"])
    state.append(f", {status['security']}", style="default")
    grid.add_row(Text("state", style="dim"), state)
    full_mesh = " (full mesh)" if status["is_full_mesh"] else ""
    grid.add_row(
        Text("fabric", style="dim"),
        f"{_neighbor_count(status)} neighbors, {status['free_slots']} free slots{full_mesh}, "
        f"diameter about {status['diameter_estimate']}, {status['member_count']:,} members, "
        f"{status['author_count']:,} authors",
    )
    if "program" in status:
        grid.add_row(Text("program", style="dim"), _text(f"{status['program']} ({status['pid']})"))
    return grid


def _flow(status: StatusJson, before: StatusJson | None, elapsed_s: float) -> Table:
    rows = table(["", *RATE_COUNTERS, "missed", "unread", "retained"])
    counters = status["counters"]
    rows.add_row(
        "total",
        *(f"{counters[name]:,}" for name in (*RATE_COUNTERS, "missed")),
        f"{status['unread_count']:,}",
        f"{status['retained_bytes'] / 1e6:.1f} MB",
    )
    if before is not None and elapsed_s > 0:
        gains = (counters[name] - before["counters"][name] for name in RATE_COUNTERS)
        rows.add_row("per second", *(f"{gain / elapsed_s:,.0f}" for gain in gains))
    return rows


def _neighbors(status: StatusJson) -> Table:
    rows = table(["neighbor", "name", "address", "link age", "queued", "its neighbors"])
    for each in status["neighbors"]:
        neighbors = [peer[:SHORT_ID_DIGITS] for peer in each["neighbors"]]
        more = f" and {len(neighbors) - NEIGHBORS_SHOWN} more" if len(neighbors) > NEIGHBORS_SHOWN else ""
        rows.add_row(
            each["peer_id"][:SHORT_ID_DIGITS],
            _text(each["name"]),
            each["address"],
            _format_duration(each["link_age_s"]),
            f"{each['send_queue_bytes']:,} B",
            " ".join(neighbors[:NEIGHBORS_SHOWN]) + more,
        )
    if not status["neighbors"]:
        rows.add_row(Text("none", style="dim"))
    return rows


def _format_duration(seconds: float) -> str:
    total = int(seconds)
    hours, minutes = total // 3600, total // 60 % 60
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {total % 60:02d} s" if minutes else f"{total} s"


def _neighbor_count(status: StatusJson) -> str:
    return f"{len(status['neighbors'])} of {status['degree']}"


def _state(state: str) -> Text:
    return Text(state, style="green" if state == "connected" else "yellow")


def _text(text: str, **more: Any) -> Text:
    """Text that is never parsed as markup."""
    return Text(escape_control_chars(text), **more)
