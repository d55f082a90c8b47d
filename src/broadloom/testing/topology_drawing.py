"""Draw a topology as SVG or PNG.

Peers are dots, links are lines, and a color marks peers with free slots. Components are drawn side by side. The same
fabric always gives the same bytes: the layout has a fixed seed, and the file has no date and no random names, so
drawings can be kept under version control. Needs the `sim` extra (matplotlib, networkx).
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

from broadloom.topology import Adjacency, Topology, connected_components, mutual_links, target_degree

Points = npt.NDArray[np.float64]

# Kamada-Kawai shows the structure best but takes seven seconds for 600 peers; larger fabrics get a spring layout.
KAMADA_KAWAI_PEERS_MAX = 150
LAYOUT_SEED = 4
SPECTRAL_ROUNDS = 60
PICTURE_SIDE_INCHES = 8.0
PNG_DOTS_PER_INCH = 150

LINK_COLOR = "#5b6b7b"
TEXT_COLOR = "#22303c"
EXCESS_LINKS_COLOR = "#7b3fa0"
# By number of free slots; the last color is for all larger numbers.
FREE_SLOT_COLORS = ("#1f77a4", "#f2b134", "#ed7d31", "#d1342f", "#8c1c1c")


def draw(
    adjacency: Adjacency,
    path: Path | str,
    *,
    degree: int = 4,
    title: str = "",
    caption: str = "",
) -> None:
    """Draw the fabric to `path`; the suffix decides the format. `degree` is the target degree."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in (".svg", ".png"):
        raise ValueError(f"cannot draw to {path.name}: the suffix must be .svg or .png")
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
    # By default, matplotlib gives SVG elements random names, and signs and dates the file.
    metadata = dict.fromkeys(("Date", "Creator") if suffix == ".svg" else ("Software",))
    with matplotlib.rc_context({"svg.hashsalt": "broadloom"}):
        figure.savefig(path, dpi=PNG_DOTS_PER_INCH, metadata=metadata)


def caption_of(topology: Topology) -> str:
    """Describe the topology in one line."""
    if not topology.peers:
        return "no peers"
    extent = f"diameter {topology.diameter}" if topology.is_connected else f"{topology.components:,} components"
    return f"{_pluralize(topology.peers, 'peer')} · {_pluralize(topology.links, 'link')} · {extent}"


def free_slots(links: Mapping[int, list[int]], degree: int) -> dict[int, int]:
    """Return the free slots of each peer; negative for excess links."""
    target = target_degree(len(links), degree)
    return {peer: target - len(neighbors) for peer, neighbors in links.items()}


def positions(links: Mapping[int, list[int]]) -> dict[int, tuple[float, float]]:
    """Return the position of each peer: each component in a disc of its own, the discs side by side."""
    result: dict[int, tuple[float, float]] = {}
    components = connected_components(links)
    # The same density in small and large components; 2.4 leaves some space around a disc.
    radii = [len(component) ** 0.5 for component in components]
    row_width = 2.4 * len(links) ** 0.5  # of a square that holds the discs
    left = top = row_height = 0.0
    for component, radius in zip(components, radii, strict=True):
        side = 2.4 * radius
        if left and left + side > row_width:
            left, top, row_height = 0.0, top - row_height, 0.0
        row_height = max(row_height, side)
        graph = nx.Graph()
        graph.add_nodes_from(component)
        graph.add_edges_from((peer, other) for peer in component for other in links[peer] if peer < other)
        center = np.array([left + side / 2, top - side / 2])
        for peer, (x, y) in zip(component, center + radius * _unit_layout(graph), strict=True):
            result[peer] = (float(x), float(y))
        left += side
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
    # One call per number of free slots gives each an entry in the legend; peers without problems go to the bottom.
    counts = sorted(set(missing_links.values()), key=lambda count: (count != 0, count))
    for count in counts:
        points = np.array([position_of[peer] for peer in links if missing_links[peer] == count])
        axes.scatter(
            points[:, 0],
            points[:, 1],
            s=dot_area,
            color=_color(count),
            edgecolors="white",
            linewidths=0.6 if crowding < 5 else 0.2,
            zorder=2,
            label=f"{_label(count)} ({len(points)})",
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
    """Lay out a connected graph in the unit disc; return the positions in the order of its peers."""
    peers = graph.number_of_nodes()
    if peers == 1:
        return np.zeros((1, 2))
    if peers <= KAMADA_KAWAI_PEERS_MAX:
        layout = nx.kamada_kawai_layout(graph)
    else:
        start = dict(zip(graph, _spectral_start(graph), strict=True))
        # A round is quadratic in the number of peers, and a large fabric stays a cloud anyway.
        rounds = min(max(30_000 // peers, 15), 60)
        layout = nx.spring_layout(graph, pos=start, iterations=rounds, seed=LAYOUT_SEED)
    points: Points = np.array([layout[peer] for peer in graph], dtype=np.float64)
    points -= (points.min(axis=0) + points.max(axis=0)) / 2
    reach = float(np.hypot(points[:, 0], points[:, 1]).max())
    return points / (reach or 1.0)


def _spectral_start(graph: nx.Graph) -> Points:
    """Approximate the two slowest modes of the graph by power iteration: an untangled start for the springs.

    The spectral layout of networkx starts its solver at random and may fail to converge.
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
        return f"{_pluralize(-count, 'excess link')}"
    return _pluralize(count, "free slot") if count else "no free slot"


def _pluralize(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
