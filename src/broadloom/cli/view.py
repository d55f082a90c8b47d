"""How a peer looks on a screen: its status, and what changed since the last look."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from broadloom.channel.status_socket import LocalPeer, StatusJson
from broadloom.cli.formatting import SHORT_ID_DIGITS, escape_control_chars

RATE_COUNTERS = ("delivered", "duplicates", "sent")
COMMON_COUNTERS = {*RATE_COUNTERS, "missed"}
"""Counters that have a place of their own; of the others, each that is not zero tells of something turned away."""
NEIGHBORS_SHOWN = 8
"""Of a neighbour's own neighbours."""


def peers_table(peers: Sequence[LocalPeer]) -> Table:
    """One row a peer."""
    table = Table("channel", "peer", "state", "address", "neighbours", "sent", "delivered", "program", box=None)
    table.pad_edge = False
    for each in peers:
        status = each.status
        if status is None:
            table.add_row("?", each.peer_id[:SHORT_ID_DIGITS], Text("does not answer", style="red"))
            continue
        counters = status["counters"]
        table.add_row(
            _text(status["channel"]),
            each.peer_id[:SHORT_ID_DIGITS],
            _state(status["state"]),
            status["address"],
            _neighbor_count(status),
            f"{counters['sent']:,}",
            f"{counters['delivered']:,}",
            _text(f"{status.get('program', '')} ({status.get('pid', '?')})"),
        )
    return table


def render_peer(status: StatusJson, before: StatusJson | None = None, passed_s: float = 0.0) -> RenderableType:
    """All of one peer; with an earlier status also what happened a second since then."""
    parts: list[RenderableType] = [_head(status), Text(), _flow(status, before, passed_s), Text(), _neighbors(status)]
    nonzero = {name: count for name, count in status["counters"].items() if count and name not in COMMON_COUNTERS}
    if nonzero:
        listed = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in sorted(nonzero.items()))
        parts += [Text(), Text(f"turned away or given up: {listed}", style="yellow")]
    for other in status["local_peers"]:
        parts += [Text(), Text("acts as one with", style="dim"), _head(other), _neighbors(other)]
    return Group(*parts)


def _head(status: StatusJson) -> Table:
    grid = Table.grid(padding=(0, 2))
    name = f", {status['name']} ({status['role']})" if status["name"] else ""
    grid.add_row(Text("channel", style="dim"), _text(status["channel"], style="bold"))
    grid.add_row(Text("peer", style="dim"), _text(f"{status['peer_id']}{name}, at {status['address']}"))
    state = _state(status["state"])
    state.append(f", {status['security']}", style="default")
    grid.add_row(Text("state", style="dim"), state)
    small = " (everyone is linked to everyone)" if status["is_full_mesh"] else ""
    grid.add_row(
        Text("fabric", style="dim"),
        f"{_neighbor_count(status)} neighbours, {status['free_slots']} holes{small}, "
        f"diameter about {status['diameter_estimate']}, {status['author_count']:,} authors",
    )
    if "program" in status:
        grid.add_row(Text("program", style="dim"), _text(f"{status['program']} ({status['pid']})"))
    return grid


def _flow(status: StatusJson, before: StatusJson | None, passed_s: float) -> Table:
    columns = [*RATE_COUNTERS, "missed", "unread", "kept"]
    table = Table("", *columns, box=None, pad_edge=False)
    counters = status["counters"]
    retained = f"{status['retained_bytes'] / 1e6:.1f} MB"
    table.add_row(
        "so far",
        *(f"{counters[name]:,}" for name in (*RATE_COUNTERS, "missed")),
        f"{status['unread_count']:,}",
        retained,
    )
    if before is not None and passed_s > 0:
        gains = (counters[name] - before["counters"][name] for name in RATE_COUNTERS)
        table.add_row("a second", *(f"{gain / passed_s:,.0f}" for gain in gains))
    return table


def _neighbors(status: StatusJson) -> Table:
    table = Table(
        "neighbour", "name", "address", "linked for", "queued", "its own neighbours", box=None, pad_edge=False
    )
    for each in status["neighbors"]:
        neighbors = [peer[:SHORT_ID_DIGITS] for peer in each["neighbors"]]
        more = f" and {len(neighbors) - NEIGHBORS_SHOWN} more" if len(neighbors) > NEIGHBORS_SHOWN else ""
        table.add_row(
            each["peer_id"][:SHORT_ID_DIGITS],
            _text(each["name"]),
            each["address"],
            duration(each["link_age_s"]),
            f"{each['send_queue_bytes']:,} B",
            " ".join(neighbors[:NEIGHBORS_SHOWN]) + more,
        )
    if not status["neighbors"]:
        table.add_row(Text("none", style="dim"))
    return table


def duration(seconds: float) -> str:
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
    """Not markup, whatever it holds."""
    return Text(escape_control_chars(text), **more)
