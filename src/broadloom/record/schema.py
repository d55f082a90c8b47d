"""The schema of a tape: event kinds and columns with their descriptions. The contract with readers; see docs/tape.md.

One schema serves all kinds. Its version increases with every change: a column never changes its meaning, and new
columns are nullable and added at the end.

Types are chosen for Spark: timestamps are microseconds in UTC, integers are signed, and peer ids are text of 16
hexadecimal digits.
"""

from dataclasses import dataclass
from enum import StrEnum

from broadloom.record.arrow_import import pa

SCHEMA_VERSION = 3
"""Written into each file. A reader refuses newer versions, and reads columns that an older version lacks as null."""

OLDEST_VERSION = 3
"""Earlier versions had other column names and are not read."""

VERSION_KEY = b"broadloom.schema"
CHANNEL_KEY = b"broadloom.channel"
RUN_KEY = b"broadloom.run"
"""Keys of the file metadata. The channel is identified by its id only: the name may be secret."""

CHANNEL_DIGITS = 16
"""Hexadecimal digits of the channel id in its folder name."""

INT64_MAX = (1 << 63) - 1


class EventKind(StrEnum):
    """Each event is what one peer observed itself."""

    JOINED = "joined"
    LEAVING = "leaving"
    LEFT = "left"
    LINK_UP = "link_up"
    LINK_DOWN = "link_down"
    SENT = "sent"
    RECEIVED = "received"
    DUPLICATES = "duplicates"
    DELIVERED = "delivered"
    MISSED = "missed"
    IDENTIFICATION = "identification"
    AD_IMPRESSION = "ad_impression"
    ROWS_DROPPED = "rows_dropped"


EVENT_KINDS: dict[EventKind, str] = {
    EventKind.JOINED: "The peer became a full member: from here on every message is due to it.",
    EventKind.LEAVING: "The peer began to leave: from here on nothing is due, though more may be delivered.",
    EventKind.LEFT: "The peer left gracefully. A crashed peer has no such row.",
    EventKind.LINK_UP: "A link to `neighbor` came up.",
    EventKind.LINK_DOWN: "A link to `neighbor` ended; see `reason`.",
    EventKind.SENT: "The peer broadcast a message.",
    EventKind.RECEIVED: "The first copy of a message arrived from `neighbor` after `hops` links.",
    EventKind.DUPLICATES: "`event_count` further copies of messages arrived since the last such row.",
    EventKind.DELIVERED: "A message was delivered to the application; the rows are in the order of delivery.",
    EventKind.MISSED: "Messages `sequence` to `last_sequence` of `author` were reported to the application as missed.",
    EventKind.IDENTIFICATION: "The subscriber `name`, as peer `author`, identified itself.",
    EventKind.AD_IMPRESSION: "The ad `name` was shown at the peer.",
    EventKind.ROWS_DROPPED: (
        "The recorder dropped `event_count` rows of this run, of any kind and peer, from `event_time` to `end_time`."
    ),
}

ID = pa.string()
TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class TapeColumn:
    name: str
    type: pa.DataType
    spark_type: str
    """The type in Spark SQL."""
    description: str
    is_required: bool = False
    """Never null."""
    since_version: int = OLDEST_VERSION
    """The first version of the schema that has it."""


COLUMNS: tuple[TapeColumn, ...] = (
    TapeColumn("ordinal", pa.int64(), "BIGINT", "Order of events within a run, also at equal times.", is_required=True),
    TapeColumn("run_id", pa.string(), "STRING", "Recording process that wrote the row.", is_required=True),
    TapeColumn("kind", pa.string(), "STRING", "Kind of event.", is_required=True),
    TapeColumn(
        "event_time",
        TIME,
        "TIMESTAMP",
        "Time of the event, by the clock of the run; of `rows_dropped`, of the first row.",
        is_required=True,
    ),
    TapeColumn("end_time", TIME, "TIMESTAMP", "Of `rows_dropped`: time of the last row."),
    TapeColumn("peer", ID, "STRING", "Peer that recorded the event; null for `rows_dropped`, which is about the run."),
    TapeColumn("author", ID, "STRING", "Author of the message, or peer that identified itself."),
    TapeColumn(
        "sequence", pa.int64(), "BIGINT", "Sequence number of the message, per author; the first one of `missed`."
    ),
    TapeColumn("last_sequence", pa.int64(), "BIGINT", "Last sequence number of `missed`."),
    TapeColumn("hops", pa.int64(), "BIGINT", "Links that the message traveled."),
    TapeColumn("neighbor", ID, "STRING", "Other end of the link."),
    TapeColumn("address", pa.string(), "STRING", "Address of the neighbor: host:port."),
    TapeColumn("reason", pa.string(), "STRING", "Why the link ended."),
    TapeColumn("event_count", pa.int64(), "BIGINT", "Number of duplicates, or of dropped rows."),
    TapeColumn("size_bytes", pa.int64(), "BIGINT", "Size of the payload."),
    TapeColumn("name", pa.string(), "STRING", "Name of the subscriber or ad; of the peer itself in `joined`."),
    TapeColumn("group_id", pa.string(), "STRING", "Group of the message or ad."),
    TapeColumn("parent_author", ID, "STRING", "Author of the message this one replies to; null for group messages."),
    TapeColumn("parent_sequence", pa.int64(), "BIGINT", "Sequence number of the message this one replies to."),
    TapeColumn("topic", pa.string(), "STRING", "Topic of the message or ad."),
    TapeColumn("payload", pa.binary(), "BINARY", "The message itself, in `sent` and `delivered`; only on request."),
    TapeColumn("member", ID, "STRING", "Group member that posted it; stays the same when the member reconnects."),
    TapeColumn("member_sequence", pa.int64(), "BIGINT", "Sequence number of the member's message in the group."),
    TapeColumn("parent_member", ID, "STRING", "Member that posted the message this one replies to, in the same group."),
    TapeColumn("parent_member_sequence", pa.int64(), "BIGINT", "Sequence number of that member's message."),
)

SCHEMA: pa.Schema = pa.schema(
    [
        pa.field(each.name, each.type, nullable=not each.is_required, metadata={"about": each.description})
        for each in COLUMNS
    ]
)


def columns_in_version(version: int) -> list[TapeColumn]:
    """The columns of a file of this version."""
    return [each for each in COLUMNS if each.since_version <= max(version, OLDEST_VERSION)]


def file_schema(channel: str, run_id: str) -> pa.Schema:
    """The schema of a file, with version, channel id and run as metadata."""
    return SCHEMA.with_metadata({VERSION_KEY: str(SCHEMA_VERSION), CHANNEL_KEY: channel, RUN_KEY: run_id})


def spark_ddl() -> str:
    """The schema for `spark.read.schema(...)`, including partition columns.

    Always pass it: otherwise Spark infers the type of `channel` from its digits, sometimes as a number.
    """
    columns = [f"`{each.name}` {each.spark_type}" for each in COLUMNS]
    return ", ".join([*columns, "`channel` STRING", "`event_date` DATE"])
