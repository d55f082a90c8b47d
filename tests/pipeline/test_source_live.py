"""A live channel as a stream, and as a sink: real peers on real sockets."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

import broadloom.groups
import broadloom.sync
from broadloom.errors import NotSentError
from broadloom.groups.sync import Groups
from broadloom.pipeline.spark_source import register
from broadloom.pipeline.spark_source.data_source import BroadloomDataSource
from broadloom.pipeline.spark_source.dedup_stamp import DedupStamp, DuplicateFilter, add_stamp, origin_of, split_stamp
from broadloom.pipeline.spark_source.options import SourceOptionError, SourceOptions
from broadloom.pipeline.spark_source.recording_process import LiveRecordingError, RecordingProcess
from broadloom.pipeline.spark_source.sink import NoGroupMembersError, write_rows
from broadloom.protocol import Tuning
from broadloom.record import read
from broadloom.record.arrow_import import pa
from tests.pipeline.growing import TIMEOUT_S
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SOON = broadloom.groups.GroupSettings(
    reply_window_s=0.2, page_timeout_s=0.4, presence_interval_s=0.5, suspicion_timeout_s=0.4, parent_request_delay_s=0.2
)
QUICK = Tuning(discovery_retry_s=0.1, leave_linger_s=0.05)


@pytest.fixture(scope="module", autouse=True)
def broadloom_format(spark):
    register(spark)


@pytest.fixture
def name() -> str:
    return f"test/{uuid4().hex}"


class ListeningPeer:
    """Somebody on the channel who hears everything."""

    def __init__(self, channel: broadloom.sync.Channel) -> None:
        self.channel = channel
        self.received: list[bytes] = []
        channel.on_message(lambda message: self.received.append(message.data))


@contextmanager
def member(name: str) -> Iterator[ListeningPeer]:
    with broadloom.sync.connect(name, tls=False, settings=QUICK) as channel:
        yield ListeningPeer(channel)


class CollectedBatches:
    """What came out of a stream, by batch. A batch may come again after a restart, and has to be the same then."""

    def __init__(self) -> None:
        self._batches: dict[int, list[bytes]] = {}

    def on_batch(self, frame: "DataFrame", batch: int) -> None:
        payloads = frame.toArrow()["payload"].to_pylist()
        assert self._batches.setdefault(batch, payloads) == payloads

    @property
    def payloads(self) -> list[bytes]:
        return [payload for _, payloads in sorted(self._batches.items()) for payload in payloads]


@contextmanager
def following(spark, name: str, place: Path, kept: CollectedBatches) -> Iterator[None]:
    """A stream of the channel's deliveries."""
    stream = (
        spark.readStream.format("broadloom")
        .options(channel=name, tls="false", tape=str(place / "tape"), file_duration_s="0.3")
        .load()
        .where("kind = 'delivered'")
    )
    query = (
        stream.writeStream.foreachBatch(kept.on_batch)
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    try:
        yield
        assert query.exception() is None
    finally:
        query.stop()


def test_live_stream_can_be_stopped_and_resumed(spark, name, tmp_path):
    kept = CollectedBatches()
    first = [b"first %d" % number for number in range(50)]
    with member(name) as other:
        with following(spark, name, tmp_path, kept):
            other.channel.wait_for_peers(TIMEOUT_S)
            for data in first:
                other.channel.broadcast(data)
            wait_until(lambda: len(kept.payloads) == 50, timeout_s=TIMEOUT_S)
        # It has left in good order. Its last batch may not be in the checkpoint yet: then it comes again, the same.
        wait_until(lambda: not other.channel.status().neighbors, timeout_s=TIMEOUT_S)
        with following(spark, name, tmp_path, kept):
            wait_until(lambda: other.channel.status().neighbors, timeout_s=TIMEOUT_S)
            other.channel.broadcast(b"second")
            wait_until(lambda: len(kept.payloads) > 50, timeout_s=TIMEOUT_S)
    assert kept.payloads == [*first, b"second"]
    # The tape has it all, and reads as any other.
    frame = spark.read.format("broadloom").load(str(tmp_path / "tape"))
    assert frame.where("kind = 'delivered'").count() == 51
    # The peer lives on for a moment when Spark ends the stream, and then leaves by itself.
    wait_until(lambda: read(tmp_path / "tape", kinds=["left"]).num_rows == 2, timeout_s=TIMEOUT_S)


def recording(name: str, tape: Path) -> RecordingProcess:
    return RecordingProcess(SourceOptions({"channel": name, "tls": "false", "tape": str(tape), "timeout_s": "5"}))


def test_recording_process_leaves_gracefully_when_parent_is_killed(name, tmp_path):
    """Whoever started it is killed: it hears that, leaves, and finishes its tape."""
    starter = """
import sys
from tests.pipeline.test_source_live import Path, recording
recording(sys.argv[1], Path(sys.argv[2]))
print("joined", flush=True)
sys.stdin.read()
"""
    with member(name) as other:
        command = [sys.executable, "-c", starter, name, str(tmp_path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"joined\n"
            other.channel.broadcast(b"heard")
            process.kill()
        wait_until(lambda: not other.channel.status().neighbors, timeout_s=TIMEOUT_S)
        wait_until(lambda: read(tmp_path, kinds=["left"]).num_rows == 1, timeout_s=TIMEOUT_S)
        assert read(tmp_path, kinds=["delivered"])["payload"].to_pylist() == [b"heard"]


def test_recording_error_has_the_reason(name, tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(LiveRecordingError, match="a tape cannot be written to"):
        recording(name, tmp_path / "file" / "tape")


def test_closed_channel_ends_its_recording(name, tmp_path):
    with member(name) as other:
        kept = recording(name, tmp_path)
        assert not kept.has_ended
        other.channel.close_channel()
        wait_until(lambda: kept.has_ended, timeout_s=TIMEOUT_S)
        kept.close()
    assert read(tmp_path, kinds=["joined", "left"]).num_rows == 2


def test_sink_broadcasts_every_row(spark, name):
    with member(name) as one, member(name) as other:
        frame = spark.range(200, numPartitions=2).selectExpr(
            "CAST(CONCAT('row ', id) AS STRING) AS data", "CAST(id % 3 AS INT) AS priority"
        )
        frame.write.format("broadloom").mode("append").options(channel=name, tls="false").save()
        expected = sorted(b"row %d" % number for number in range(200))
        for each in (one, other):
            wait_until(lambda: len(each.received) >= 200, timeout_s=TIMEOUT_S)  # noqa: B023
            assert sorted(each.received) == expected


def test_stamps_identify_repeated_rows(spark, name, tmp_path):
    """A batch that is said twice is told by its stamps."""
    frame = spark.range(30, numPartitions=1).selectExpr("CAST(id AS STRING) AS data")
    frame.write.parquet(str(tmp_path / "in"))
    with member(name) as one:
        for checkpoint in ("first", "second"):  # the second knows nothing of the first, and says all again
            query = (
                spark.readStream.schema("data STRING")
                .parquet(str(tmp_path / "in"))
                .writeStream.format("broadloom")
                .options(channel=name, tls="false", stamp="numbers", checkpointLocation=str(tmp_path / checkpoint))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        wait_until(lambda: len(one.received) >= 60, timeout_s=TIMEOUT_S)
        doubles = DuplicateFilter()
        kept = []
        for data in one.received:
            stamp, body = split_stamp(data)
            assert stamp is not None
            assert (stamp.origin, stamp.batch) == (origin_of("numbers"), 0)
            if not doubles.is_duplicate(stamp):
                kept.append(body)
        assert sorted(kept) == sorted(b"%d" % number for number in range(30))


def test_sink_posts_rows_in_a_group(spark, name):
    """Each task as a guest: its rows in their order, kept by the members, who stay among themselves."""
    frame = spark.range(60, numPartitions=2).selectExpr("CAST(CONCAT('row ', id) AS STRING) AS data")
    options = {"channel": name, "tls": "false", "group": "Prices", "member": "feed", "stamp": "prices"}
    with (
        broadloom.sync.connect(name, tls=False, settings=QUICK) as one,
        broadloom.sync.connect(name, tls=False, settings=QUICK) as other,
        Groups(one, "Anna", settings=SOON) as anna,
        Groups(other, "Ben", settings=SOON) as ben,
    ):
        prices = anna.create("Prices")
        heard = [prices, ben.join(ben.find("Prices", TIMEOUT_S))]
        frame.write.format("broadloom").mode("append").options(**options).save()
        for group in heard:
            wait_until(lambda: len(group.history()) == 60, timeout_s=TIMEOUT_S)  # noqa: B023
            said = group.history()
            by_author: dict[int, list[bytes]] = {}
            for message in said:
                stamp, body = split_stamp(message.data)
                assert (message.author_name, stamp and stamp.origin) == ("feed", origin_of("prices"))
                by_author.setdefault(message.author, []).append(body)
            assert sorted(by_author.values()) == [
                [b"row %d" % number for number in range(30)],
                [b"row %d" % number for number in range(30, 60)],
            ]
        assert sorted(who.name for who in prices.members()) == ["Anna", "Ben"]
        prices.leave()
        heard[1].leave()
        for called, words in (
            ("Prices", "no member of the group 'Prices' is online"),
            ("Prizes", "no group matches"),
        ):
            with pytest.raises(NoGroupMembersError, match=words):
                write_rows(iter([pa.record_batch({"data": [b"1"]})]), SourceOptions(options | {"group": called}))


@pytest.mark.parametrize("group", [{}, {"group": "Prices"}])
def test_rows_of_the_sink_pass_the_rules(name, tmp_path, group):
    path = tmp_path / "out.rules"
    path.write_text('IF { text("secret") } THEN { refuse "secret" } ELSE { redact emails }')
    options = SourceOptions({"channel": name, "tls": "false", "rules": str(path), **group})
    rows = pa.record_batch({"data": [b"ask a@b.example", b"secret", b"not reached"]})
    with broadloom.sync.connect(name, tls=False, settings=QUICK) as one, Groups(one, "Anna", settings=SOON) as anna:
        prices = anna.create("Prices")
        heard = ListeningPeer(one)
        with pytest.raises(NotSentError, match="secret"):
            write_rows(iter([rows]), options)
        wait_until(lambda: heard.received or prices.history(), timeout_s=TIMEOUT_S)
        arrived = [each.data for each in prices.history()] if group else heard.received
        assert arrived == [b"ask [redacted]"]


def test_sink_raises_error_without_other_peers(spark, name):
    frame = spark.range(1).selectExpr("CAST(id AS STRING) AS data")
    writer = frame.write.format("broadloom").mode("append").options(channel=name, tls="false", timeout_s="1")
    with pytest.raises(Exception, match="no other peer on this channel"):
        writer.save()


@pytest.mark.parametrize(
    ("columns", "mode", "words"),
    [
        ("id", "append", "needs a column 'data'"),
        ("CAST(id AS STRING) AS data, 'x' AS `group`", "append", "column 'group' cannot be broadcast"),
        ("id AS data", "append", "cannot be of type bigint"),
        ("CAST(id AS STRING) AS data", "overwrite", "cannot be overwritten"),
        ("CAST(id AS STRING) AS data, 1 AS ttl_s", "append", "messages of a group do not expire"),
    ],
)
def test_sink_rejects_invalid_dataframes(spark, name, columns, mode, words):
    frame = spark.range(1).selectExpr(*columns.split(", "))
    options = {"group": "Prices"} if "ttl_s" in columns else {}
    source = BroadloomDataSource({"channel": name, "tls": "false", **options})
    with pytest.raises(SourceOptionError, match=words):
        source.writer(frame.schema, overwrite=mode == "overwrite")


def test_spark_shows_why_the_sink_rejects_a_dataframe(spark, name):
    with pytest.raises(Exception, match="needs a column 'data'"):
        spark.range(1).write.format("broadloom").mode("append").options(channel=name, tls="false").save()


def test_stamp_roundtrips_and_filter_detects_duplicates():
    stamp = DedupStamp(origin_of("a"), 3, 1, 99)
    assert split_stamp(add_stamp(stamp, b"data")) == (stamp, b"data")
    assert split_stamp(b"data") == (None, b"data")
    doubles = DuplicateFilter()
    assert [doubles.is_duplicate(stamp._replace(row=row)) for row in (0, 1, 0, 1, 2)] == [
        False,
        False,
        True,
        True,
        False,
    ]
