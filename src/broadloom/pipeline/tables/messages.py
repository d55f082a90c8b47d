"""One row per message, from what its author and all its receivers recorded.

In two steps: `gather_messages` makes one row per message from the events of a part, `merge_messages` merges such rows.
The author's own record comes first; if it did not record, a delivery is used, which has all the metadata. Of a message
that its author did not record, there is one row for each run that saw it: only corrected clocks show which was first.
Messages that only forged rows are about are not listed (`analysis/forged_rows.py`).
"""

import polars as pl

from broadloom.pipeline.analysis.channel_clock import ChannelClock
from broadloom.pipeline.analysis.forged_rows import forged_messages, odd_sendings
from broadloom.pipeline.analysis.frames import conform
from broadloom.pipeline.engine.events import TEXT as TEXT_CODES
from broadloom.pipeline.engine.events import TIME as TIME_TYPE
from broadloom.pipeline.engine.keys import MessageKeys
from broadloom.pipeline.table import CHANNEL, ChannelInputs, Stage, Table, column
from broadloom.pipeline.tables.recorded_peers import SETTLE, missing_rows, recorded_peers

_METADATA_COLUMNS = (
    *("size_bytes", "group_id", "topic", "parent_author", "parent_sequence"),
    *("member", "member_sequence", "parent_member", "parent_member_sequence"),
)

COLUMNS = (
    CHANNEL,
    column("author", "Peer that broadcast it."),
    column("sequence", "Sequence number, per author."),
    column("sent_time", "Time of the sending, by the author's clock; if not recorded, `first_seen_time`."),
    column("is_recorded", "Whether the author recorded the sending."),
    column("run_id", "Run that recorded the sending."),
    column("ordinal", "Ordinal of the sending in that run."),
    column("first_seen_time", "Earliest event about it on any tape."),
    column("delivery_count", "Deliveries on the tapes, including duplicates."),
    column("size_bytes", "Size of the payload."),
    column("group_id", "Group of the message."),
    column("topic", "Topic of the message."),
    column("parent_author", "Author of the message it replies to; null for messages of groups."),
    column("parent_sequence", "Sequence number of the message it replies to."),
    column("member", "Member that posted it; stays the same when the member reconnects. Null outside groups."),
    column("member_sequence", "Sequence number of the member's message in the group."),
    column("parent_member", "Member that posted the message it replies to, in the same group."),
    column("parent_member_sequence", "Sequence number of that member's message."),
)

_KEYS = ["author", "sequence"]

KINDS = ("sent", "received", "delivered")
EVENT_COLUMNS = ("kind", "author", "sequence", "event_time", "run_id", "ordinal", "peer", *_METADATA_COLUMNS)


def gather_messages(events: pl.DataFrame) -> pl.DataFrame:
    """One row per message of some events of one channel; of a message that is not recorded there, one per run.
    `witness` is a peer that has it."""
    kind = pl.col("kind")
    forged = odd_sendings(events).filter("is_forged")
    if forged.height:
        events = events.join(forged, ["run_id", "ordinal"], "anti", maintain_order="left")
    # Metadata of messages is looked up by place, instead of being copied with all rows about them.
    rows = events.select("kind", "author", "sequence", "event_time", "run_id", place=pl.int_range(pl.len()))
    rows = rows.filter(kind.is_in(KINDS))
    keys = MessageKeys([rows["author"]], [rows["sequence"]])
    rows = rows.select("kind", "event_time", "run_id", "place", key=keys.message())
    by_run = [
        _seen(each).with_columns(seen_run_id=pl.lit(run, TEXT_CODES))
        for (run,), each in rows.partition_by("run_id", as_dict=True).items()
    ]
    seen = _merge_seen(pl.concat(by_run) if by_run else _seen(rows), ["key"])
    sent = _look_up(events, rows.filter(kind == "sent")).sort("ordinal")
    sent = sent.unique("key", keep="first", maintain_order=True)
    found = [
        sent.select(
            *("key", "author", "sequence", "run_id", "ordinal", *_METADATA_COLUMNS),
            sent_time="event_time",
            is_recorded=pl.lit(True),
            witness="peer",
        )
    ]
    # Most messages are known by now; only of the others the rows of receivers are looked at.
    for others in ("delivered", "received"):
        if sum(each.height for each in found) < seen.height:
            known = pl.concat([each.select("key") for each in found])
            rest = rows.filter(kind == others).join(known, on="key", how="anti")
            rest = rest.group_by("key").agg(pl.col("place").min())
            found.append(
                _look_up(events, rest).select(
                    *("key", "author", "sequence"),
                    pl.lit(None, TEXT_CODES).alias("run_id"),
                    pl.lit(None, pl.Int64).alias("ordinal"),
                    *_METADATA_COLUMNS,
                    sent_time=pl.lit(None, TIME_TYPE),
                    is_recorded=pl.lit(False),
                    witness="peer",
                )
            )
    recorded = found[0].join(seen, on="key").with_columns(seen_run_id=pl.lit(None, TEXT_CODES))
    if len(found) == 1:
        return recorded.drop("key")
    return pl.concat([recorded, pl.concat(found[1:]).join(pl.concat(by_run), on="key")]).drop("key")


def _look_up(events: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """The events at the places of these rows, with their `key`."""
    return events.select(EVENT_COLUMNS)[rows["place"]].with_columns(rows["key"])


def _seen(rows: pl.DataFrame) -> pl.DataFrame:
    is_delivered = pl.col("kind") == "delivered"
    return rows.group_by("key").agg(
        first_seen_time=pl.col("event_time").min(),
        delivery_count=is_delivered.sum().cast(pl.Int64),
        is_received=(pl.col("kind") != "sent").any(),
        has_receipt=(pl.col("kind") == "received").any(),
    )


def _merge_seen(parts: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    return parts.group_by(keys).agg(
        pl.col("first_seen_time").min(), pl.col("delivery_count").sum(), pl.col("is_received", "has_receipt").any()
    )


def merge_messages(parts: pl.DataFrame) -> pl.DataFrame:
    """One row per message of a channel, from several results of `gather_messages`."""
    keys = _KEYS
    if parts.select(keys).is_duplicated().any():
        sums = _merge_seen(parts, keys)
        # The author's row; without one, a row with a delivery, which has all the metadata.
        best = parts.sort(
            pl.col("is_recorded").not_(), pl.col("delivery_count") == 0, "first_seen_time", "ordinal", nulls_last=True
        ).unique(keys, keep="first", maintain_order=True)
        parts = best.drop("first_seen_time", "delivery_count", "is_received", "has_receipt").join(sums, keys, "left")
    return parts.with_columns(sent_time=pl.when("is_recorded").then("sent_time").otherwise("first_seen_time"))


def first_seen(parts: pl.DataFrame) -> pl.DataFrame:
    """When each run first saw a message that its author did not record."""
    keys = _KEYS
    unrecorded = parts.filter(~pl.col("is_recorded"))
    if unrecorded.height:
        unrecorded = unrecorded.join(parts.filter("is_recorded").select(keys), on=keys, how="anti")
    return unrecorded.select(*keys, "first_seen_time", run_id="seen_run_id")


def build(inputs: ChannelInputs) -> pl.DataFrame:
    parts, odd = inputs.scan("messages"), inputs.scan("odd_sendings")
    inputs.scans["first_seen"] = first_seen(parts)
    found, settle_s = merge_messages(parts), float(inputs.settings[SETTLE.name])
    # The clocks are not estimated yet, but links relate them well enough.
    spans = inputs.scan("peer_spans").rename({"last_time": "last_event_time"})
    links_up = inputs.scan("membership").filter(pl.col("kind") == "link_up")
    clock = ChannelClock.by_links(spans["run_id"], links_up)
    peers = recorded_peers(inputs.scan("membership"), spans, inputs.quarantine, settle_s, clock)
    seen = clock.apply(inputs.scan("first_seen"), "run_id", "first_seen_time")
    seen = seen.group_by(_KEYS).agg(seen_time=pl.col("first_seen_time").min())
    by_one_clock = found.join(seen, _KEYS, "left").with_columns(
        first_seen_time=pl.coalesce("seen_time", "first_seen_time")
    )
    is_unknown = pl.col("row_count").is_null().any()
    gaps = missing_rows(inputs.scan("membership"), inputs.quarantine).group_by("run_id")
    counts = gaps.agg(missing_row_count=pl.when(~is_unknown).then(pl.col("row_count").sum()))
    forged = forged_messages(
        by_one_clock,
        odd,
        peers.join(counts, "run_id", "left"),
        inputs.scan("missed"),
        settle_s,
        receipt_runs=inputs.scan("relayed")["run_id"].unique(),
    )
    return conform(found.join(forged, _KEYS, "anti"), COLUMNS)


TABLE = Table(
    "messages",
    "Which messages were sent?",
    COLUMNS,
    Stage.MERGE,
    build,
    depends_on=("quarantine",),
    settings=(SETTLE,),
)
