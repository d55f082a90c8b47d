"""Conversations of any depth are found, and those without a beginning are told, not followed for ever."""

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import broadloom
from broadloom.groups import Groups, GroupSettings
from broadloom.pipeline.analysis.frames import in_us
from broadloom.pipeline.tables.thread_positions import MESSAGE_COLUMNS, thread_positions
from broadloom.pipeline.tables.threads import threads
from broadloom.record import Tape, read
from tests.channel.joined import QUICK, unique_name
from tests.pipeline.building import CONVERSATION_CHANNEL, build_all, build_in_memory
from tests.pipeline.flooded import CHANNEL, START_US, tape_rows
from tests.pipeline.test_links import ONE_CLOCK
from tests.transport.connections import run_test, until

AUTHORS = [f"{number:016x}" for number in (7, 8, 9)]
SOON = GroupSettings(
    reply_window_s=0.2, page_timeout_s=0.4, presence_interval_s=0.5, suspicion_timeout_s=0.4, parent_request_delay_s=0.2
)
MISSING_PARENT = -2
"""Its parent is on no tape."""

SCHEMA = (
    pl.DataFrame(tape_rows([]))
    .rename({"event_time": "sent_time"})
    .select(*MESSAGE_COLUMNS, "run_id", "sent_time")
    .schema
)


def messages_with_parents(parents: list[int], group: str | None = None) -> pl.DataFrame:
    """Message i answers message parents[i]; -1 nobody. Authors take turns; a message a second."""
    rows = []
    for index, parent in enumerate(parents):
        row = {
            "channel": CHANNEL,
            "author": AUTHORS[index % 3],
            "sequence": index // 3 + 1,
            "run_id": "run_id",
            "group_id": group,
        }
        row |= {"sent_time": START_US + index * 1_000_000, "parent_author": None, "parent_sequence": None}
        if parent >= 0:
            row |= {"parent_author": AUTHORS[parent % 3], "parent_sequence": parent // 3 + 1}
        elif parent == MISSING_PARENT:
            row |= {"parent_author": "f" * 16, "parent_sequence": 1}
        rows.append(row)
    return pl.DataFrame(rows, schema=SCHEMA)


def group_messages(parents: list[int]) -> pl.DataFrame:
    """The same, said by members who are another peer each time."""
    renamed = []
    for index, row in enumerate(messages_with_parents(parents, group="tea").to_dicts()):
        named = {"member": row["author"], "member_sequence": row["sequence"]}
        named |= {"parent_member": row["parent_author"], "parent_member_sequence": row["parent_sequence"]}
        peer = {"author": f"{1000 + index:016x}", "sequence": 1, "parent_author": None, "parent_sequence": None}
        renamed.append(row | named | peer)
    return pl.DataFrame(renamed, schema=SCHEMA)


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
            found.append((min(circle), None, "cycle"))
        else:
            state = "parent_missing" if parents[path[-1]] == MISSING_PARENT else "complete"
            found.append((path[-1], len(path) - 1, state))
    return found


@st.composite
def pointers(draw: st.DrawFn) -> list[int]:
    """Any pointers at all: trees, circles, missing parents."""
    count = draw(st.integers(1, 40))
    return [draw(st.sampled_from([-1, MISSING_PARENT, *range(count)])) for _ in range(count)]


@given(pointers())
@settings(deadline=None, max_examples=150)
def test_thread_positions_match_naive_walk(parents):
    # A message that answers itself is a circle of one.
    told = in_us(thread_positions(messages_with_parents(parents)))
    found = [
        (index_of(row["root_author"], row["root_sequence"]), row["depth"], row["status"])
        for row in told.iter_rows(named=True)
    ]
    assert found == by_walking(parents)
    told = in_us(thread_positions(group_messages(parents)))
    found = [(int(row["root_author"], 16) - 1000, row["depth"], row["status"]) for row in told.iter_rows(named=True)]
    assert found == by_walking(parents)


def test_member_keeps_its_thread_over_reconnects():
    # One asks, another answers, and the first answers that, after it has come back as another peer.
    told = in_us(threads(group_messages([-1, 0, -1, 1]), ONE_CLOCK)).sort("start_time")
    assert told.select("message_count", "depth", "participant_count", "first_reply_ms").rows() == [
        (3, 2, 2, 1000.0),
        (1, 0, 1, None),
    ]


def test_reused_member_sequence_stays_with_first_author():
    rows = group_messages([-1, 0]).to_dicts()
    forged = rows[0] | {"author": "f" * 16, "group_id": "tea"}
    elsewhere = rows[0] | {"author": "0" * 16, "group_id": "coffee"}
    for order in ([forged, elsewhere, *rows], [*rows, elsewhere, forged]):
        told = in_us(thread_positions(pl.DataFrame(order, schema=SCHEMA)))
        answer = told.filter(pl.col("author") == rows[1]["author"])
        assert answer.select("root_author", "depth").rows() == [(rows[0]["author"], 1)]


def test_threads_have_size_depth_and_first_reply():
    # 0 is answered by its own author (3), then by others (4, 5); 1 by nobody; 2 by a chain.
    told = threads(messages_with_parents([-1, -1, -1, 0, 0, 3, 2, 6, 7]), ONE_CLOCK)
    rows = in_us(told).sort("root_author").rows(named=True)
    first, third = rows
    assert [first[key] for key in ("message_count", "depth", "participant_count", "first_reply_ms", "status")] == [
        4,
        2,
        3,
        4000.0,
        "complete",
    ]
    assert [third[key] for key in ("message_count", "depth", "participant_count", "first_reply_ms")] == [
        4,
        3,
        3,
        4000.0,
    ]
    assert (first["start_time"] - START_US, first["end_time"] - START_US) == (0, 5_000_000)


def test_message_without_reply_is_a_thread_only_in_a_group():
    assert threads(messages_with_parents([-1, -1]), ONE_CLOCK).is_empty()
    told = in_us(threads(messages_with_parents([-1, -1], group="tea"), ONE_CLOCK))
    assert told.select("message_count", "depth", "first_reply_ms", "group_id").rows() == [(1, 0, None, "tea")] * 2


def test_missing_parents_and_cycles_have_a_status():
    told = in_us(threads(messages_with_parents([MISSING_PARENT, 0, 4, 2, 3, 2]), ONE_CLOCK)).sort("status")
    assert told.select("status", "message_count", "depth").rows() == [("cycle", 4, None), ("parent_missing", 2, 1)]


def test_no_messages_give_no_threads():
    assert threads(messages_with_parents([]), ONE_CLOCK).is_empty()
    assert thread_positions(messages_with_parents([])).is_empty()


@pytest.mark.parametrize("depth", [100_000, 131_072])
def test_very_deep_thread_is_resolved(depth):
    parents = [*range(-1, depth)]
    told = in_us(threads(many_messages(parents), ONE_CLOCK))
    assert told.select("message_count", "depth", "participant_count").rows() == [(depth + 1, depth, 3)]


def test_long_cycle_is_detected():
    parents = [99_999, *range(99_999)]
    told = in_us(threads(many_messages(parents), ONE_CLOCK))
    assert told.select("status", "message_count", "depth").rows() == [("cycle", 100_000, None)]


def test_thread_sizes_and_depths_match_networkx():
    random = np.random.default_rng(3)
    parents = [int(random.integers(-1, index)) if index else -1 for index in range(3000)]
    graph = nx.Graph([(index, parent) for index, parent in enumerate(parents) if parent >= 0])
    told = in_us(threads(many_messages(parents), ONE_CLOCK))
    sizes = sorted(len(part) for part in nx.connected_components(graph))
    assert sorted(told["message_count"]) == sizes
    for row in told.iter_rows(named=True):
        root = index_of(row["root_author"], row["root_sequence"])
        assert row["depth"] == max(nx.single_source_shortest_path_length(graph, root).values())


def many_messages(parents: list[int]) -> pl.DataFrame:
    """The same for many messages."""
    index = np.arange(len(parents))
    parent = np.array(parents)
    authors = np.array(AUTHORS)
    has_parent = pl.Series(parent >= 0)
    texts = dict.fromkeys(("group_id", "member", "parent_member"), pl.lit(None, pl.String))
    numbers = dict.fromkeys(("member_sequence", "parent_member_sequence"), pl.lit(None, pl.Int64))
    return pl.DataFrame(
        {"author": authors[index % 3], "sequence": index // 3 + 1, "sent_time": START_US + index}
    ).with_columns(
        channel=pl.lit(CHANNEL),
        run_id=pl.lit("run_id"),
        parent_author=pl.when(has_parent).then(pl.Series(authors[parent % 3])),
        parent_sequence=pl.when(has_parent).then(pl.Series(parent // 3 + 1)),
        **texts,
        **numbers,
    )


def test_threads_are_found_on_a_tape():
    found = {
        name: table.filter(pl.col("channel") == CONVERSATION_CHANNEL)
        for name, table in build_all().items()
        if "channel" in table.columns
    }
    columns = "root_sequence", "message_count", "depth", "participant_count", "first_reply_ms"
    assert found["threads"].sort("root_sequence").select(columns).rows() == [(1, 4, 2, 3, 1000.0), (5, 1, 0, 1, None)]
    where = found["thread_positions"].sort("sequence").select("sequence", "root_sequence", "depth", "status").rows()
    assert where == [
        (1, 1, 0, "complete"),
        (2, 1, 1, "complete"),
        (3, 1, 2, "complete"),
        (4, 1, 1, "complete"),
        (5, 5, 0, "complete"),
    ]


async def record_conversation(name: str, tape: Tape, store: Path) -> None:
    """Two members, both recorded; one goes and comes back as another peer; one message is so long that it is cut."""
    options: dict[str, Any] = {"tls": False, "settings": QUICK, "tape": tape}
    async with broadloom.connect(name, **options) as channel, Groups(channel, "Anna", settings=SOON) as anna:
        club = await anna.create("Chess club")
        question = await club.send_text("Who plays white?")
        async with broadloom.connect(name, **options) as other, Groups(other, "Ben", store=store, settings=SOON) as ben:
            await until(ben.list_groups)
            at_ben = await ben.join(ben.list_groups()[0])
            assert (await at_ben.receive(20)).id == question.id  # by catching up: it was said before Ben came
            answer = await at_ben.send_text("I do", reply_to=question)
            await at_ben.send_text("Nice weather")
            await until(lambda: len(club.history()) == 3)
        async with broadloom.connect(name, **options) as other, Groups(other, "Ben", store=store, settings=SOON) as ben:
            (at_ben,) = ben.joined.values()
            long = await at_ben.send(bytes(150_000), reply_to=answer)
            await until(lambda: len(club.history()) == 4)
        await club.send_text("So long?", reply_to=long)


def test_recorded_conversation_places_each_reply_under_its_parent(tmp_path):
    with Tape(tmp_path / "tape") as tape:
        run_test(lambda: record_conversation(unique_name(), tape, tmp_path / "ben.db"))
    found = build_in_memory(read(tmp_path / "tape"), "thread_positions", "threads")
    said = found["messages"].drop_nulls("member").join(found["thread_positions"], ["channel", "author", "sequence"])
    assert (said["member"].n_unique(), said["author"].n_unique()) == (2, 3), "Ben was two peers"
    question = said.filter(pl.col("parent_member").is_null()).sort("sent_time")["member"][0]
    shown = [
        ("Anna" if member == question else "Ben", number, depth, state)
        for member, number, depth, state in said.sort("sent_time")
        .select("member", "member_sequence", "depth", "status")
        .rows()
    ]
    assert shown == [
        ("Anna", 1, 0, "complete"),
        ("Ben", 1, 1, "complete"),
        ("Ben", 2, 0, "complete"),
        ("Ben", 3, 2, "complete"),
        ("Anna", 2, 3, "complete"),
    ]
    columns = "message_count", "depth", "participant_count", "status"
    assert found["threads"].sort("message_count").select(columns).rows() == [
        (1, 0, 1, "complete"),
        (4, 3, 2, "complete"),
    ]
    assert found["threads"]["group_id"].unique().to_list() == said["group_id"].unique().to_list()
