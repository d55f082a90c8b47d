"""What each subscriber used on each day: connect time, and the messages of the topic while it was connected.

A day starts at local midnight in the time zone of the billing file. A session is split there, and its pieces add up to
it exactly. A message counts for the sessions of its topic in which the tapes saw it first.
"""

import numpy as np
import polars as pl

from broadloom.pipeline.analysis.frames import conform, from_rows, in_us
from broadloom.pipeline.billing.money import Ints, to_decimal
from broadloom.pipeline.billing.months import day_edges, split_at_edges
from broadloom.pipeline.billing.periods import with_topic_of_channel
from broadloom.pipeline.table import CHANNEL, EXACT_MS, ChannelInputs, Stage, Table, column
from broadloom.pipeline.tables.invoices import BILLING_FILE

COLUMNS = (
    CHANNEL,
    column("subscriber", "Subscriber, as in the table `sessions`."),
    column("topic", "Topic that it identified itself for; null if it named none."),
    column("billing_date", "Day in the billing time zone, as YYYY-MM-DD."),
    column("connected_ms", "Connect time on that day.", EXACT_MS),
    column("message_count", "Messages of the topic while it was connected; 0 without a topic."),
    column("payload_bytes", "Total size of these messages."),
)
_KEYS = ["channel", "subscriber", "topic", "billing_date"]


def usage(sessions: pl.DataFrame, messages: pl.DataFrame, time_zone: str) -> pl.DataFrame:
    """From the tables `sessions` and `messages` of one channel."""
    spans = in_us(sessions.select("channel", "subscriber", "topic", "start_time", "end_time"))
    if not spans.height:
        return from_rows([], COLUMNS)
    start: Ints = spans["start_time"].to_numpy()
    end: Ints = spans["end_time"].to_numpy()
    dates, edges = day_edges(int(start.min()), int(end.max()), time_zone)
    row, day, lengths = split_at_edges(start, end, edges)
    is_last = np.append(row[1:] != row[:-1], True)
    low = np.maximum(start[row], edges[day])
    high = np.where(is_last, end[row] + 1, edges[day + 1])
    pieces = spans.select("channel", "subscriber", "topic")[row].with_columns(
        billing_date=pl.Series(dates).gather(day), connected_us=pl.Series(lengths, dtype=pl.Int64)
    )
    counts, sizes = _received(pieces["topic"], low, high, messages)
    pieces = pieces.with_columns(message_count=pl.Series(counts), payload_bytes=pl.Series(sizes))
    found = pieces.group_by(_KEYS).agg(pl.col("connected_us", "message_count", "payload_bytes").sum()).sort(_KEYS)
    return conform(found.with_columns(connected_ms=to_decimal(found["connected_us"].to_numpy(), EXACT_MS)), COLUMNS)


def _received(topics: pl.Series, low: Ints, high: Ints, messages: pl.DataFrame) -> tuple[Ints, Ints]:
    """Number and size of the messages from `low` to before `high` of each piece."""
    counts, sizes = np.zeros(len(low), dtype=np.int64), np.zeros(len(low), dtype=np.int64)
    named = in_us(messages.filter(pl.col("topic").is_not_null()).select("topic", "first_seen_time", "size_bytes"))
    for (topic,), sent in named.sort("first_seen_time").group_by(["topic"], maintain_order=True):
        chosen = (topics == topic).fill_null(False).to_numpy()
        if not chosen.any():
            continue
        times: Ints = sent["first_seen_time"].to_numpy()
        total = np.concatenate([[0], np.cumsum(sent["size_bytes"].fill_null(0).to_numpy())])
        first = np.searchsorted(times, low[chosen], side="left")
        last = np.searchsorted(times, high[chosen], side="left")
        counts[chosen], sizes[chosen] = last - first, total[last] - total[first]
    return counts, sizes


def build(inputs: ChannelInputs) -> pl.DataFrame:
    sessions = with_topic_of_channel(inputs["sessions"], inputs.billing)
    return usage(sessions, inputs["messages"], inputs.billing.time_zone)


TABLE = Table(
    "usage",
    "What did each subscriber use on each day?",
    COLUMNS,
    Stage.CHANNEL,
    build,
    depends_on=("sessions", "messages"),
    settings=(BILLING_FILE,),
)
