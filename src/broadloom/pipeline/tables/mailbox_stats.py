"""What became of the values in mailboxes, one row per mailbox."""

import polars as pl

from broadloom.pipeline.analysis.frames import conform
from broadloom.pipeline.table import CHANNEL, ChannelInputs, Stage, Table, column
from broadloom.record.schema import EventKind

COLUMNS = (
    CHANNEL,
    column("owner", "Owner of the mailbox."),
    column("mailbox_name", "Name of the mailbox."),
    column("put_count", "Values that were put, as far as a peer recorded them."),
    column("writer_count", "Peers that wrote them: an owner is another peer after every connect."),
    column("revision_number", "The highest revision that a peer recorded."),
    column("status", "What became of that: put, empty (bound without a value) or gone."),
    column("reason", "Why it is gone: unbound, invalidated, expired or owner_gone."),
    column("size_bytes", "Size of the last value that was put."),
    column("peer_count", "Peers that recorded the mailbox."),
    column("current_peer_count", "Those of them that recorded the last revision."),
    column("first_change_time", "First change that a peer recorded."),
    column("last_change_time", "Last change that a peer recorded."),
)

EVENT_COLUMNS = ("kind", "event_time", "peer", "author", "sequence", "owner", "name", "status", "reason", "size_bytes")

_KEYS = ["channel", "owner", "mailbox_name"]


def mailbox_changes(events: pl.DataFrame) -> pl.DataFrame:
    """The changes of a part."""
    changes = events.filter(pl.col("kind").eq(EventKind.MAILBOX_CHANGE.value))
    return changes.select(*(each for each in EVENT_COLUMNS if each not in ("kind", "name")), mailbox_name="name")


def mailbox_stats(changes: pl.DataFrame) -> pl.DataFrame:
    # As members rank them: by revision, then by writer. What is gone was put before.
    ranked = changes.sort("sequence", "author", "event_time", "peer")
    is_put, is_last = pl.col("status") == "put", pl.col("sequence") == pl.col("sequence").max()
    found = ranked.group_by(_KEYS).agg(
        put_count=pl.struct("author", "sequence").filter(is_put).n_unique().cast(pl.Int64),
        writer_count=pl.col("author").n_unique().cast(pl.Int64),
        revision_number=pl.col("sequence").last(),
        status=pl.col("status").last(),
        reason=pl.col("reason").last(),
        size_bytes=pl.col("size_bytes").filter(is_put).last(),
        peer_count=pl.col("peer").n_unique().cast(pl.Int64),
        current_peer_count=pl.col("peer").filter(is_last).n_unique().cast(pl.Int64),
        first_change_time=pl.col("event_time").min(),
        last_change_time=pl.col("event_time").max(),
    )
    return conform(found.sort(_KEYS), COLUMNS)


def build(inputs: ChannelInputs) -> pl.DataFrame:
    return mailbox_stats(inputs.scan("mailbox_changes"))


TABLE = Table(
    "mailbox_stats",
    "Which values were put into mailboxes, and which peers know the last one?",
    COLUMNS,
    Stage.CHANNEL,
    build,
)
