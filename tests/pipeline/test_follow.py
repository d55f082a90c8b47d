"""Following growing tapes: every event is counted exactly once, even if the driver is killed."""

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import polars as pl
import pytest

from broadloom.cli.exit_codes import USAGE_ERROR
from broadloom.cli.pipeline import run as run_command
from broadloom.pipeline.analysis.frames import in_us
from broadloom.pipeline.live.follow import (
    FollowProgress,
    follow,
    live_folder,
    quarantined_files,
    read,
)
from broadloom.pipeline.live.settings import parse_settings
from broadloom.pipeline.live.store import BatchManifest, LiveStateMismatchError, LiveStore
from broadloom.pipeline.live.watermark import WatermarkRules
from broadloom.pipeline.table import TableSettingError
from broadloom.protocol import ChannelName
from broadloom.record.arrow_import import pq
from tests.pipeline.growing import BEGIN_S, CHANNEL, TIMEOUT_S, Clock, RecordedPeers, on_tape
from tests.support import wait_until

RULES = WatermarkRules(window_s=10, lateness_s=3600)
KILLS = int(os.environ.get("BROADLOOM_KILLS", "1"))
"""How often the driver is killed."""

DRIVER = """
import sys
from broadloom.pipeline.live.follow import follow
from broadloom.pipeline.live.watermark import WatermarkRules
from broadloom.pipeline.spark_session import session
spark = session(cores=2, memory="1g", quick=True)
follow(sys.argv[1], sys.argv[2], spark=spark, rows_max=2000, rules=WatermarkRules(window_s=10, lateness_s=3600))
"""


def grow(folder: Path, messages: int, begin_s: float, channel: ChannelName = CHANNEL) -> None:
    with RecordedPeers(folder, Clock(begin_s), peers=(1, 2, 3), channel=channel) as peers_recorded:
        peers_recorded.join()
        for number in range(messages):
            peers_recorded.send(1 + number % 3, delay_s=0.01, step_s=0.1)
            if number % 50 == 0:
                peers_recorded.recorders[1].identification("ann", 2)


def check_exact(tapes: Path, out: Path) -> None:
    """Compare the live tables with the tapes, window by window."""
    frame = in_us(pl.DataFrame(on_tape(tapes))).with_columns(start_time=pl.col("event_time") // 10_000_000 * 10_000_000)
    is_sent, is_delivered = pl.col("kind") == "sent", pl.col("kind") == "delivered"
    expected = frame.group_by("channel", "start_time").agg(
        event_count=pl.len().cast(pl.Int64),
        sent_count=is_sent.sum().cast(pl.Int64),
        delivered_count=is_delivered.sum().cast(pl.Int64),
    )
    traffic = in_us(pl.DataFrame(read(out, "traffic")))
    assert _rows(traffic, expected.columns) == _rows(expected, expected.columns)
    latency = in_us(pl.DataFrame(read(out, "latency")))
    assert latency["delivery_count"].sum() == expected["delivered_count"].sum()
    assert latency["untimed_count"].sum() == 0
    assert read(out, "excluded_events").num_rows == 0
    last = LiveStore(live_folder(out)).manifest()
    assert last is not None
    assert (last.rows, last.excluded_rows) == (frame.height, 0)


def _rows(frame: pl.DataFrame, columns: list[str]) -> list[tuple]:
    return sorted(frame.select(columns).rows())


def test_follow_resumes_and_counts_every_event_once(spark, tmp_path):
    tapes, out = tmp_path / "tapes", tmp_path / "out"
    grow(tapes, 300, BEGIN_S)
    grow(tapes, 100, BEGIN_S, ChannelName("test", "another"))
    progress: list[FollowProgress] = []
    first = follow(tapes, out, spark=spark, once=True, rules=RULES, on_progress=progress.append)
    check_exact(tapes, out)
    assert [each.rows for each in progress] == [on_tape(tapes).num_rows]
    grow(tapes, 200, BEGIN_S + 40)
    torn = next(tapes.glob("channel=*/event_date=*")) / "torn.parquet"
    torn.write_bytes(b"PAR1 and no more")
    second = follow(tapes, out, spark=spark, once=True, rules=RULES, on_progress=progress.append)
    torn.unlink()
    check_exact(tapes, out)
    assert first is not None
    assert second is not None
    assert [each.channels for each in progress] == [2, 1]
    assert second.rows - first.rows == progress[1].rows
    assert [each["reason"] for each in quarantined_files(out)] == ["unreadable"]
    assert set(read(out, "sessions")["subscriber"].to_pylist()) == {"ann"}
    # Late events are counted and change nothing.
    traffic = read(out, "traffic")
    grow(tapes, 10, BEGIN_S - 7200)
    third = follow(tapes, out, spark=spark, once=True, rules=RULES, on_progress=progress.append)
    assert third is not None
    assert third.excluded_rows == progress[2].rows == 34
    assert sum(read(out, "excluded_events")["event_count"].to_pylist()) == 34
    assert read(out, "traffic").sort_by("start_time").equals(traffic.sort_by("start_time"))


def test_interrupted_batch_is_repeated(spark, tmp_path):
    """As if the driver had crashed before the manifest of its second batch was written."""
    tapes, out = tmp_path / "tapes", tmp_path / "out"
    for run in range(2):
        grow(tapes, 100, BEGIN_S + 30 * run)
    progress: list[FollowProgress] = []

    def run_once() -> list[int]:
        follow(tapes, out, spark=spark, once=True, rules=RULES, rows_max=400, on_progress=progress.append)
        return [each.batch for each in progress]

    assert run_once() == [0, 1]
    assert run_once() == [0, 1]
    (live_folder(out) / "batch-000000001.json").unlink()
    assert run_once() == [0, 1, 1]
    check_exact(tapes, out)


def test_failed_batch_is_repeated(spark, tmp_path, caplog):
    tapes, out = tmp_path / "tapes", tmp_path / "out"
    grow(tapes, 20, BEGIN_S)
    live_folder(out).mkdir(parents=True)
    obstacle = live_folder(out) / "parts"
    obstacle.write_text("tables cannot be written while this file is here")
    following = threading.Thread(target=lambda: follow(tapes, out, spark=spark, once=True, rules=RULES))
    following.start()
    wait_until(lambda: "a batch failed and is repeated" in caplog.text, timeout_s=TIMEOUT_S)
    obstacle.unlink()
    following.join(TIMEOUT_S)
    check_exact(tapes, out)


def test_bad_files_do_not_stop_following(spark, tmp_path):
    tapes, out = tmp_path / "tapes", tmp_path / "out"
    grow(tapes, 20, BEGIN_S)
    (good,) = tapes.rglob("*.parquet")
    rows = on_tape(tapes).num_rows
    table = pq.read_table(good, partitioning=None)
    os.mkfifo(good.with_name("pipe.parquet"))
    good.with_name("folder.parquet").mkdir()
    good.with_name("link.parquet").symlink_to(tmp_path / "nowhere")
    doubled = table.append_column("hops", table["hops"])
    pq.write_table(doubled, good.with_name("doubled.parquet"))
    pq.write_table(table, good.with_name("without_statistics.parquet"), write_statistics=False)
    last = follow(tapes, out, spark=spark, once=True, rules=RULES)
    assert last is not None
    assert last.rows == rows
    assert {Path(each["path"]).stem: each["reason"] for each in quarantined_files(out)} == {
        "doubled": "duplicate_column",
        "folder": "unreadable",
        "link": "unreadable",
        "pipe": "unreadable",
        "without_statistics": "duplicate",
    }


def test_follow_rejects_folder_it_cannot_continue(spark, tmp_path):
    tapes, out = tmp_path / "tapes", tmp_path / "out"
    grow(tapes, 10, BEGIN_S)
    store = LiveStore(live_folder(out))
    with (
        store.writing(),
        pytest.raises(LiveStateMismatchError, match="another process"),
    ):
        follow(tapes, out, spark=spark, once=True, rules=RULES)
    (store.folder / "batch-000000007.json").write_text('{"batch": 7}')
    with pytest.raises(LiveStateMismatchError, match="earlier version"):
        follow(tapes, out, spark=spark, once=True, rules=RULES)


@pytest.mark.long
def test_follow_needs_no_python_that_starts_within_seconds(tmp_path):
    """On a busy machine Python takes longer to start than the ten seconds that Spark waits for a single worker."""
    tapes, out = tmp_path / "tapes", tmp_path / "out"
    grow(tapes, 20, BEGIN_S)
    slow_python = tmp_path / "python"
    slow_python.write_text(f'#!/bin/sh\nsleep 12\nexec {sys.executable} "$@"\n')
    slow_python.chmod(0o755)
    driver = DRIVER.replace("rows_max=2000", "rows_max=2000, once=True")
    subprocess.run(
        [sys.executable, "-c", driver, str(tapes), str(out)],
        env={**os.environ, "PYSPARK_PYTHON": str(slow_python)},
        check=True,
        timeout=TIMEOUT_S,
    )
    check_exact(tapes, out)


@pytest.mark.long
def test_killed_driver_loses_and_repeats_no_event(spark, tmp_path):
    """Kill the driver with SIGKILL, with or without its JVM, while tapes grow."""
    tapes, out = tmp_path / "tapes", tmp_path / "out"
    rng = random.Random(KILLS)
    enough = threading.Event()
    grow(tapes, 200, BEGIN_S)

    def keep_growing() -> None:
        for run in range(1, 2000):
            grow(tapes, 100, BEGIN_S + 0.3 * run)
            if enough.wait(0.1):
                return

    growing = threading.Thread(target=keep_growing)
    growing.start()
    store = LiveStore(live_folder(out))
    try:
        for kill in range(KILLS):
            reached = _batch(store)
            driver = subprocess.Popen(
                [sys.executable, "-c", DRIVER, str(tapes), str(out)], start_new_session=True, stderr=subprocess.DEVNULL
            )
            try:
                target = reached + rng.randint(2, 5)
                wait_until(lambda: driver.poll() is not None or _batch(store) >= target, timeout_s=2 * TIMEOUT_S)  # noqa: B023
                assert driver.poll() is None, "the driver ended by itself"
            finally:
                # Alternate between the process group and Python alone, in which case the JVM notices and exits.
                if kill % 2 == 0:
                    os.killpg(driver.pid, signal.SIGKILL)
                else:
                    driver.kill()
                driver.wait()
    finally:
        enough.set()
        growing.join()
    killed_at = _batch(store)
    last = follow(tapes, out, spark=spark, once=True, rules=RULES)
    assert last is not None
    assert last.batch > killed_at >= 0
    check_exact(tapes, out)


def _batch(store: LiveStore) -> int:
    manifest: BatchManifest | None = store.manifest()
    return -1 if manifest is None else manifest.batch


def test_usage_errors_are_reported_before_spark_is_started(tmp_path, capsys):
    with pytest.raises(TableSettingError, match="unknown setting 'lateness' with --follow"):
        parse_settings({"lateness": "3"})
    with pytest.raises(TableSettingError, match="window_s must be above 0"):
        parse_settings({"window_s": "0"})
    assert run_command(tmp_path / "nowhere", tmp_path / "out", follow=True) == USAGE_ERROR
    assert "no directory of tapes at" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
