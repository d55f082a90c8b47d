"""The live tables on the disk: a batch is there once or not at all."""

import json

import pytest

from broadloom.pipeline.live.store import (
    MANIFESTS_RETAINED,
    MERGE_FILE_COUNT,
    BatchManifest,
    LiveStateMismatchError,
    LiveStore,
    LiveTablesNotFoundError,
)
from broadloom.pipeline.live.tables import TABLES
from broadloom.record.arrow_import import pa

RATES = TABLES["rates"].schema


def traffic(channel: str, *rows: tuple[int, int, bool]) -> pa.Table:
    """Rows of start (seconds), count and final."""
    names = [name for name in RATES.names if name not in ("channel", "start", "rows", "final")]
    told = [
        {"channel": channel, "start": start * 1_000_000, "rows": count, "final": final, **dict.fromkeys(names, 0)}
        for start, count, final in rows
    ]
    return pa.Table.from_pylist(told, schema=RATES)


def states(*channels: str) -> pa.Table:
    return pa.table({"channel": list(channels), "state": pa.array([b"state"] * len(channels), pa.binary())})


def commit(store: LiveStore, batch: int, table: pa.Table, *channels: str) -> BatchManifest:
    return store.commit(BatchManifest(batch), store.manifest(), {"rates": table}, states(*channels))


def stored_rows(store: LiveStore) -> list[tuple[str, int, int, bool]]:
    found = store.read("rates").to_pylist()
    return sorted((row["channel"], int(row["start"].timestamp()), row["rows"], row["final"]) for row in found)


def test_final_rows_stay_and_open_ones_are_replaced(tmp_path):
    store = LiveStore(tmp_path)
    with pytest.raises(LiveTablesNotFoundError, match="there are no live tables"):
        store.read("rates")
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


def test_a_batch_that_is_there_is_not_done_again(tmp_path):
    store = LiveStore(tmp_path)
    assert not store.is_committed(0)
    commit(store, 0, traffic("a", (10, 5, True)), "a")
    assert store.is_committed(0)
    assert not store.is_committed(1)
    for batch in (2, -1):
        with pytest.raises(LiveStateMismatchError, match="do not belong together"):
            store.is_committed(batch)


def test_a_batch_that_died_leaves_nothing(tmp_path):
    store = LiveStore(tmp_path)
    commit(store, 0, traffic("a", (10, 5, True)), "a")
    known = sorted((tmp_path / "parts").iterdir())
    commit(store, 1, traffic("a", (20, 6, True)), "a")
    (tmp_path / "batch-000000001.json").rename(tmp_path / ".batch-000000001.json.0123")  # killed before the last step
    assert stored_rows(LiveStore(tmp_path)) == [("a", 10, 5, True)]
    assert not LiveStore(tmp_path).is_committed(1)
    LiveStore(tmp_path).remove_stale_files()
    assert sorted((tmp_path / "parts").iterdir()) == known
    assert not list(tmp_path.glob(".*"))


def test_many_batches_are_few_files(tmp_path):
    store = LiveStore(tmp_path)
    batches = MERGE_FILE_COUNT**2 + 3
    for batch in range(batches):
        commit(store, batch, traffic("a", (10 * batch, batch, True)), "a")
        store.remove_stale_files()
    assert stored_rows(store) == [("a", 10 * batch, batch, True) for batch in range(batches)]
    last = store.manifest()
    assert last is not None
    assert [level for _, level in last.final["rates"]] == [2, 0, 0, 0]
    assert len(list(tmp_path.glob("batch-*.json"))) == MANIFESTS_RETAINED
    needed = set()
    for path in tmp_path.glob("batch-*.json"):
        needed |= BatchManifest(**json.loads(path.read_text())).files
    assert {path.name for path in (tmp_path / "parts").iterdir()} == needed
