"""Reading: selection of rows and columns, summaries, and errors that name the damaged file."""

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from broadloom.protocol import ChannelName
from broadloom.protocol.events import Batch, Message
from broadloom.record import SCHEMA, ChannelSummary, EventKind, TapeReadError, read, summarize
from broadloom.record.arrow_import import pa, pq
from broadloom.record.schema import VERSION_KEY, file_schema
from tests.record.tape_kit import (
    CHANNEL,
    DAY,
    FOLDER,
    ME,
    NOON,
    OTHER,
    ManualClock,
    finished_files,
    make_tape,
    rows,
    send,
)

OTHER_CHANNEL = ChannelName("test", "other")


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    """Two channels, two days, two peers."""
    clock = ManualClock()
    with make_tape(tmp_path, clock) as tape:
        send(tape.observer(CHANNEL, ME), 3)
        tape.observer(CHANNEL, OTHER).delivered(Batch.from_message(Message(ME, 1, b"data", 1)))
        send(tape.observer(OTHER_CHANNEL, ME), 2)
        clock.now += 86_400
        send(tape.observer(CHANNEL, ME), 2, first=4)
    return tmp_path


def test_read_returns_selected_rows(tape: Path) -> None:
    assert rows(tape, "sequence", channel=CHANNEL, kinds=[EventKind.SENT]) == [1, 2, 3, 4, 5]
    assert rows(tape, "sequence", channel=FOLDER.removeprefix("channel="), day=date(2027, 1, 16)) == [4, 5]
    assert rows(tape, "kind", "hops", kinds=["delivered"]) == [("delivered", 1)]
    assert rows(tape, "event_date", channel=OTHER_CHANNEL) == [date.fromisoformat(DAY)] * 2
    assert read(tape).num_rows == 8
    assert read(tape).schema.names == [*SCHEMA.names, "channel", "event_date"]
    assert read(tape, channel=ChannelName("no", "such")).num_rows == 0


def test_read_rejects_invalid_arguments(tape: Path) -> None:
    with pytest.raises(ValueError, match="no column 'color'"):
        read(tape, columns=["color"])
    with pytest.raises(ValueError, match="'eaten' is not a valid EventKind"):
        read(tape, kinds=["eaten"])
    with pytest.raises(FileNotFoundError, match="no tape"):
        read(tape / "nowhere")


def test_summary_counts_channels_and_rows(tape: Path) -> None:
    summaries = {each.channel: each for each in summarize(tape)}
    first = datetime.fromtimestamp(NOON, UTC)
    last = datetime.fromtimestamp(NOON + 86_400, UTC)
    assert set(summaries) == {CHANNEL.id.hex()[:16], OTHER_CHANNEL.id.hex()[:16]}
    mine = summaries[CHANNEL.id.hex()[:16]]
    assert (mine.files, mine.rows, mine.dropped_rows) == (2, 6, 0)
    assert mine.kinds == {"sent": 5, "delivered": 1}
    assert mine.peers == {f"{ME:016x}", f"{OTHER:016x}"}
    assert (mine.start_time, mine.end_time) == (first, last)
    assert sum(each.bytes for each in summaries.values()) == sum(path.stat().st_size for path in finished_files(tape))


def test_summary_reports_dropped_rows(tmp_path: Path) -> None:
    clock = ManualClock()
    with make_tape(tmp_path, clock, queue_rows_max=5) as tape:
        clock.hold()
        send(tape.observer(CHANNEL, ME), 9)
        clock.release()
    (summary,) = summarize(tmp_path)
    assert isinstance(summary, ChannelSummary)
    assert (summary.dropped_rows, summary.rows, summary.kinds["rows_dropped"], len(summary.peers)) == (4, 6, 1, 1)


@pytest.mark.parametrize("harm", ["cut", "changed", "empty", "not parquet"])
def test_damaged_file_is_named_in_error(tape: Path, harm: str) -> None:
    path = finished_files(tape)[0]
    data = path.read_bytes()
    if harm == "changed":
        with pq.ParquetFile(path) as file:
            chunk = file.metadata.row_group(0).column(SCHEMA.names.index("kind"))
        last = chunk.dictionary_page_offset + chunk.total_compressed_size - 1
        data = data[:last] + bytes([data[last] ^ 1]) + data[last + 1 :]
    path.write_bytes({"cut": data[: len(data) // 2], "changed": data, "empty": b"", "not parquet": b"text"}[harm])
    for reading in (read, summarize):
        with pytest.raises(TapeReadError, match="cannot be read") as caught:
            reading(tape)
        assert caught.value.path == path
        assert str(path) in str(caught.value)


def test_foreign_file_is_named_in_error(tape: Path) -> None:
    path = finished_files(tape)[0]
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(TapeReadError, match="not a tape"):
        read(tape)
    newer = file_schema("ab", "run").with_metadata({VERSION_KEY: b"999"})
    pq.write_table(newer.empty_table(), path)
    with pytest.raises(TapeReadError, match="schema version 999"):
        read(tape)


def test_folder_that_is_no_date_is_named_in_error(tape: Path) -> None:
    path = finished_files(tape)[0]
    place = path.parent.with_name("event_date=doomsday")
    place.mkdir()
    path.rename(place / path.name)
    with pytest.raises(TapeReadError, match="'doomsday' is not a day"):
        read(tape)


def test_columns_missing_in_older_version_are_null(tape: Path) -> None:
    path = finished_files(tape)[0]
    older = pq.read_table(path, partitioning=None).drop_columns(["topic"])
    pq.write_table(older, path)
    assert set(rows(tape, "topic")) == {None}
