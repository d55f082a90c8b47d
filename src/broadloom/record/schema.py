"""The schema of a tape: event kinds and columns with their descriptions. The contract with readers; see docs/tape.md.

One schema serves all kinds. Its version increases with every change: a column never changes its meaning, and new
columns are nullable and added at the end.

Types are chosen for Spark: timestamps are microseconds in UTC, integers are signed, and peer ids are text of 16
hexadecimal digits.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from broadloom.record.arrow_import import pa

SCHEMA_VERSION = 8
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
DAY_US = 86_400_000_000

CRASH_REASONS = ("connection_lost", "heartbeat_timeout")
LEAVE_REASONS = ("peer_left", "local_leave")
"""Values of `LinkDownReason`, as `reason` has them. Readers need not import the protocol."""

ID_COLUMNS = ("peer", "author", "neighbor", "parent_author", "member", "parent_member", "handler")
ID_PATTERN = "^[0-9a-f]{16}$"
"""Of peers and members."""


class EventKind(StrEnum):
    """Each event is what one peer observed itself. The second value says what it means."""

    description: str

    def __new__(cls, value: str, description: str = "") -> Self:
        kind = str.__new__(cls, value)
        kind._value_ = value
        kind.description = description
        return kind

    JOINED = "joined", "The peer became a full member: from here on every message is due to it."
    LEAVING = "leaving", "The peer began to leave: from here on nothing is due, though more may be delivered."
    LEFT = "left", "The peer left gracefully. A crashed peer has no such row."
    LINK_UP = "link_up", "A link to `neighbor` came up."
    LINK_DOWN = "link_down", "A link to `neighbor` ended; see `reason`."
    SENT = "sent", "The peer broadcast a message."
    RECEIVED = "received", "The first copy of a message arrived from `neighbor` after `hops` links."
    DUPLICATES = "duplicates", "`event_count` further copies of messages arrived since the last such row."
    DELIVERED = "delivered", "A message was delivered to the application; the rows are in the order of delivery."
    MISSED = "missed", "Messages `sequence` to `last_sequence` of `author` were reported to the application as missed."
    IDENTIFICATION = "identification", "The subscriber `name`, as peer `author`, identified itself."
    AD_IMPRESSION = "ad_impression", "The ad `name` was shown at the peer."
    MEMBER_JOINED = "member_joined", "The member `author` is in the roster of the peer, or is in it again."
    MEMBER_LEFT = "member_left", "The member `author` left gracefully."
    MEMBER_LOST = "member_lost", "The member `author` is gone without leaving; see `reason`."
    REQUEST_STEP = "request_step", "The request `sequence` that the peer sent on the switch has reached `status`."
    HANDLER_STEP = "handler_step", "The peer has the request `sequence` of `author` on the switch; see `status`."
    RULE_HIT = "rule_hit", "The rule `name` acted on a message that the peer was about to send; see `status`."
    MAILBOX_CHANGE = (
        "mailbox_change",
        "The peer knows revision `sequence` of the mailbox `name` of `owner`, which `author` wrote; see `status`.",
    )
    APP_ENTRY = (
        "app_entry",
        "The entry `sequence` of `author` in the application `name` has its place at the peer; see `status`.",
    )
    APP_LOG = (
        "app_log",
        "Line `sequence` of the log of the application `name`, as its file has it; only with payloads. See `status`.",
    )
    ROWS_DROPPED = (
        "rows_dropped",
        "The recorder dropped `event_count` rows of this run, of any kind and peer, from `event_time` to `end_time`.",
    )


EVENT_KINDS: dict[EventKind, str] = {kind: kind.description for kind in EventKind}

ID = pa.string()
TIME = pa.timestamp("us", tz="UTC")
_SPARK_TYPES = {
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.int64(): "BIGINT",
    pa.int32(): "INT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.date32(): "DATE",
    TIME: "TIMESTAMP",
}


def spark_type(kind: pa.DataType) -> str:
    """An Arrow type as Spark DDL."""
    if kind in _SPARK_TYPES:
        return _SPARK_TYPES[kind]
    if pa.types.is_decimal128(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_list(kind):
        return f"ARRAY<{spark_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{spark_type(kind.key_type)}, {spark_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        parts = ", ".join(f"`{each.name}`: {spark_type(each.type)}" for each in kind)
        return f"STRUCT<{parts}>"
    raise TypeError(f"Spark has no type for {kind}")


@dataclass(frozen=True, slots=True)
class TapeColumn:
    name: str
    type: pa.DataType
    description: str
    is_required: bool = False
    """Never null."""
    since_version: int = OLDEST_VERSION
    """The first version of the schema that has it."""


COLUMNS: tuple[TapeColumn, ...] = (
    TapeColumn("ordinal", pa.int64(), "Order of events within a run, also at equal times.", is_required=True),
    TapeColumn("run_id", pa.string(), "Recording process that wrote the row.", is_required=True),
    TapeColumn("kind", pa.string(), "Kind of event.", is_required=True),
    TapeColumn(
        "event_time",
        TIME,
        "Time of the event, by the clock of the run; of `rows_dropped`, of the first row.",
        is_required=True,
    ),
    TapeColumn("end_time", TIME, "Of `rows_dropped`: time of the last row."),
    TapeColumn("peer", ID, "Peer that recorded the event; null for `rows_dropped`, which is about the run."),
    TapeColumn(
        "author",
        ID,
        "Author of the message, value or entry, sender of the request, or peer that identified itself, joined or left.",
    ),
    TapeColumn(
        "sequence",
        pa.int64(),
        "Sequence number of the message, request or entry, per author; the first one of `missed`; revision of a "
        "mailbox; number of a line.",
    ),
    TapeColumn("last_sequence", pa.int64(), "Last sequence number of `missed`."),
    TapeColumn("hops", pa.int64(), "Links that the message traveled."),
    TapeColumn("neighbor", ID, "Other end of the link."),
    TapeColumn("address", pa.string(), "Address of the neighbor or member: host:port."),
    TapeColumn(
        "reason",
        pa.string(),
        "Why the link ended, the member is lost, the request failed, the message was not sent, the value is gone, or "
        "the entry has no effect.",
    ),
    TapeColumn("event_count", pa.int64(), "Number of duplicates, or of dropped rows."),
    TapeColumn("size_bytes", pa.int64(), "Size of the payload or value."),
    TapeColumn(
        "name",
        pa.string(),
        "Name of the subscriber, neighbor, member, ad, rule, mailbox or application; of the peer itself in `joined`; "
        "operation of a request.",
    ),
    TapeColumn("group_id", pa.string(), "Group of the message or ad."),
    TapeColumn("parent_author", ID, "Author of the message this one replies to; null for group messages."),
    TapeColumn("parent_sequence", pa.int64(), "Sequence number of the message this one replies to."),
    TapeColumn("topic", pa.string(), "Topic of the message or ad."),
    TapeColumn("payload", pa.binary(), "The message itself, in `sent` and `delivered`, or the line; only on request."),
    TapeColumn("member", ID, "Group member that posted it; stays the same when the member reconnects."),
    TapeColumn("member_sequence", pa.int64(), "Sequence number of the member's message in the group."),
    TapeColumn("parent_member", ID, "Member that posted the message this one replies to, in the same group."),
    TapeColumn("parent_member_sequence", pa.int64(), "Sequence number of that member's message."),
    TapeColumn("role", pa.string(), "Role on the ticket: producer or consumer.", since_version=4),
    TapeColumn("ticket_serial", pa.string(), "Serial number of the ticket, in hex.", since_version=4),
    TapeColumn("is_proven", pa.bool_(), "Whether `name` is on a ticket, not self-chosen.", since_version=4),
    TapeColumn("attributes", pa.string(), "Names and values of an identification, as JSON.", since_version=4),
    TapeColumn("content_type", pa.string(), "Content type of the message.", since_version=4),
    TapeColumn(
        "status",
        pa.string(),
        "What became of the request, the value, or the message by the rule; what the entry does.",
        since_version=5,
    ),
    TapeColumn("handler", ID, "Peer that handles the request, or holds it in a queue.", since_version=5),
    TapeColumn("scope", pa.string(), "Scope of the request.", since_version=5),
    TapeColumn("file_name", pa.string(), "File that the request is about.", since_version=5),
    TapeColumn("is_notice", pa.bool_(), "Whether the request is a notice, without a reply.", since_version=5),
    TapeColumn(
        "is_repeatable",
        pa.bool_(),
        "Whether another handler may get the request if the first one is lost.",
        since_version=5,
    ),
    TapeColumn("rule_number", pa.int64(), "Position of the rule, from 1.", since_version=5),
    TapeColumn("actions", pa.string(), "What the rule did, in order; figures of the entry, as JSON.", since_version=5),
    TapeColumn(
        "duration_ms",
        pa.float64(),
        "Time that the rule took; of a request that is sent, its timeout.",
        since_version=5,
    ),
    TapeColumn("owner", pa.string(), "Owner of the mailbox; person that the entry names.", since_version=6),
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


def with_all_columns(rows: pa.Table, columns: Iterable[str]) -> pa.Table:
    """Add those of these columns that the rows lack, because their version does not have them: they are null."""
    for name in columns:
        if name in SCHEMA.names and name not in rows.column_names:
            rows = rows.append_column(name, pa.nulls(rows.num_rows, SCHEMA.field(name).type))
    return rows


def file_schema(channel: str, run_id: str) -> pa.Schema:
    """The schema of a file, with version, channel id and run as metadata."""
    return SCHEMA.with_metadata({VERSION_KEY: str(SCHEMA_VERSION), CHANNEL_KEY: channel, RUN_KEY: run_id})


def spark_ddl() -> str:
    """The schema for `spark.read.schema(...)`, including partition columns.

    Always pass it: otherwise Spark infers the type of `channel` from its digits, sometimes as a number.
    """
    columns = [f"`{each.name}` {spark_type(each.type)}" for each in COLUMNS]
    return ", ".join([*columns, "`channel` STRING", "`event_date` DATE"])
