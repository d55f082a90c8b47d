"""A channel as a sink: each row of a DataFrame is broadcast.

Columns: `data` (binary or text), and optionally `priority` (integer; null: normal) and `ttl_s`. Each task joins as a
peer, waits for other peers, broadcasts its rows in order, and leaves gracefully: when a task succeeds, each of its
messages has reached a neighbor that relays it.

With the option `group` the rows are posted in that group. Each task is a `broadloom.groups.GroupPublisher`: an author
that is not listed as a member and fetches no history. A member of the group must be online, because members keep the
history.

Delivery is **at least once**: a retried task broadcasts its rows again. With the option `stamp` each message carries a
stamp (`dedup_stamp.py`) by which receivers recognize repeated rows; that makes it exactly once, provided that a retried
batch has the same rows in the same partitions and order, as batches of a tape do.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

import broadloom.rules
import broadloom.sync
from broadloom.channel.outgoing import Way
from broadloom.errors import BroadloomError
from broadloom.groups import LAYER, GroupNotFoundError, GroupPublisher
from broadloom.groups.sync import Groups
from broadloom.pipeline.spark_source.dedup_stamp import DedupStamp, add_stamp, origin_of
from broadloom.pipeline.spark_source.options import CONNECT_TIMEOUT_S, DEFAULT_MEMBER, SourceOptionError, SourceOptions
from broadloom.record.arrow_import import pa
from broadloom.sync.bridge import run
from broadloom.wire.broadcast_frame import Priority
from broadloom.wire.payload_kind import layer_kind

NO_BATCH = -1

_INTEGER_TYPES = (ByteType, ShortType, IntegerType, LongType)
_COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "data": (BinaryType, StringType),
    "priority": _INTEGER_TYPES,
    "ttl_s": (*_INTEGER_TYPES, FloatType, DoubleType),
}


class NoPeersError(BroadloomError):
    """No other peer is on the channel, so messages would be lost."""


class NoGroupMembersError(BroadloomError):
    """The group is unknown, or none of its members is online to keep the messages."""


class MissingDataColumnError(BroadloomError):
    """A row has no data."""


@dataclass
class RowsWritten(WriterCommitMessage):
    rows: int


def check_schema(schema: StructType) -> None:
    """Raise unless these columns can be broadcast."""
    if "data" not in schema.fieldNames():
        raise SourceOptionError("the DataFrame needs a column 'data', binary or text")
    for field in schema.fields:
        if field.name not in _COLUMNS:
            raise SourceOptionError(
                f"column {field.name!r} cannot be broadcast; put it into 'data', or drop it; "
                f"columns: {', '.join(_COLUMNS)}"
            )
        if not isinstance(field.dataType, _COLUMNS[field.name]):
            raise SourceOptionError(f"column {field.name!r} cannot be of type {field.dataType.simpleString()}")


def check_options(options: SourceOptions, schema: StructType) -> None:
    options.text("channel")
    check_schema(schema)
    if options.get("group") is None and options.get("member") is not None:
        raise SourceOptionError("option 'member' is a name in a group; set the option 'group' too")
    if options.get("group") is not None and "ttl_s" in schema.fieldNames():
        raise SourceOptionError("messages of a group do not expire; drop the column 'ttl_s', or the option 'group'")


def write_rows(batches: Iterator[pa.RecordBatch], options: SourceOptions) -> RowsWritten:
    """Runs in a task. Joins only if there are rows."""
    context = TaskContext.get()
    batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    number, partition = int(batch or NO_BATCH), context.partitionId() if context is not None else 0
    name = options.get("stamp")
    origin = origin_of(name) if name is not None else None
    channel: broadloom.sync.Channel | None = None
    publisher: GroupPublisher | None = None
    row = 0
    try:
        for each in batches:
            for data, priority, ttl_s in _rows(each):
                if channel is None:
                    channel = _connect(options)
                    publisher = _publisher(channel, options)
                if data is None:
                    raise MissingDataColumnError(
                        f"row {row} of partition {partition} has no data; filter such rows out"
                    )
                if origin is not None:
                    data = add_stamp(DedupStamp(origin, number, partition, row), data)
                priority = Priority.NORMAL if priority is None else priority
                if publisher is not None:
                    _post(channel, publisher, options.text("group"), data, priority)
                else:
                    channel.broadcast(data, priority=priority, ttl_s=ttl_s)
                row += 1
    finally:
        if channel is not None:
            channel.leave()
    return RowsWritten(row)


def _post(channel: broadloom.sync.Channel, publisher: GroupPublisher, group: str, data: bytes, priority: int) -> None:
    """The rules see the row, not the message of the group that it becomes."""
    twin = channel._wrapped
    data = run(twin._filter_content(data, Way.POST, group, LAYER))
    run(twin._broadcast_unfiltered(publisher.encode_post(data), layer_kind(LAYER), priority, None))


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[bytes | None, int | None, float | None]]:
    """Columns become rows here: each message is one call."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    data = columns["data"].cast(pa.binary()).to_pylist()
    nothing: list[None] = [None] * len(data)
    priority = columns["priority"].to_pylist() if "priority" in columns else nothing
    ttl_s = columns["ttl_s"].to_pylist() if "ttl_s" in columns else nothing
    return zip(data, priority, ttl_s, strict=True)


def _connect(options: SourceOptions) -> broadloom.sync.Channel:
    name = options.text("channel")
    path = options.get("rules")
    rules = broadloom.rules.load(path) if path is not None else None
    channel = broadloom.sync.connect(name, rules=rules, **options.connect_kwargs())
    channel.on_batch(lambda _batch: None)  # discard incoming messages
    timeout_s = options.number("timeout_s", CONNECT_TIMEOUT_S)
    try:
        channel.wait_for_peers(timeout_s)
    except TimeoutError:
        channel.leave()
        raise NoPeersError(
            f"{name}: no other peer on this channel after {timeout_s:g} s, so nothing was broadcast. Check the name, "
            "the key and the bootstrap hosts"
        ) from None
    except BaseException:
        channel.leave()
        raise
    return channel


def _publisher(channel: broadloom.sync.Channel, options: SourceOptions) -> GroupPublisher | None:
    """Find the group; that needs no membership."""
    called = options.get("group")
    if called is None:
        return None
    name = options.text("member", DEFAULT_MEMBER)
    with Groups(channel, name) as here:
        try:
            group = here.find(called)
        except GroupNotFoundError as problem:
            raise NoGroupMembersError(f"{channel.name}: {problem}; nothing was posted") from None
    if not group.online_count:
        raise NoGroupMembersError(f"{channel.name}: no member of the group {called!r} is online, so nothing was posted")
    channel.on_batch(lambda _batch: None)
    return GroupPublisher(group.id, name)


class ChannelWriter(DataSourceArrowWriter):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_options(options, schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(iterator, self._options)


class ChannelStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_options(options, schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(iterator, self._options)
