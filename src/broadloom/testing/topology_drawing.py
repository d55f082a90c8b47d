"""Draw a fabric as a picture, SVG or PNG by the suffix of the file.

Peers are dots, links thin lines, and a peer that lacks links stands out by its colour. Parts that cannot
reach each other are drawn side by side, so a torn fabric is seen to be torn. The same fabric always gives
the same bytes: positions start from a fixed seed, and the file carries no date and no random name, so
pictures can be kept under version control and compared. Needs the `sim` extra (matplotlib, networkx).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib
import networkx as nx
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from broadloom.topology import Adjacency, Topology, connected_components, mutual_links

Points = npt.NDArray[np.float64]

# Kamada-Kawai shows the structure best, but 600 peers take it seven seconds; beyond this, springs.
KAMADA_KAWAI_PEERS_MAX = 150
LAYOUT_SEED = 4
SPECTRAL_ROUNDS = 60
PICTURE_SIDE_INCHES = 8.0
PNG_DOTS_PER_INCH = 150

LINK_COLOR = "#5b6b7b"
TEXT_COLOR = "#22303c"
EXCESS_LINKS_COLOR = "#7b3fa0"
# By number of holes; from the last on, all the same.
FREE_SLOT_COLORS = ("#1f77a4", "#f2b134", "#ed7d31", "#d1342f", "#8c1c1c")


def draw(
    adjacency: Adjacency,
    path: Path | str,
    *,
    degree: int = 4,
    title: str = "",
    caption: str = "",
) -> None:
    """Draw the fabric into the file; `degree` is what the peers aim at, see `caption_of` for a caption."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in (".svg", ".png"):
        raise ValueError(f"cannot draw to {path.name}: the name must end in .svg or .png")
    links = mutual_links(adjacency)
    figure = Figure(figsize=(PICTURE_SIDE_INCHES, PICTURE_SIDE_INCHES), facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.03, 0.1, 0.94, 0.84))
    axes.set_axis_off()
    _draw_fabric(axes, links, degree)
    if title:
        figure.text(0.5, 0.965, title, ha="center", va="center", size=15, color=TEXT_COLOR, parse_math=False)
    if caption:
        figure.text(0.5, 0.03, caption, ha="center", va="center", size=10, color=TEXT_COLOR, parse_math=False)
    # matplotlib names the parts of an SVG at random unless it is given a salt, and signs and dates the file.
    metadata = dict.fromkeys(("Date", "Creator") if suffix == ".svg" else ("Software",))
    with matplotlib.rc_context({"svg.hashsalt": "broadloom"}):
        figure.savefig(path, dpi=PNG_DOTS_PER_INCH, metadata=metadata)


def caption_of(topology: Topology) -> str:
    """Say in one line what the picture shows."""
    if not topology.peers:
        return "no peers"
    extent = f"diameter {topology.diameter}" if topology.is_connected else f"in {topology.components:,} parts"
    return f"{_pluralize(topology.peers, 'peer')} · {_pluralize(topology.links, 'link')} · {extent}"


def free_slots(links: Mapping[int, list[int]], degree: int) -> dict[int, int]:
    """Return how many links each peer lacks; negative if it has too many.

    In the small regime a peer that is linked to everyone lacks nothing, though it has ports free.
    """
    wanted = min(degree, len(links) - 1)
    return {peer: wanted - len(neighbours) for peer, neighbours in links.items()}


def positions(links: Mapping[int, list[int]]) -> dict[int, tuple[float, float]]:
    """Give every peer its place: each part laid out by itself in a disc, the discs side by side."""
    result: dict[int, tuple[float, float]] = {}
    parts = connected_components(links)
    # Area for area as many peers in a small part as in a large one; 2.4 leaves a little air around a disc.
    radii = [len(part) ** 0.5 for part in parts]
    row_width = 2.4 * len(links) ** 0.5  # a square of this side would hold the discs if they had no gaps
    left = top = row_height = 0.0
    for part, radius in zip(parts, radii, strict=True):
        room = 2.4 * radius
        if left and left + room > row_width:
            left, top, row_height = 0.0, top - row_height, 0.0
        row_height = max(row_height, room)
        graph = nx.Graph()
        graph.add_nodes_from(part)
        graph.add_edges_from((peer, other) for peer in part for other in links[peer] if peer < other)
        center = np.array([left + room / 2, top - room / 2])
        for peer, place in zip(part, center + radius * _unit_layout(graph), strict=True):
            result[peer] = (float(place[0]), float(place[1]))
        left += room
    return result


def _draw_fabric(axes: Axes, links: Mapping[int, list[int]], degree: int) -> None:
    if not links:
        return
    position_of = positions(links)
    crowding = max(len(links) / 100, 1.0)
    axes.add_collection(
        LineCollection(
            [(position_of[peer], position_of[other]) for peer in links for other in links[peer] if peer < other],
            colors=LINK_COLOR,
            linewidths=max(0.9 / crowding**0.35, 0.25),
            alpha=max(0.5 / crowding**0.35, 0.12),
            zorder=1,
        )
    )
    missing_links = free_slots(links, degree)
    dot_area = max(60 / crowding**0.8, 5)
    # One call for each number of holes, so that each gets a word in the legend; the sound ones first, because
    # what is wrong should lie on top.
    counts = sorted(set(missing_links.values()), key=lambda count: (count != 0, count))
    for count in counts:
        spots = np.array([position_of[peer] for peer in links if missing_links[peer] == count])
        axes.scatter(
            spots[:, 0],
            spots[:, 1],
            s=dot_area,
            color=_color(count),
            edgecolors="white",
            linewidths=0.6 if crowding < 5 else 0.2,
            zorder=2,
            label=f"{_label(count)} ({len(spots)})",
        )
    if any(missing_links.values()):
        axes.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, 0.0),
            ncols=min(len(counts), 5),
            frameon=False,
            fontsize=9,
            labelcolor=TEXT_COLOR,
            markerscale=(40 / dot_area) ** 0.5,
        )
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.04)


def _unit_layout(graph: nx.Graph) -> Points:
    """Lay a connected graph out in the disc of radius 1 around the origin, in the order of its peers."""
    peers = graph.number_of_nodes()
    if peers == 1:
        return np.zeros((1, 2))
    if peers <= KAMADA_KAWAI_PEERS_MAX:
        layout = nx.kamada_kawai_layout(graph)
    else:
        start = dict(zip(graph, _spectral_start(graph), strict=True))
        # A round costs time with the square of the peers, and a large fabric is a cloud however long we wait.
        rounds = min(max(30_000 // peers, 15), 60)
        layout = nx.spring_layout(graph, pos=start, iterations=rounds, seed=LAYOUT_SEED)
    points: Points = np.array([layout[peer] for peer in graph], dtype=np.float64)
    points -= (points.min(axis=0) + points.max(axis=0)) / 2
    reach = float(np.hypot(points[:, 0], points[:, 1]).max())
    return points / (reach or 1.0)


def _spectral_start(graph: nx.Graph) -> Points:
    """Find roughly the two slowest modes of the graph, where the springs start untangled.

    Averaging over neighbours again and again leaves just these. networkx's own spectral layout starts its
    solver at random and may fail to converge; a fixed number of rounds does neither.
    """
    adjacency_matrix = nx.to_scipy_sparse_array(graph, dtype=np.float64, format="csr")
    degree = adjacency_matrix.sum(axis=1)[:, np.newaxis]
    modes: Points = np.random.default_rng(LAYOUT_SEED).standard_normal((graph.number_of_nodes(), 2))
    for _ in range(SPECTRAL_ROUNDS):
        modes = (modes + adjacency_matrix @ modes / degree) / 2
        modes -= modes.mean(axis=0)
        modes = np.linalg.qr(modes).Q
    modes /= np.abs(modes).max()
    return modes


def _color(count: int) -> str:
    return EXCESS_LINKS_COLOR if count < 0 else FREE_SLOT_COLORS[min(count, len(FREE_SLOT_COLORS) - 1)]


def _label(count: int) -> str:
    if count < 0:
        return f"{_pluralize(-count, 'link')} too many"
    return _pluralize(count, "hole") if count else "no hole"


def _pluralize(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
