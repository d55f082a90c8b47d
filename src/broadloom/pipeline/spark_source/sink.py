"""A channel as a sink: each row of a DataFrame is broadcast.

Columns: `data` (binary or text), and if they are there `priority` (whole number; null: normal) and `lifetime_s`.
Each task joins as a peer, waits for company, says its rows in their order, and leaves in good order: when a task has
ended well, each of its messages is with a neighbour that goes on spreading it.

With the option `group` the rows are messages of that group, each task a guest there
(`broadloom.groups.GroupPublisher`): an author of its own, that is in no list of members and fetches no history.
Somebody of the group has to be there, since it is the members who keep what is said.

What is promised is **at least once**: a task that is repeated says its rows again. With the option `stamp` each message
carries what tells doubles (`stamp.py`); then it is exactly once for whoever looks at it, provided that the rows of a
batch come in the same partitions and order when it is repeated, as those of a tape do.
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

import broadloom.sync
from broadloom.errors import BroadloomError
from broadloom.groups import GroupNotFoundError, GroupPublisher
from broadloom.groups.sync import Groups
from broadloom.pipeline.spark_source.dedup_stamp import DedupStamp, add_stamp, origin_of
from broadloom.pipeline.spark_source.options import CONNECT_TIMEOUT_S, DEFAULT_MEMBER, SourceOptionError, SourceOptions
from broadloom.record.arrow_import import pa
from broadloom.wire.broadcast_frame import Priority

NO_BATCH = -1

_INTEGER_TYPES = (ByteType, ShortType, IntegerType, LongType)
_COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "data": (BinaryType, StringType),
    "priority": _INTEGER_TYPES,
    "lifetime_s": (*_INTEGER_TYPES, FloatType, DoubleType),
}


class NoPeersError(BroadloomError):
    """Nobody else is on the channel, so what would be said would be lost."""


class NoGroupMembersError(BroadloomError):
    """The group is not known on the channel, or nobody of it is there, so nobody would keep what would be said."""


class MissingDataColumnError(BroadloomError):
    """A row without a message."""


@dataclass
class RowsWritten(WriterCommitMessage):
    rows: int


def check_schema(schema: StructType) -> None:
    """Whether these columns can be said."""
    if "data" not in schema.fieldNames():
        raise SourceOptionError("a DataFrame that is broadcast needs a column 'data', binary or text")
    for field in schema.fields:
        if field.name not in _COLUMNS:
            raise SourceOptionError(
                f"the column {field.name!r} cannot be broadcast and would be lost: put it into 'data', or drop it; "
                f"there are: {', '.join(_COLUMNS)}"
            )
        if not isinstance(field.dataType, _COLUMNS[field.name]):
            raise SourceOptionError(f"the column {field.name!r} cannot be of type {field.dataType.simpleString()}")


def check_options(options: SourceOptions, schema: StructType) -> None:
    options.text("channel")
    check_schema(schema)
    if options.get("group") is None and options.get("member") is not None:
        raise SourceOptionError("the option 'member' is a name in a group: give the option 'group' too")
    if options.get("group") is not None and "lifetime_s" in schema.fieldNames():
        raise SourceOptionError("a group keeps its messages: drop the column 'lifetime_s', or the option 'group'")


def write_rows(batches: Iterator[pa.RecordBatch], options: SourceOptions) -> RowsWritten:
    """Runs in a task. Joins only if there is something to say."""
    context = TaskContext.get()
    batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    number, partition = int(batch or NO_BATCH), context.partitionId() if context is not None else 0
    name = options.get("stamp")
    origin = origin_of(name) if name is not None else None
    channel: broadloom.sync.Channel | None = None
    guest: GroupPublisher | None = None
    row = 0
    try:
        for each in batches:
            for data, priority, lifetime_s in _rows(each):
                if channel is None:
                    channel = _connect(options)
                    guest = _guest(channel, options)
                if data is None:
                    raise MissingDataColumnError(f"row {row} of partition {partition} has no data; leave such rows out")
                if origin is not None:
                    data = add_stamp(DedupStamp(origin, number, partition, row), data)
                if guest is not None:
                    data = guest.encode_post(data)
                channel.broadcast(data, priority=Priority.NORMAL if priority is None else priority, ttl_s=lifetime_s)
                row += 1
    finally:
        if channel is not None:
            channel.leave()
    return RowsWritten(row)


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[bytes | None, int | None, float | None]]:
    """A message is one call to the channel, so here columns become rows at last."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    data = columns["data"].cast(pa.binary()).to_pylist()
    nothing: list[None] = [None] * len(data)
    priority = columns["priority"].to_pylist() if "priority" in columns else nothing
    lifetime_s = columns["lifetime_s"].to_pylist() if "lifetime_s" in columns else nothing
    return zip(data, priority, lifetime_s, strict=True)


def _connect(options: SourceOptions) -> broadloom.sync.Channel:
    name = options.text("channel")
    channel = broadloom.sync.connect(name, **options.connect_kwargs())
    channel.on_batch(lambda _batch: None)  # what others say is not read here, and must not pile up
    timeout_s = options.number("timeout_s", CONNECT_TIMEOUT_S)
    try:
        channel.wait_for_peers(timeout_s)
    except TimeoutError:
        channel.leave()
        raise NoPeersError(
            f"{name}: nobody else is on this channel (waited {timeout_s:g} s), so nothing was said. Is the name right, "
            "and are key and portal those of the others?"
        ) from None
    except BaseException:
        channel.leave()
        raise
    return channel


def _guest(channel: broadloom.sync.Channel, options: SourceOptions) -> GroupPublisher | None:
    """Find the group, by asking as anybody who arrives does; that needs no membership."""
    called = options.get("group")
    if called is None:
        return None
    name = options.text("member", DEFAULT_MEMBER)
    with Groups(channel, name) as here:
        try:
            group = here.find(called)
        except GroupNotFoundError as problem:
            raise NoGroupMembersError(f"{channel.name}: {problem}; nothing was said") from None
    if not group.online_count:
        raise NoGroupMembersError(f"{channel.name}: nobody of the group {called!r} is there, so nothing was said")
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
