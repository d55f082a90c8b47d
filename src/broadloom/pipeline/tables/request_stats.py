"""Requests by operation: how many, how they failed, how long they took."""

import polars as pl

from broadloom.pipeline.analysis.frames import conform
from broadloom.pipeline.table import CHANNEL, COUNT, TEXT, ChannelInputs, Stage, Table, column
from broadloom.record.arrow_import import pa

FAILURE = pa.struct([pa.field("reason", TEXT), pa.field("request_count", COUNT)])

COLUMNS = (
    CHANNEL,
    column("operation", "What was asked for."),
    column("is_notice", "Whether these are notices."),
    column("request_count", "How many there are."),
    column("handled_count", "Those that were handled."),
    column("failed_count", "Those that failed."),
    column("failures", "The number of those by reason, the most frequent first.", pa.list_(FAILURE)),
    column("queued_count", "Notices that were queued for a program."),
    column("given_up_count", "Those for which the sender no longer waited."),
    column("open_count", "Those whose end is not on the tapes."),
    column("sender_count", "Peers that sent them."),
    column("handler_count", "Peers that handled them."),
    column("latency_p50_ms", "Median time from the sending to the end of those that were handled."),
    column("latency_p99_ms", "99th percentile."),
)

_STATUSES = ("handled", "failed", "queued", "given_up", "open")
_KEYS = ["channel", "operation", "is_notice"]


def request_stats(requests: pl.DataFrame) -> pl.DataFrame:
    """One row per operation. Percentiles are by nearest rank."""
    status = pl.col("status")
    latencies = pl.col("latency_ms").filter(status == "handled").drop_nulls().sort()
    found = requests.group_by(_KEYS).agg(
        request_count=pl.len().cast(pl.Int64),
        **{f"{name}_count": (status == name).sum().cast(pl.Int64) for name in _STATUSES},
        sender_count=pl.col("sender").n_unique().cast(pl.Int64),
        handler_count=pl.col("handler").filter(status == "handled").drop_nulls().n_unique().cast(pl.Int64),
        latency_p50_ms=_percentile(latencies, 500),
        latency_p99_ms=_percentile(latencies, 990),
    )
    failed = requests.filter(status == "failed").group_by(*_KEYS, "reason").agg(request_count=pl.len().cast(pl.Int64))
    failed = failed.sort("request_count", "reason", descending=[True, False])
    failures = failed.group_by(_KEYS, maintain_order=True).agg(failures=pl.struct("reason", "request_count"))
    found = found.join(failures, _KEYS, "left", nulls_equal=True).with_columns(pl.col("failures").fill_null([]))
    return conform(found.sort(_KEYS), COLUMNS)


def _percentile(sorted_values: pl.Expr, permille: int) -> pl.Expr:
    rank = (sorted_values.len().cast(pl.Int64) * permille + 999) // 1000
    return sorted_values.get(pl.max_horizontal(rank - 1, 0), null_on_oob=True)


def build(inputs: ChannelInputs) -> pl.DataFrame:
    return request_stats(inputs["requests"])


TABLE = Table(
    "request_stats",
    "Which operations are requested, how often do they fail, and how long do they take?",
    COLUMNS,
    Stage.CHANNEL,
    build,
    depends_on=("requests",),
)
