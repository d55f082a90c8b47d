"""How a peer looks on a screen: its status, and what changed since the last look."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from weft.commands.peers_here import PeerHere, Told
from weft.commands.telling import SHORT, harmless

RATES = ("delivered", "duplicates", "sent")
ORDINARY = {*RATES, "missed"}
"""Counters that have a place of their own; of the others, each that is not zero tells of something turned away."""
KNOWN_SHOWN = 8
"""Of a neighbour's own neighbours."""


def peers_table(peers: Sequence[PeerHere]) -> Table:
    """One row a peer."""
    table = Table("channel", "peer", "state", "address", "neighbours", "sent", "delivered", "program", box=None)
    table.pad_edge = False
    for each in peers:
        told = each.told
        if told is None:
            table.add_row("?", each.peer[:SHORT], Text("does not answer", style="red"))
            continue
        counters = told["counters"]
        table.add_row(
            _text(told["channel"]),
            each.peer[:SHORT],
            _state(told["state"]),
            told["address"],
            _neighbour_count(told),
            f"{counters['sent']:,}",
            f"{counters['delivered']:,}",
            _text(f"{told.get('program', '')} ({told.get('pid', '?')})"),
        )
    return table


def peer_picture(told: Told, before: Told | None = None, passed_s: float = 0.0) -> RenderableType:
    """All of one peer; with an earlier status also what happened a second since then."""
    parts: list[RenderableType] = [_head(told), Text(), _flow(told, before, passed_s), Text(), _neighbours(told)]
    refused = {name: count for name, count in told["counters"].items() if count and name not in ORDINARY}
    if refused:
        listed = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in sorted(refused.items()))
        parts += [Text(), Text(f"turned away or given up: {listed}", style="yellow")]
    for other in told["others"]:
        parts += [Text(), Text("acts as one with", style="dim"), _head(other), _neighbours(other)]
    return Group(*parts)


def _head(told: Told) -> Table:
    grid = Table.grid(padding=(0, 2))
    name = f", {told['name']} ({told['role']})" if told["name"] else ""
    grid.add_row(Text("channel", style="dim"), _text(told["channel"], style="bold"))
    grid.add_row(Text("peer", style="dim"), _text(f"{told['peer']}{name}, at {told['address']}"))
    state = _state(told["state"])
    state.append(f", {told['security']}", style="default")
    grid.add_row(Text("state", style="dim"), state)
    small = " (everyone is linked to everyone)" if told["small"] else ""
    grid.add_row(
        Text("fabric", style="dim"),
        f"{_neighbour_count(told)} neighbours, {told['holes']} holes{small}, diameter about {told['diameter']}, "
        f"{told['authors']:,} authors",
    )
    if "program" in told:
        grid.add_row(Text("program", style="dim"), _text(f"{told['program']} ({told['pid']})"))
    return grid


def _flow(told: Told, before: Told | None, passed_s: float) -> Table:
    columns = [*RATES, "missed", "unread", "kept"]
    table = Table("", *columns, box=None, pad_edge=False)
    counters = told["counters"]
    kept = f"{told['retained_bytes'] / 1e6:.1f} MB"
    table.add_row("so far", *(f"{counters[name]:,}" for name in (*RATES, "missed")), f"{told['unread']:,}", kept)
    if before is not None and passed_s > 0:
        gains = (counters[name] - before["counters"][name] for name in RATES)
        table.add_row("a second", *(f"{gain / passed_s:,.0f}" for gain in gains))
    return table


def _neighbours(told: Told) -> Table:
    table = Table(
        "neighbour", "name", "address", "linked for", "queued", "its own neighbours", box=None, pad_edge=False
    )
    for each in told["neighbours"]:
        known = [peer[:SHORT] for peer in each["neighbours"]]
        more = f" and {len(known) - KNOWN_SHOWN} more" if len(known) > KNOWN_SHOWN else ""
        table.add_row(
            each["peer"][:SHORT],
            _text(each["name"]),
            each["address"],
            duration(each["linked_s"]),
            f"{each['queued_bytes']:,} B",
            " ".join(known[:KNOWN_SHOWN]) + more,
        )
    if not told["neighbours"]:
        table.add_row(Text("none", style="dim"))
    return table


def duration(seconds: float) -> str:
    whole = int(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {whole % 60:02d} s" if minutes else f"{whole} s"


def _neighbour_count(told: Told) -> str:
    return f"{len(told['neighbours'])} of {told['degree']}"


def _state(state: str) -> Text:
    return Text(state, style="green" if state == "connected" else "yellow")


def _text(words: str, **more: Any) -> Text:
    """Not markup, whatever it holds."""
    return Text(harmless(words), **more)
