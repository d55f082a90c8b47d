"""A live channel as a stream, and as a sink: real peers on real sockets."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

import weft.blocking
import weft.groups
from tests.pipeline.growing import WITHIN_S, eventually
from weft.pipeline.source import register
from weft.pipeline.source.options import Options
from weft.pipeline.source.recording import CannotRecord, Recording
from weft.pipeline.source.sink import NobodyInGroup, say
from weft.pipeline.source.stamp import Doubles, Stamp, origin_of, stamped, unstamped
from weft.record import read
from weft.record.arrow import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SOON = weft.groups.Settings(answer_s=0.2, hold_s=0.4, presence_s=0.5, suspect_s=0.4, ask_after_s=0.2)
QUICK = weft.Settings(seek_wait_s=0.1, linger_s=0.05)


@pytest.fixture(scope="module", autouse=True)
def weft_format(spark):
    register(spark)


@pytest.fixture
def name() -> str:
    return f"test/{uuid4().hex}"


class Member:
    """Somebody on the channel who hears everything."""

    def __init__(self, channel: weft.blocking.Channel) -> None:
        self.channel = channel
        self.heard: list[bytes] = []
        channel.on_message(lambda message: self.heard.append(message.data))


@contextmanager
def member(name: str) -> Iterator[Member]:
    with weft.blocking.connect(name, plain=True, settings=QUICK) as channel:
        yield Member(channel)


class Kept:
    """What came out of a stream, by batch. A batch may come again after a restart, and has to be the same then."""

    def __init__(self) -> None:
        self._batches: dict[int, list[bytes]] = {}

    def take(self, frame: "DataFrame", batch: int) -> None:
        payloads = frame.toArrow()["payload"].to_pylist()
        assert self._batches.setdefault(batch, payloads) == payloads

    @property
    def payloads(self) -> list[bytes]:
        return [payload for _, payloads in sorted(self._batches.items()) for payload in payloads]


@contextmanager
def following(spark, name: str, place: Path, kept: Kept) -> Iterator[None]:
    """A stream of the channel's deliveries."""
    stream = (
        spark.readStream.format("weft")
        .options(channel=name, plain="true", tape=str(place / "tape"), file_s="0.3")
        .load()
        .where("kind = 'delivered'")
    )
    query = (
        stream.writeStream.foreachBatch(kept.take)
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    try:
        yield
        assert query.exception() is None
    finally:
        query.stop()


def test_a_live_channel_is_a_stream_that_can_be_stopped_and_started(spark, name, tmp_path):
    kept = Kept()
    first = [b"first %d" % number for number in range(50)]
    with member(name) as other:
        with following(spark, name, tmp_path, kept):
            other.channel.company(WITHIN_S)
            for data in first:
                other.channel.broadcast(data)
            eventually(lambda: len(kept.payloads) == 50)
        # It has left in good order. Its last batch may not be in the checkpoint yet: then it comes again, the same.
        eventually(lambda: not other.channel.status().neighbours)
        with following(spark, name, tmp_path, kept):
            eventually(lambda: other.channel.status().neighbours)
            other.channel.broadcast(b"second")
            eventually(lambda: len(kept.payloads) > 50)
    assert kept.payloads == [*first, b"second"]
    # The tape has it all, and reads as any other.
    frame = spark.read.format("weft").load(str(tmp_path / "tape"))
    assert frame.where("kind = 'delivered'").count() == 51
    # The peer lives on for a moment when Spark ends the stream, and then leaves by itself.
    eventually(lambda: read(tmp_path / "tape", kinds=["left"]).num_rows == 2)


def recording(name: str, tape: Path) -> Recording:
    return Recording(Options({"channel": name, "plain": "true", "tape": str(tape), "timeout_s": "5"}))


def test_a_recording_outlives_a_kill_and_leaves_in_good_order(name, tmp_path):
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
        eventually(lambda: not other.channel.status().neighbours)
        eventually(lambda: read(tmp_path, kinds=["left"]).num_rows == 1)
        assert read(tmp_path, kinds=["delivered"])["payload"].to_pylist() == [b"heard"]


def test_a_channel_that_cannot_be_recorded_says_why(name, tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(CannotRecord, match="a tape cannot be written to"):
        recording(name, tmp_path / "file" / "tape")


def test_a_channel_that_is_closed_for_all_ends_its_recording(name, tmp_path):
    with member(name) as other:
        kept = recording(name, tmp_path)
        assert not kept.is_over
        other.channel.shut_down()
        eventually(lambda: kept.is_over)
        kept.close()
    assert read(tmp_path, kinds=["joined", "left"]).num_rows == 2


def test_a_frame_is_broadcast(spark, name):
    with member(name) as one, member(name) as other:
        frame = spark.range(200, numPartitions=2).selectExpr(
            "CAST(CONCAT('row ', id) AS STRING) AS data", "CAST(id % 3 AS INT) AS priority"
        )
        frame.write.format("weft").mode("append").options(channel=name, plain="true").save()
        expected = sorted(b"row %d" % number for number in range(200))
        for each in (one, other):
            eventually(lambda: len(each.heard) >= 200)  # noqa: B023
            assert sorted(each.heard) == expected


def test_a_stream_is_broadcast_with_stamps(spark, name, tmp_path):
    """A batch that is said twice is told by its stamps."""
    frame = spark.range(30, numPartitions=1).selectExpr("CAST(id AS STRING) AS data")
    frame.write.parquet(str(tmp_path / "in"))
    with member(name) as one:
        for checkpoint in ("first", "second"):  # the second knows nothing of the first, and says all again
            query = (
                spark.readStream.schema("data STRING")
                .parquet(str(tmp_path / "in"))
                .writeStream.format("weft")
                .options(channel=name, plain="true", stamp="numbers", checkpointLocation=str(tmp_path / checkpoint))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        eventually(lambda: len(one.heard) >= 60)
        doubles = Doubles()
        kept = []
        for data in one.heard:
            stamp, body = unstamped(data)
            assert stamp is not None
            assert (stamp.origin, stamp.batch) == (origin_of("numbers"), 0)
            if not doubles.is_double(stamp):
                kept.append(body)
        assert sorted(kept) == sorted(b"%d" % number for number in range(30))


def test_a_frame_is_said_in_a_group(spark, name):
    """Each task as a guest: its rows in their order, kept by the members, who stay among themselves."""
    frame = spark.range(60, numPartitions=2).selectExpr("CAST(CONCAT('row ', id) AS STRING) AS data")
    options = {"channel": name, "plain": "true", "group": "Prices", "member": "feed", "stamp": "prices"}
    with (
        weft.blocking.connect(name, plain=True, settings=QUICK) as one,
        weft.blocking.connect(name, plain=True, settings=QUICK) as other,
        one.groups("Anna", settings=SOON) as anna,
        other.groups("Ben", settings=SOON) as ben,
    ):
        prices = anna.create("Prices")
        heard = [prices, ben.join(ben.find("Prices", WITHIN_S))]
        frame.write.format("weft").mode("append").options(**options).save()
        for group in heard:
            eventually(lambda: len(group.history()) == 60)  # noqa: B023
            said = group.history()
            by_author: dict[int, list[bytes]] = {}
            for message in said:
                stamp, body = unstamped(message.data)
                assert (message.name, stamp and stamp.origin) == ("feed", origin_of("prices"))
                by_author.setdefault(message.author, []).append(body)
            assert sorted(by_author.values()) == [
                [b"row %d" % number for number in range(30)],
                [b"row %d" % number for number in range(30, 60)],
            ]
        assert sorted(who.name for who in prices.members()) == ["Anna", "Ben"]
        prices.leave()
        heard[1].leave()
        for called, words in (("Prices", "nobody of the group 'Prices' is there"), ("Prizes", "no group is called")):
            with pytest.raises(NobodyInGroup, match=words):
                say(iter([pa.record_batch({"data": [b"1"]})]), Options(options | {"group": called}))


def test_nobody_there_is_an_error_and_no_success(spark, name):
    frame = spark.range(1).selectExpr("CAST(id AS STRING) AS data")
    writer = frame.write.format("weft").mode("append").options(channel=name, plain="true", timeout_s="3")
    with pytest.raises(Exception, match="nobody else is on this channel"):
        writer.save()


@pytest.mark.parametrize(
    ("columns", "mode", "words"),
    [
        ("id", "append", "needs a column 'data'"),
        ("CAST(id AS STRING) AS data, 'x' AS `group`", "append", "the column 'group' cannot be broadcast"),
        ("id AS data", "append", "cannot be of type bigint"),
        ("CAST(id AS STRING) AS data", "overwrite", "cannot be overwritten"),
        ("CAST(id AS STRING) AS data, 1 AS lifetime_s", "append", "a group keeps its messages"),
    ],
)
def test_a_frame_that_cannot_be_said_is_refused(spark, name, columns, mode, words):
    frame = spark.range(1).selectExpr(*columns.split(", "))
    options = {"group": "Prices"} if "lifetime_s" in columns else {}
    with pytest.raises(Exception, match=words):
        frame.write.format("weft").mode(mode).options(channel=name, plain="true", **options).save()


def test_a_stamp_is_found_again():
    stamp = Stamp(origin_of("a"), 3, 1, 99)
    assert unstamped(stamped(stamp, b"data")) == (stamp, b"data")
    assert unstamped(b"data") == (None, b"data")
    doubles = Doubles()
    assert [doubles.is_double(stamp._replace(row=row)) for row in (0, 1, 0, 1, 2)] == [False, False, True, True, False]
