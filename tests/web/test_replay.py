"""A tape of the simulator, replayed: who died, how the fabric looked, and which sentences describe it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broadloom.record.arrow_import import pa, pq
from broadloom.record.schema import file_schema
from broadloom.web.snapshot import ANNOTATION
from broadloom.web.tape_metrics import tape_metrics
from broadloom.web.tape_replay import Replay, ReplayError, replay, tapes_in
from tests.web.sample_data import make_tape


@pytest.fixture(scope="module")
def kill(tmp_path_factory: pytest.TempPathFactory) -> Replay:
    """30 peers, of which six are killed."""
    return replay(make_tape(tmp_path_factory.mktemp("tapes") / "kill", 30))


def sentences(played: Replay) -> list[str]:
    return [entry[2] for entry in played.history.since(0, played.history.end).entries if entry[1] == ANNOTATION]


def test_replay_ends_in_a_regular_fabric_of_survivors(kill: Replay) -> None:
    stats = kill.history.stats(kill.history.end)
    assert (stats["peers"], stats["links"], stats["partitions"], stats["free_slots"]) == (24, 48, 1, 0)
    assert stats["estimate"] >= stats["diameter"] >= 3
    assert stats["is_full_mesh"] is False


def test_crashes_are_found_without_records_of_the_crashed(kill: Replay) -> None:
    texts = sentences(kill)
    assert "6 peers crashed" in texts
    assert any(each.startswith("all links are repaired") for each in texts)
    assert sum(kill.history.overview()["deaths"]) == 6


def test_degree_of_a_replay_comes_from_its_peers(tmp_path: Path) -> None:
    """A ring of seven loses three peers. Of the others, most have one link or none."""
    peers = [f"{number:016x}" for number in range(7)]
    begin = datetime(2026, 1, 5, 12, tzinfo=UTC)
    rows: list[dict[str, Any]] = [{"kind": "joined", "peer": peer, "second": 0} for peer in peers]
    for place, peer in enumerate(peers):
        for other in (peers[place - 1], peers[(place + 1) % 7]):
            rows.append({"kind": "link_up", "peer": peer, "neighbor": other, "second": 1})
            if place in (0, 2, 4, 6) and other in (peers[1], peers[3], peers[5]):
                lost = {"neighbor": other, "reason": "connection_lost", "second": 5}
                rows.append({"kind": "link_down", "peer": peer, **lost})
    table = [
        {"ordinal": n, "run_id": "r", **row, "event_time": begin + timedelta(seconds=row.pop("second"))}
        for n, row in enumerate([*rows, {"kind": "joined", "peer": peers[0], "second": 9}])
    ]
    folder = tmp_path / f"channel={'c' * 16}" / "event_date=2026-01-05"
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(table, schema=file_schema("c" * 64, "r")), folder / "r-000001.parquet")
    history = replay(tmp_path).history
    assert history.stats(history.end)["free_slots"] == 6


def test_shown_messages_travel_along_existing_links(kill: Replay) -> None:
    hops = [each for each in kill.history.since(0, kill.history.end).entries if each[1] == "h"]
    assert 0 < kill.sampled_messages <= kill.messages
    first = next(each for each in kill.history.since(0, kill.history.end).entries if each[1] == "s")
    reached = {each[5] for each in hops if each[2:4] == first[2:4]}
    assert len(reached) == 29
    assert "shown on their way" in kill.sentence


def test_tape_metrics_match_the_tape(kill: Replay) -> None:
    samples = tape_metrics(kill.path, kill.channel)
    busy = [each for each in samples if each.delivered_per_s]
    assert sum(each.sent_per_s for each in samples) == pytest.approx(kill.messages)
    assert all(each.latency_p50_ms <= each.latency_p99_ms and each.hops_p50 <= each.hops_max for each in busy)
    assert max(each.redundancy for each in busy) > 1


def test_partition_is_annotated(tmp_path: Path) -> None:
    texts = sentences(replay(make_tape(tmp_path / "partition", 24, "partition")))
    assert texts.index("the fabric has 2 partitions") < texts.index("the fabric is connected again")


def test_directory_without_tape_raises_replay_error(tmp_path: Path, kill: Replay) -> None:
    with pytest.raises(ReplayError, match="there is no tape at"):
        replay(tmp_path / "nowhere")
    with pytest.raises(ReplayError, match="no finished file"):
        replay(tmp_path)
    assert tapes_in(tmp_path) == []
    assert tapes_in(kill.path.parent) == [kill.path]
    assert tapes_in(kill.path) == [kill.path]
    broken = tmp_path / "channel=0000000000000000" / "event_date=2027-01-15"
    broken.mkdir(parents=True)
    (broken / "x.parquet").write_bytes(b"not Parquet")
    with pytest.raises(ReplayError, match="cannot be read"):
        replay(tmp_path)
