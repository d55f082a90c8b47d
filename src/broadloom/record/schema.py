"""The schema of a tape: event kinds and columns with their descriptions. The contract with readers; see docs/tape.md.

One schema serves all kinds. Its version increases with every change: a column never changes its meaning, and new
columns are nullable and added at the end.

Types are chosen for Spark: timestamps are microseconds in UTC, integers are signed, and peer ids are text of 16
hexadecimal digits.
"""

from dataclasses import dataclass
from enum import Enum

from broadloom.record.arrow_import import pa

SCHEMA_VERSION = 2
"""Stands in each file. A reader refuses versions above its own, and takes what an older one lacks for null."""

VERSION_KEY = b"broadloom.schema"
CHANNEL_KEY = b"broadloom.channel"
RUN_KEY = b"broadloom.run"
"""Keys of the file metadata. The channel is identified by its id only: the name may be secret."""

CHANNEL_DIGITS = 16
"""Hexadecimal digits of the channel id in its folder name."""

INT64_MAX = (1 << 63) - 1


class EventKind(Enum):
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
    EventKind.JOINED: "The observer became a full member: from here on it is owed every message.",
    EventKind.LEAVING: "The observer began to leave: from here on it is owed nothing, though more may be delivered.",
    EventKind.LEFT: "The observer is gone, in good order. One that died has no such row.",
    EventKind.LINK_UP: "A link to a neighbour came up.",
    EventKind.LINK_DOWN: "A link to a neighbour ended; `why` says how.",
    EventKind.SENT: "The observer broadcast a message of its own.",
    EventKind.RECEIVED: "The first copy of a message came, from `neighbour`, after `hops` links.",
    EventKind.DUPLICATES: "`count` further copies of messages came since the last such row.",
    EventKind.DELIVERED: "The application got a message; the order of these rows is the order of delivery.",
    EventKind.MISSED: "The application was told that it will not get `sequence` to `last` of `author`.",
    EventKind.IDENTIFICATION: "The subscriber `name`, as peer `author`, said that it is here.",
    EventKind.AD_IMPRESSION: "The advert `name` was shown at the observer.",
    EventKind.ROWS_DROPPED: (
        "The recorder lost `count` rows of this run, of any kind and observer, between `time` and `until`."
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
    since_version: int = 1
    """The first version of the schema that has it."""


COLUMNS: tuple[TapeColumn, ...] = (
    TapeColumn(
        "ordinal", pa.int64(), "BIGINT", "Order of events within a run, also among equal times.", is_required=True
    ),
    TapeColumn("run", pa.string(), "STRING", "The recording process that wrote the row.", is_required=True),
    TapeColumn("kind", pa.string(), "STRING", "What happened.", is_required=True),
    TapeColumn("time", TIME, "TIMESTAMP", "When, by the observer's clock; first lost row of a gap.", is_required=True),
    TapeColumn("until", TIME, "TIMESTAMP", "Time of the last lost row of a gap."),
    TapeColumn("observer", ID, "STRING", "The peer that saw it; null for a gap, which speaks for all of the run."),
    TapeColumn("author", ID, "STRING", "Who broadcast the message, or who identified itself."),
    TapeColumn("sequence", pa.int64(), "BIGINT", "The author's running number of the message; first one of missed."),
    TapeColumn("last", pa.int64(), "BIGINT", "Last number of missed."),
    TapeColumn("hops", pa.int64(), "BIGINT", "Links that the message had travelled."),
    TapeColumn("neighbour", ID, "STRING", "Other end of the link."),
    TapeColumn("address", pa.string(), "STRING", "Where the neighbour answers: host:port."),
    TapeColumn("why", pa.string(), "STRING", "How a link ended."),
    TapeColumn("count", pa.int64(), "BIGINT", "Number of duplicates, or of rows lost in a gap."),
    TapeColumn("size", pa.int64(), "BIGINT", "Bytes of the message's payload."),
    TapeColumn("name", pa.string(), "STRING", "Of the subscriber, or of the advert; of the observer itself in joined."),
    TapeColumn("group", pa.string(), "STRING", "Group that the message or advert belongs to."),
    TapeColumn(
        "parent_author", ID, "STRING", "Author of the message that this one responds to; not for groups' messages."
    ),
    TapeColumn("parent_sequence", pa.int64(), "BIGINT", "Running number of the message that this one responds to."),
    TapeColumn("topic", pa.string(), "STRING", "What the message or advert is about."),
    TapeColumn("payload", pa.binary(), "BINARY", "The message itself, in sent and delivered; only if asked for."),
    TapeColumn(
        "member", ID, "STRING", "Who says it in the group: a member keeps its id, whatever peer it is.", since_version=2
    ),
    TapeColumn(
        "number", pa.int64(), "BIGINT", "The member's running number of the message in the group.", since_version=2
    ),
    TapeColumn(
        "parent_member", ID, "STRING", "Member who said what this one responds to, in the same group.", since_version=2
    ),
    TapeColumn("parent_number", pa.int64(), "BIGINT", "That member's running number of it.", since_version=2),
)

SCHEMA: pa.Schema = pa.schema(
    [
        pa.field(each.name, each.type, nullable=not each.is_required, metadata={"about": each.description})
        for each in COLUMNS
    ]
)


def columns_in_version(version: int) -> list[TapeColumn]:
    """The columns of a file of this version."""
    return [each for each in COLUMNS if each.since_version <= version]


def file_schema(channel: str, run_id: str) -> pa.Schema:
    """The schema of a file, with version, channel id and run as metadata."""
    return SCHEMA.with_metadata({VERSION_KEY: str(SCHEMA_VERSION), CHANNEL_KEY: channel, RUN_KEY: run_id})


def spark_ddl() -> str:
    """The schema for `spark.read.schema(...)`, including partition columns.

    Always pass it: otherwise Spark infers the type of `channel` from its digits, sometimes as a number.
    """
    columns = [f"`{each.name}` {each.spark_type}" for each in COLUMNS]
    return ", ".join([*columns, "`channel` STRING", "`day` DATE"])
