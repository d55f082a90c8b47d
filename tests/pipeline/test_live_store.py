"""Live tables on disk: a batch is committed exactly once or not at all."""

import json

import pytest

from broadloom.pipeline.live.store import (
    MANIFESTS_RETAINED,
    MERGE_FILE_COUNT,
    BatchManifest,
    LiveStore,
    LiveTablesNotFoundError,
)
from broadloom.pipeline.live.tables import TABLES
from broadloom.record.arrow_import import pa

TRAFFIC = TABLES["traffic"].schema


def traffic(channel: str, *rows: tuple[int, int, bool]) -> pa.Table:
    """Rows from start time in seconds, event count and whether final."""
    names = [name for name in TRAFFIC.names if name not in ("channel", "start_time", "event_count", "is_final")]
    filled = [
        {
            "channel": channel,
            "start_time": start * 1_000_000,
            "event_count": count,
            "is_final": final,
            **dict.fromkeys(names, 0),
        }
        for start, count, final in rows
    ]
    return pa.Table.from_pylist(filled, schema=TRAFFIC)


def states(*channels: str) -> pa.Table:
    return pa.table({"channel": list(channels), "state": pa.array([b"state"] * len(channels), pa.binary())})


def commit(store: LiveStore, batch: int, table: pa.Table, *channels: str) -> BatchManifest:
    return store.commit(BatchManifest(batch), store.manifest(), {"traffic": table}, states(*channels))


def stored_rows(store: LiveStore) -> list[tuple[str, int, int, bool]]:
    found = store.read("traffic").to_pylist()
    return sorted(
        (row["channel"], int(row["start_time"].timestamp()), row["event_count"], row["is_final"]) for row in found
    )


def test_final_rows_are_kept_and_open_rows_replaced(tmp_path):
    store = LiveStore(tmp_path)
    with pytest.raises(LiveTablesNotFoundError, match="no live tables"):
        store.read("traffic")
    commit(
        store,
        0,
        pa.concat_tables([traffic("a", (10, 5, True), (20, 1, False)), traffic("b", (20, 7, False))]),
        "a",
        "b",
    )
    assert stored_rows(store) == [("a", 10, 5, True), ("a", 20, 1, False), ("b", 20, 7, False)]
    commit(store, 1, traffic("a", (20, 4, True), (30, 2, False)), "a")
    assert stored_rows(store) == [("a", 10, 5, True), ("a", 20, 4, True), ("a", 30, 2, False), ("b", 20, 7, False)]
    assert sorted(store.states(store.manifest())["channel"].to_pylist()) == ["a", "b"]


def test_crashed_batch_leaves_no_rows(tmp_path):
    store = LiveStore(tmp_path)
    commit(store, 0, traffic("a", (10, 5, True)), "a")
    known = sorted((tmp_path / "parts").iterdir())
    commit(store, 1, traffic("a", (20, 6, True)), "a")
    (tmp_path / "batch-000000001.json").rename(tmp_path / ".batch-000000001.json.0123")  # killed before the commit
    assert stored_rows(LiveStore(tmp_path)) == [("a", 10, 5, True)]
    LiveStore(tmp_path).remove_stale_files()
    assert sorted((tmp_path / "parts").iterdir()) == known
    assert not list(tmp_path.glob(".*"))


def test_files_of_many_batches_are_merged(tmp_path):
    store = LiveStore(tmp_path)
    batches = MERGE_FILE_COUNT**2 + 3
    for batch in range(batches):
        commit(store, batch, traffic("a", (10 * batch, batch, True)), "a")
        store.remove_stale_files()
    assert stored_rows(store) == [("a", 10 * batch, batch, True) for batch in range(batches)]
    last = store.manifest()
    assert last is not None
    assert [level for _, level in last.final["traffic"]] == [2, 0, 0, 0]
    assert len(list(tmp_path.glob("batch-*.json"))) == MANIFESTS_RETAINED
    needed = set()
    for path in tmp_path.glob("batch-*.json"):
        needed |= BatchManifest(**json.loads(path.read_text())).files
    assert {path.name for path in (tmp_path / "parts").iterdir()} == needed
