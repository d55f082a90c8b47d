"""Both stores behave the same, and the one on disk survives reopening."""

import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broadloom.groups.message_fields import GroupDescriptor, GroupRecord, MembershipRecord
from broadloom.groups.model import Member, MessageId, Post
from broadloom.groups.settings import RetentionPolicy
from broadloom.groups.sqlite_store import SqliteStore
from broadloom.groups.store import History, MemoryHistory, MemoryStore, Store, StoredGroup

BIG = (1 << 64) - 5
"""Ids are unsigned; SQLite's integers are signed."""


def post(author: int, sequence: int, parent: MessageId | None = None, sent_ms: int = 0, data: bytes = b"x") -> Post:
    return Post(author, sequence, parent, sent_ms, data)


@pytest.fixture(params=["memory", "sqlite"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[History]:
    store: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "h.db")
    yield store.history(BIG)
    store.close()


def as_intervals(sets: object) -> dict[int, list[tuple[int, int]]]:
    return {author: list(each) for author, each in sets.items()}  # type: ignore[attr-defined]


def test_history_keeps_order_and_finds_replies(history: History) -> None:
    first = post(BIG, 1, data=b"hello")
    posts = [
        first,
        post(2, 1, first.id),
        post(BIG, 2),
        post(3, 9, first.id),
        Post(3, 10, None, 5, b"", is_stripped=True),
    ]
    for each in posts:
        history.add(each, "Anna" if each.author == BIG else "B")
    assert [each for _, each in history.scan(0, 100)] == posts
    rows = history.scan(0, 2)
    assert [each for _, each in history.scan(rows[-1][0], 2)] == posts[2:4]
    assert history.replies(first.id) == [MessageId(2, 1), MessageId(3, 9)]
    assert history.get(MessageId(3, 10)) == posts[-1]
    assert history.get(MessageId(3, 11)) is None
    assert as_intervals(history.stored()) == {BIG: [(1, 2)], 2: [(1, 1)], 3: [(9, 10)]}
    assert history.names[BIG] == "Anna"


@pytest.mark.parametrize(
    ("retention", "left"),
    [
        (RetentionPolicy(messages_max=3), [8, 9, 10]),
        (RetentionPolicy(age_max_s=4), [6, 7, 8, 9, 10]),
        (RetentionPolicy(bytes_max=150), [9, 10]),
        (RetentionPolicy(), None),
    ],
)
def test_history_is_pruned_by_count_age_and_size(
    history: History, retention: RetentionPolicy, left: list[int] | None
) -> None:
    for sequence in range(1, 11):
        history.add(post(7, sequence, sent_ms=1000 * sequence), "")
    pruned = history.prune(retention, now_ms=10_000)
    kept = [each.sequence for _, each in history.scan(0, 100)]
    assert kept == (left or list(range(1, 11)))
    assert (pruned, history.count, history.size_bytes) == (10 - len(kept), len(kept), 65 * len(kept))
    assert as_intervals(history.forgotten()) == ({7: [(1, kept[0] - 1)]} if left else {})
    history.add(post(7, 11), "")
    assert [each.sequence for _, each in history.scan(0, 100)][-1] == 11


def test_sqlite_store_survives_reopening(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    store = SqliteStore(path)
    assert store.member() is None
    store.set_member(Member(BIG, "Anna"))
    record = GroupRecord(
        BIG, GroupDescriptor(BIG, "chess", RetentionPolicy(messages_max=2)), (MembershipRecord(BIG, "Anna", 3),)
    )
    store.save_group(StoredGroup(record, True))
    history = store.history(BIG)
    for sequence in (1, 2, 3):
        history.add(post(BIG, sequence), "Anna")
    history.prune(RetentionPolicy(messages_max=2), 0)
    store.commit()
    store.close()
    again = SqliteStore(path)
    try:
        assert again.member() == Member(BIG, "Anna")
        assert again.groups() == [StoredGroup(record, True)]
        history = again.history(BIG)
        assert as_intervals(history.stored()) == {BIG: [(2, 3)]}
        assert as_intervals(history.forgotten()) == {BIG: [(1, 1)]}
        assert (history.count, history.size_bytes, history.names) == (2, 130, {BIG: "Anna"})
    finally:
        again.close()


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 6))
def test_row_numbers_grow_across_pruning(bursts: list[int], messages_max: int) -> None:
    history = MemoryHistory()
    added = seen = 0
    for burst in bursts:
        for _ in range(burst):
            added += 1
            history.add(post(1, added), "")
        history.prune(RetentionPolicy(messages_max=messages_max), 0)
        for row, each in history.scan(seen, 100):
            assert row == each.sequence > seen
            seen = row
    assert seen == added


def test_history_scan_needs_no_sort(tmp_path: Path) -> None:
    path = tmp_path / "member.db"
    SqliteStore(path).close()
    database = sqlite3.connect(path)
    plan = database.execute(
        "explain query plan select row from posts where group_id = 1 and row > 5 order by row limit 9"
    )
    assert [step for *_, step in plan if "B-TREE" in step] == []
    database.close()


def test_store_is_private_and_a_readable_one_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "h.db"
    store = SqliteStore(path)
    store.set_member(Member(1, "Anna"))
    store.commit()
    assert {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == dict.fromkeys(
        (each.name for each in tmp_path.iterdir()), 0o600
    )
    store.close()
    assert not caplog.records
    path.chmod(0o644)
    SqliteStore(path).close()
    assert f"chmod 600 {path}" in caplog.text
