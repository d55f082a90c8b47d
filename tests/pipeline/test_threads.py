"""Conversations of any depth are found, and those without a beginning are told, not followed for ever."""

import networkx as nx
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipeline.building import TALK, everything
from tests.pipeline.flooded import BEGINS_US, CHANNEL, as_rows
from tests.pipeline.test_links import ONE_CLOCK
from weft.pipeline.arrow.frames import to_polars
from weft.pipeline.arrow.threads import places, threads
from weft.record.arrow import pa

AUTHORS = [f"{number:016x}" for number in (7, 8, 9)]
GONE = -2
"""Its parent is on no tape."""


def spoken(parents: list[int], group: str | None = None) -> pa.Table:
    """Message i answers message parents[i]; -1 nobody. Authors take turns; a message a second."""
    rows = []
    for index, parent in enumerate(parents):
        row = {
            "channel": CHANNEL,
            "author": AUTHORS[index % 3],
            "sequence": index // 3 + 1,
            "run": "run",
            "group": group,
        }
        row |= {"time": BEGINS_US + index * 1_000_000, "parent_author": None, "parent_sequence": None}
        if parent >= 0:
            row |= {"parent_author": AUTHORS[parent % 3], "parent_sequence": parent // 3 + 1}
        elif parent == GONE:
            row |= {"parent_author": "f" * 16, "parent_sequence": 1}
        rows.append(row)
    names = ["channel", "author", "sequence", "parent_author", "parent_sequence", "run", "time", "group"]
    schema = as_rows([]).select(names).schema
    return pa.Table.from_pylist(rows, schema=schema)


def index_of(author: str, sequence: int) -> int:
    return (sequence - 1) * 3 + AUTHORS.index(author)


def by_walking(parents: list[int]) -> list[tuple[int, int | None, str]]:
    """Root, depth and state of each message, by following each pointer."""
    found: list[tuple[int, int | None, str]] = []
    for index in range(len(parents)):
        path = [index]
        while parents[path[-1]] >= 0 and parents[path[-1]] not in path:
            path.append(parents[path[-1]])
        if parents[path[-1]] >= 0:
            circle = path[path.index(parents[path[-1]]) :]
            found.append((min(circle), None, "circle"))
        else:
            state = "parent missing" if parents[path[-1]] == GONE else "whole"
            found.append((path[-1], len(path) - 1, state))
    return found


@st.composite
def pointers(draw: st.DrawFn) -> list[int]:
    """Any pointers at all: trees, circles, missing parents."""
    count = draw(st.integers(1, 40))
    return [draw(st.sampled_from([-1, GONE, *range(count)])) for _ in range(count)]


@given(pointers())
@settings(deadline=None, max_examples=150)
def test_places_are_those_found_by_walking(parents):
    # A message that answers itself is a circle of one.
    told = to_polars(places(spoken(parents)))
    found = [
        (index_of(row["root_author"], row["root_sequence"]), row["depth"], row["state"])
        for row in told.iter_rows(named=True)
    ]
    assert found == by_walking(parents)


def test_a_conversation():
    # 0 is answered by its own author (3), then by others (4, 5); 1 by nobody; 2 by a chain.
    told = threads(spoken([-1, -1, -1, 0, 0, 3, 2, 6, 7]), ONE_CLOCK)
    rows = to_polars(told).sort("root_author").rows(named=True)
    first, third = rows
    assert [first[key] for key in ("messages", "depth", "participants", "first_answer_s", "state")] == [
        4,
        2,
        3,
        4.0,
        "whole",
    ]
    assert [third[key] for key in ("messages", "depth", "participants", "first_answer_s")] == [4, 3, 3, 4.0]
    assert (first["began"] - BEGINS_US, first["ended"] - BEGINS_US) == (0, 5_000_000)


def test_a_message_without_an_answer_is_a_conversation_only_in_a_group():
    assert threads(spoken([-1, -1]), ONE_CLOCK).num_rows == 0
    told = to_polars(threads(spoken([-1, -1], group="tea"), ONE_CLOCK))
    assert told.select("messages", "depth", "first_answer_s", "group").rows() == [(1, 0, None, "tea")] * 2


def test_missing_parents_and_circles_are_told():
    told = to_polars(threads(spoken([GONE, 0, 4, 2, 3, 2]), ONE_CLOCK)).sort("state")
    assert told.select("state", "messages", "depth").rows() == [("circle", 4, None), ("parent missing", 2, 1)]


def test_nothing_said():
    assert threads(spoken([]), ONE_CLOCK).num_rows == 0
    assert places(spoken([])).num_rows == 0


@pytest.mark.parametrize("depth", [100_000, 131_072])
def test_a_chain_of_a_hundred_thousand(depth):
    parents = [*range(-1, depth)]
    told = to_polars(threads(spoken_fast(parents), ONE_CLOCK))
    assert told.select("messages", "depth", "participants").rows() == [(depth + 1, depth, 3)]


def test_a_long_circle_ends():
    parents = [99_999, *range(99_999)]
    told = to_polars(threads(spoken_fast(parents), ONE_CLOCK))
    assert told.select("state", "messages", "depth").rows() == [("circle", 100_000, None)]


def test_sizes_and_depths_of_a_random_forest():
    random = np.random.default_rng(3)
    parents = [int(random.integers(-1, index)) if index else -1 for index in range(3000)]
    graph = nx.Graph([(index, parent) for index, parent in enumerate(parents) if parent >= 0])
    told = to_polars(threads(spoken_fast(parents), ONE_CLOCK))
    sizes = sorted(len(part) for part in nx.connected_components(graph))
    assert sorted(told["messages"]) == sizes
    for row in told.iter_rows(named=True):
        root = index_of(row["root_author"], row["root_sequence"])
        assert row["depth"] == max(nx.single_source_shortest_path_length(graph, root).values())


def spoken_fast(parents: list[int]) -> pa.Table:
    """The same for many messages."""
    index = np.arange(len(parents))
    parent = np.array(parents)
    authors = np.array(AUTHORS)
    none = parent < 0
    return pa.table(
        {
            "channel": pa.array([CHANNEL] * len(parents)),
            "author": authors[index % 3],
            "sequence": index // 3 + 1,
            "parent_author": pa.array(authors[parent % 3], mask=none),
            "parent_sequence": pa.array(parent // 3 + 1, mask=none),
            "run": pa.array(["run"] * len(parents)),
            "time": pa.array(BEGINS_US + index).cast(pa.timestamp("us", tz="UTC")),
            "group": pa.nulls(len(parents), pa.string()),
        }
    )


def test_spark_finds_them_on_a_tape(spark):
    found = {
        name: table.filter(pl.col("channel") == TALK) for name, table in everything(spark).items() if name != "clocks"
    }
    columns = "root_sequence", "messages", "depth", "participants", "first_answer_s"
    assert found["threads"].sort("root_sequence").select(columns).rows() == [(1, 4, 2, 3, 1.0), (5, 1, 0, 1, None)]
    where = found["places"].sort("sequence").select("sequence", "root_sequence", "depth", "state").rows()
    assert where == [(1, 1, 0, "whole"), (2, 1, 1, "whole"), (3, 1, 2, "whole"), (4, 1, 1, "whole"), (5, 5, 0, "whole")]
