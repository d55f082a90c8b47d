"""What stands on a tape: kinds of event and columns, each with its description. The contract with whoever reads it.

The rule: one schema for all kinds, and a number that grows when it changes. A column is never reused for another
meaning; new columns are added at the end and may be null. `docs/tape.md` explains the same to a person, and a test sees
that it leaves nothing out.

Written for Spark: microseconds in UTC, no unsigned numbers (peer ids are text of 16 hexadecimal digits).
"""

from dataclasses import dataclass
from enum import Enum

from weft.record.arrow import pa

SCHEMA_VERSION = 2
"""Stands in each file. A reader refuses versions above its own, and takes what an older one lacks for null."""

VERSION_KEY = b"weft.schema"
CHANNEL_KEY = b"weft.channel"
RUN_KEY = b"weft.run"
"""Keys of a file's metadata. The channel is told by its id alone: the name may be a secret."""

CHANNEL_DIGITS = 16
"""Hexadecimal digits of the channel's id that name its folder."""

INT64_MAX = (1 << 63) - 1


class Kind(Enum):
    """Kinds of event; each is what one observer saw itself."""

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
    ADVERT = "advert"
    GAP = "gap"


KINDS: dict[Kind, str] = {
    Kind.JOINED: "The observer became a full member: from here on it is owed every message.",
    Kind.LEAVING: "The observer began to leave: from here on it is owed nothing, though more may be delivered.",
    Kind.LEFT: "The observer is gone, in good order. One that died has no such row.",
    Kind.LINK_UP: "A link to a neighbour came up.",
    Kind.LINK_DOWN: "A link to a neighbour ended; `why` says how.",
    Kind.SENT: "The observer broadcast a message of its own.",
    Kind.RECEIVED: "The first copy of a message came, from `neighbour`, after `hops` links.",
    Kind.DUPLICATES: "`count` further copies of messages came since the last such row.",
    Kind.DELIVERED: "The application got a message; the order of these rows is the order of delivery.",
    Kind.MISSED: "The application was told that it will not get `sequence` to `last` of `author`.",
    Kind.IDENTIFICATION: "The subscriber `name`, as peer `author`, said that it is here.",
    Kind.ADVERT: "The advert `name` was shown at the observer.",
    Kind.GAP: "The recorder lost `count` rows of this run, of any kind and observer, between `time` and `until`.",
}

ID = pa.string()
TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: pa.DataType
    spark: str
    """Its type in Spark's language."""
    about: str
    always: bool = False
    """Never null."""
    since: int = 1
    """The first version of the schema that has it."""


COLUMNS: tuple[Column, ...] = (
    Column("ordinal", pa.int64(), "BIGINT", "Order of events within a run, also among equal times.", always=True),
    Column("run", pa.string(), "STRING", "The recording process that wrote the row.", always=True),
    Column("kind", pa.string(), "STRING", "What happened.", always=True),
    Column("time", TIME, "TIMESTAMP", "When, by the observer's clock; first lost row of a gap.", always=True),
    Column("until", TIME, "TIMESTAMP", "Time of the last lost row of a gap."),
    Column("observer", ID, "STRING", "The peer that saw it; null for a gap, which speaks for all of the run."),
    Column("author", ID, "STRING", "Who broadcast the message, or who identified itself."),
    Column("sequence", pa.int64(), "BIGINT", "The author's running number of the message; first one of missed."),
    Column("last", pa.int64(), "BIGINT", "Last number of missed."),
    Column("hops", pa.int64(), "BIGINT", "Links that the message had travelled."),
    Column("neighbour", ID, "STRING", "Other end of the link."),
    Column("address", pa.string(), "STRING", "Where the neighbour answers: host:port."),
    Column("why", pa.string(), "STRING", "How a link ended."),
    Column("count", pa.int64(), "BIGINT", "Number of duplicates, or of rows lost in a gap."),
    Column("size", pa.int64(), "BIGINT", "Bytes of the message's payload."),
    Column("name", pa.string(), "STRING", "Of the subscriber, or of the advert; of the observer itself in joined."),
    Column("group", pa.string(), "STRING", "Group that the message or advert belongs to."),
    Column("parent_author", ID, "STRING", "Author of the message that this one responds to; not for groups' messages."),
    Column("parent_sequence", pa.int64(), "BIGINT", "Running number of the message that this one responds to."),
    Column("topic", pa.string(), "STRING", "What the message or advert is about."),
    Column("payload", pa.binary(), "BINARY", "The message itself, in sent and delivered; only if asked for."),
    Column("member", ID, "STRING", "Who says it in the group: a member keeps its id, whatever peer it is.", since=2),
    Column("number", pa.int64(), "BIGINT", "The member's running number of the message in the group.", since=2),
    Column("parent_member", ID, "STRING", "Member who said what this one responds to, in the same group.", since=2),
    Column("parent_number", pa.int64(), "BIGINT", "That member's running number of it.", since=2),
)

SCHEMA: pa.Schema = pa.schema(
    [pa.field(each.name, each.type, nullable=not each.always, metadata={"about": each.about}) for each in COLUMNS]
)


def columns_of(version: int) -> list[Column]:
    """What a file of this version has to have."""
    return [each for each in COLUMNS if each.since <= version]


def file_schema(channel: str, run: str) -> pa.Schema:
    """The schema as a file carries it: with its version, the channel's whole id in hex, and the run."""
    return SCHEMA.with_metadata({VERSION_KEY: str(SCHEMA_VERSION), CHANNEL_KEY: channel, RUN_KEY: run})


def spark_ddl() -> str:
    """The schema for `spark.read.schema(...)`, folders included.

    Give it always: left to itself Spark guesses the type of `channel` from its digits, and takes some for numbers.
    """
    columns = [f"`{each.name}` {each.spark}" for each in COLUMNS]
    return ", ".join([*columns, "`channel` STRING", "`day` DATE"])
