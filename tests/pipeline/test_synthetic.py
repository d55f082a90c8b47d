"""Synthetic tapes have the schema, layout and guarantees of recorded ones, and are reproducible."""

from pathlib import Path

import polars as pl
import pytest

from broadloom.record import SCHEMA, read, summarize
from broadloom.record.arrow_import import pq
from broadloom.record.schema import CHANNEL_KEY, RUN_KEY, SCHEMA_VERSION, VERSION_KEY, EventKind
from tests.pipeline.without_spark import frame, run_audit
from tools.synthetic.generate import SyntheticConfig, generate
from tools.synthetic.peers import EndStatus

SMALL = SyntheticConfig(rows=20_000, peers=30, arrivals=5, leaves=4, crashes=4, machines=3, seconds=120)


def test_ground_truth_matches_tape(tmp_path: Path) -> None:
    (truth,) = generate(tmp_path, SMALL)
    (found,) = summarize(tmp_path)
    assert (found.channel, found.rows, found.files) == (truth.channel, truth.rows, SMALL.machines)
    assert found.kinds["sent"] == truth.messages
    assert found.kinds["delivered"] == truth.deliveries
    assert found.kinds["joined"] == len(truth.peers.ids) == SMALL.peers + SMALL.arrivals
    assert found.kinds["left"] == truth.peers.end_status.count(EndStatus.LEFT) == SMALL.leaves
    assert truth.peers.end_status.count(EndStatus.CRASHED) == SMALL.crashes
    assert set(found.kinds) >= {
        "received",
        "duplicates",
        "link_up",
        "link_down",
        "identification",
        EventKind.AD_IMPRESSION.value,
    }


def test_synthetic_files_match_recorder_format(tmp_path: Path) -> None:
    (truth,) = generate(tmp_path, SMALL)
    for path in tmp_path.rglob("*.parquet"):
        schema = pq.read_schema(path)
        assert [(each.name, each.type) for each in schema] == [(each.name, each.type) for each in SCHEMA]
        assert schema.metadata[VERSION_KEY] == str(SCHEMA_VERSION).encode()
        assert schema.metadata[CHANNEL_KEY].decode().startswith(truth.channel)
        assert path.name == f"{schema.metadata[RUN_KEY].decode()}-000001.parquet"


def test_ordinals_of_a_run_follow_time(tmp_path: Path) -> None:
    generate(tmp_path, SMALL)
    rows = frame(read(tmp_path)).sort("run_id", "ordinal")
    for _, part in rows.group_by("run_id"):
        assert part["ordinal"].to_list() == list(range(part.height))
        assert part["event_time"].is_sorted()


def test_synthetic_tape_passes_the_audit(tmp_path: Path) -> None:
    (truth,) = generate(tmp_path, SMALL)
    found = run_audit(read(tmp_path))
    assert found.findings == set()
    assert found.delivery_balances["due_count"].sum() == truth.deliveries
    counts = found.recorded_peers["end_status"].value_counts()
    assert dict(counts.iter_rows()) == {"left": 4, "crashed": 4, "present": 27}


def test_same_config_generates_the_same_tape(tmp_path: Path) -> None:
    generate(tmp_path / "one", SMALL)
    generate(tmp_path / "two", SMALL)
    assert read(tmp_path / "one").equals(read(tmp_path / "two"))
    generate(tmp_path / "three", SyntheticConfig(rows=20_000, peers=30, seconds=120, seed=2))
    assert not read(tmp_path / "one").equals(read(tmp_path / "three"))


def test_configured_clock_skew_is_on_the_tape(tmp_path: Path) -> None:
    config = SyntheticConfig(rows=5_000, peers=10, arrivals=0, leaves=0, crashes=0, machines=3, seconds=60, skew_s=5.0)
    (truth,) = generate(tmp_path, config)
    rows = frame(read(tmp_path))
    sent = rows.filter(pl.col("kind") == "sent").select(
        "author", "sequence", "event_time", pl.col("run_id").alias("from")
    )
    got = rows.filter(pl.col("kind") == "delivered").join(sent, ["author", "sequence"], suffix="_sent")
    skew = dict(zip(truth.runs, truth.skews_s, strict=True))
    assert max(abs(each) for each in skew.values()) > 0.1
    for row in got.iter_rows(named=True):
        late_s = (row["event_time"] - row["event_time_sent"]).total_seconds() - (
            skew[row["run_id"]] - skew[row["from"]]
        )
        assert 0 < late_s < 0.5


def test_files_are_split_at_midnight(tmp_path: Path) -> None:
    config = SyntheticConfig(
        rows=2_000,
        peers=10,
        machines=1,
        seconds=60,
        begin=SyntheticConfig().begin.replace(hour=23, minute=59, second=30),
    )
    (truth,) = generate(tmp_path, config)
    days = sorted(path.parent.name for path in tmp_path.rglob("*.parquet"))
    assert days == ["event_date=2026-01-05", "event_date=2026-01-06"]
    assert read(tmp_path).num_rows == truth.rows


@pytest.mark.parametrize("peers", [2, 6])
def test_small_synthetic_channels_pass_the_audit(tmp_path: Path, peers: int) -> None:
    generate(
        tmp_path,
        SyntheticConfig(rows=200, peers=peers, arrivals=0, leaves=0, crashes=0, machines=1, seconds=30, groups=0),
    )
    assert run_audit(read(tmp_path)).findings == set()
