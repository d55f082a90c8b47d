"""The live tables on the disk: a batch is there once or not at all."""

import json

import pytest

from weft.pipeline.live.contract import TABLES
from weft.pipeline.live.store import MANIFESTS_KEPT, MERGED_FILES, Manifest, Mismatch, NoTables, Store
from weft.record.arrow import pa

RATES = TABLES["rates"].schema


def rates(channel: str, *rows: tuple[int, int, bool]) -> pa.Table:
    """Rows of start (seconds), count and final."""
    names = [name for name in RATES.names if name not in ("channel", "start", "rows", "final")]
    told = [
        {"channel": channel, "start": start * 1_000_000, "rows": count, "final": final, **dict.fromkeys(names, 0)}
        for start, count, final in rows
    ]
    return pa.Table.from_pylist(told, schema=RATES)


def states(*channels: str) -> pa.Table:
    return pa.table({"channel": list(channels), "state": pa.array([b"state"] * len(channels), pa.binary())})


def commit(store: Store, batch: int, table: pa.Table, *channels: str) -> Manifest:
    return store.commit(Manifest(batch), store.manifest(), {"rates": table}, states(*channels))


def told(store: Store) -> list[tuple[str, int, int, bool]]:
    found = store.read("rates").to_pylist()
    return sorted((row["channel"], int(row["start"].timestamp()), row["rows"], row["final"]) for row in found)


def test_final_rows_stay_and_open_ones_are_replaced(tmp_path):
    store = Store(tmp_path)
    with pytest.raises(NoTables, match="there are no live tables"):
        store.read("rates")
    commit(
        store, 0, pa.concat_tables([rates("a", (10, 5, True), (20, 1, False)), rates("b", (20, 7, False))]), "a", "b"
    )
    assert told(store) == [("a", 10, 5, True), ("a", 20, 1, False), ("b", 20, 7, False)]
    commit(store, 1, rates("a", (20, 4, True), (30, 2, False)), "a")
    assert told(store) == [("a", 10, 5, True), ("a", 20, 4, True), ("a", 30, 2, False), ("b", 20, 7, False)]
    assert sorted(store.states(store.manifest())["channel"].to_pylist()) == ["a", "b"]


def test_a_batch_that_is_there_is_not_done_again(tmp_path):
    store = Store(tmp_path)
    assert not store.has(0)
    commit(store, 0, rates("a", (10, 5, True)), "a")
    assert store.has(0)
    assert not store.has(1)
    for batch in (2, -1):
        with pytest.raises(Mismatch, match="do not belong together"):
            store.has(batch)


def test_a_batch_that_died_leaves_nothing(tmp_path):
    store = Store(tmp_path)
    commit(store, 0, rates("a", (10, 5, True)), "a")
    known = sorted((tmp_path / "parts").iterdir())
    commit(store, 1, rates("a", (20, 6, True)), "a")
    (tmp_path / "batch-000000001.json").rename(tmp_path / ".batch-000000001.json.0123")  # killed before the last step
    assert told(Store(tmp_path)) == [("a", 10, 5, True)]
    assert not Store(tmp_path).has(1)
    Store(tmp_path).tidy()
    assert sorted((tmp_path / "parts").iterdir()) == known
    assert not list(tmp_path.glob(".*"))


def test_many_batches_are_few_files(tmp_path):
    store = Store(tmp_path)
    batches = MERGED_FILES**2 + 3
    for batch in range(batches):
        commit(store, batch, rates("a", (10 * batch, batch, True)), "a")
        store.tidy()
    assert told(store) == [("a", 10 * batch, batch, True) for batch in range(batches)]
    last = store.manifest()
    assert last is not None
    assert [level for _, level in last.final["rates"]] == [2, 0, 0, 0]
    assert len(list(tmp_path.glob("batch-*.json"))) == MANIFESTS_KEPT
    needed = set()
    for path in tmp_path.glob("batch-*.json"):
        needed |= Manifest(**json.loads(path.read_text())).files
    assert {path.name for path in (tmp_path / "parts").iterdir()} == needed
