"""Drawings: valid files, reproducible bytes, and colors that show free slots."""

from __future__ import annotations

import math
from pathlib import Path
from xml.etree import ElementTree

import networkx as nx
import pytest

from broadloom.testing.topology_drawing import (
    EXCESS_LINKS_COLOR,
    FREE_SLOT_COLORS,
    caption_of,
    draw,
    free_slots,
    positions,
)
from broadloom.topology import analyze_topology, mutual_links

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def adjacency_of(fabric: nx.Graph) -> dict[int, list[int]]:
    return {peer: list(fabric[peer]) for peer in fabric}


SMALL = adjacency_of(nx.random_regular_graph(4, 40, seed=1))
LARGE = adjacency_of(nx.random_regular_graph(4, 300, seed=1))
PARTITIONED = adjacency_of(nx.disjoint_union(nx.random_regular_graph(4, 20, seed=1), nx.cycle_graph(5)))


@pytest.mark.parametrize(
    ("adjacency", "suffix"),
    [(SMALL, "png"), (LARGE, "svg"), (PARTITIONED, "svg")],
    ids=["small png", "large svg", "partitioned svg"],
)
def test_same_fabric_gives_same_bytes(adjacency: dict[int, list[int]], suffix: str, tmp_path: Path) -> None:
    first, second = tmp_path / f"first.{suffix}", tmp_path / f"second.{suffix}"
    caption = caption_of(analyze_topology(adjacency))
    draw(adjacency, first, title="A fabric", caption=caption)
    # The order of peers and neighbors does not matter.
    reordered = {peer: adjacency[peer][::-1] for peer in reversed(adjacency)}
    draw(reordered, str(second), title="A fabric", caption=caption)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(
    "adjacency",
    [{}, {1: []}, {1: [2], 2: [1]}, {1: [2], 2: []}, SMALL, LARGE, PARTITIONED],
    ids=["none", "one", "two", "half link", "small", "large", "partitioned"],
)
def test_svg_is_valid_and_has_no_date(adjacency: dict[int, list[int]], tmp_path: Path) -> None:
    path = tmp_path / "fabric.svg"
    draw(adjacency, path, title="Tom & Jerry <$5$>", caption=caption_of(analyze_topology(adjacency)))
    assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    text = path.read_text(encoding="utf-8")
    assert "dc:date" not in text
    assert "nan" not in text.lower()


def test_png_has_signature(tmp_path: Path) -> None:
    path = tmp_path / "fabric.PNG"
    draw(SMALL, path)
    assert path.read_bytes().startswith(PNG_SIGNATURE)


def test_unknown_suffix_raises_value_error(tmp_path: Path) -> None:
    path = tmp_path / "fabric.jpeg"
    with pytest.raises(ValueError, match=r"\.svg or \.png"):
        draw(SMALL, path)
    assert not path.exists()


def test_drawing_contains_every_peer_and_link(tmp_path: Path) -> None:
    path = tmp_path / "fabric.svg"
    draw(SMALL, path)
    root = ElementTree.parse(path).getroot()
    groups = {group.get("id", ""): group for group in root.iter("{http://www.w3.org/2000/svg}g")}
    drawn_links = list(groups["LineCollection_1"].iter("{http://www.w3.org/2000/svg}path"))
    drawn_peers = list(groups["PathCollection_1"].iter("{http://www.w3.org/2000/svg}use"))
    assert (len(drawn_links), len(drawn_peers)) == (80, 40)


def test_color_shows_number_of_free_slots(tmp_path: Path) -> None:
    regular, partitioned = tmp_path / "regular.svg", tmp_path / "partitioned.svg"
    draw(SMALL, regular)
    draw(PARTITIONED, partitioned)
    assert FREE_SLOT_COLORS[0] in regular.read_text(encoding="utf-8")
    assert not any(color in regular.read_text(encoding="utf-8") for color in FREE_SLOT_COLORS[1:])
    assert FREE_SLOT_COLORS[2] in partitioned.read_text(encoding="utf-8")
    assert EXCESS_LINKS_COLOR not in partitioned.read_text(encoding="utf-8")
    draw(SMALL, regular, degree=3)
    assert EXCESS_LINKS_COLOR in regular.read_text(encoding="utf-8")


def test_free_slots_are_relative_to_target_degree() -> None:
    complete = mutual_links(adjacency_of(nx.complete_graph(4)))
    assert set(free_slots(complete, 4).values()) == {0}
    ring = mutual_links(adjacency_of(nx.cycle_graph(9)))
    assert set(free_slots(ring, 4).values()) == {2}
    star = mutual_links(adjacency_of(nx.star_graph(9)))
    assert free_slots(star, 4)[0] == -5


def test_components_are_drawn_apart() -> None:
    position_of = positions(mutual_links(PARTITIONED))
    assert list(position_of) == list(range(25))
    nearest = min(math.dist(position_of[a], position_of[b]) for a in range(20) for b in range(20, 25))
    widest = max(math.dist(position_of[a], position_of[b]) for a in range(20, 25) for b in range(20, 25))
    assert nearest > 0.1 * widest


def test_caption_describes_topology() -> None:
    assert caption_of(analyze_topology({})) == "no peers"
    assert caption_of(analyze_topology({1: [2], 2: [1]})) == "2 peers · 1 link · diameter 1"
    assert caption_of(analyze_topology({1: [], 2: []})) == "2 peers · 0 links · 2 components"
