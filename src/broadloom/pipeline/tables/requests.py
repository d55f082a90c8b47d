"""Requests and notices on the switch, one row each, from what senders and handlers recorded.

The sender alone knows how a request ended; its handler knows when it began. Times are by the clock of the peer that
recorded them, so that latency and handling time do not depend on clocks of different machines.
"""

import polars as pl

from broadloom.pipeline.analysis.frames import conform
from broadloom.pipeline.table import CHANNEL, ChannelInputs, Stage, Table, column
from broadloom.record.schema import EventKind

COLUMNS = (
    CHANNEL,
    column("sender", "Peer that sent it."),
    column("sequence", "Number of the request, per sender."),
    column("operation", "What is asked for."),
    column("scope", "`session`, `file`, `file_in_session` or `file_or_session`."),
    column("file_name", "File that it is about; null if none."),
    column("is_notice", "Whether it is a notice: it has no reply, and ends when a handler has taken it."),
    column("is_repeatable", "Whether another handler may get it if the first one is lost."),
    column(
        "status",
        "`handled`, `failed`, `queued` (a notice, for a program), `given_up` (the sender no longer waits), or "
        "`open` (its end is not on the tapes).",
    ),
    column("reason", "Why it failed."),
    column("handler", "Peer that handled it, or had it when it failed; null if none is known."),
    column("sent_time", "When it was sent, by the sender's clock; null if the sender did not record."),
    column("queued_time", "When it was put into a queue; null if it was not."),
    column("launch_time", "When a program was started for it; null if none was."),
    column("accepted_time", "When its handler began, by the handler's clock; if not recorded, when the sender knew."),
    column("end_time", "Its end, by the sender's clock."),
    column("latency_ms", "From the sending to the end."),
    column("handling_ms", "From the beginning of the handler to its end, by the handler's clock."),
    column("timeout_ms", "How long the sender waits at most."),
    column("handler_count", "Handlers that ended it: with a reply, a refusal, or because they were cancelled."),
    column("end_count", "Ends that the sender recorded."),
)

KINDS = (EventKind.REQUEST_STEP.value, EventKind.HANDLER_STEP.value)
EVENT_COLUMNS = (
    *("kind", "run_id", "ordinal", "event_time", "peer", "author", "sequence", "name", "reason", "status", "handler"),
    *("scope", "file_name", "is_notice", "is_repeatable", "duration_ms"),
)

_KEY = ["author", "sequence"]
_ENDS = ("handled", "failed", "given_up")
_HANDLER_ENDS = ("handled", "failed", "cancelled")


def requests(steps: pl.DataFrame) -> pl.DataFrame:
    """`steps` are the rows of `KINDS`. Those of a request that another peer than its sender claims to have sent do not
    count."""
    is_own = pl.col("kind") == EventKind.REQUEST_STEP.value
    own = steps.filter(is_own & (pl.col("peer") == pl.col("author"))).sort("run_id", "ordinal")
    others = steps.filter(~is_own).sort("event_time", "run_id", "ordinal")
    steps = pl.concat([own, others])
    status, time = pl.col("status"), pl.col("event_time")
    # A notice that is queued has ended for its sender.
    is_end = is_own & (status.is_in(_ENDS) | ((status == "queued") & pl.col("is_notice").fill_null(False)))
    found = steps.group_by(_KEY, maintain_order=True).agg(
        *(pl.col(name).drop_nulls().first() for name in ("scope", "file_name", "is_notice", "is_repeatable")),
        operation=pl.col("name").drop_nulls().first(),
        status=status.filter(is_end).first().fill_null("open"),
        reason=pl.col("reason").filter(is_end).first(),
        end_handler=pl.col("handler").filter(is_end).first(),
        sent_time=time.filter(is_own & (status == "sent")).first(),
        queued_time=time.filter(status == "queued").first(),
        launch_time=time.filter(status == "launched").first(),
        known_time=time.filter(is_own & (status == "accepted")).first(),
        end_time=time.filter(is_end).first(),
        timeout_ms=pl.col("duration_ms").filter(is_own & (status == "sent")).first(),
        end_count=is_end.sum().cast(pl.Int64),
    )
    found = found.join(_handlings(others), _KEY, "left")
    return conform(
        found.with_columns(
            sender="author",
            handler=pl.coalesce("end_handler", "handling_peer"),
            accepted_time=pl.coalesce("begin_time", "known_time"),
            latency_ms=_ms("sent_time", "end_time"),
            handling_ms=_ms("begin_time", "done_time"),
            handler_count=pl.col("handler_count").fill_null(0),
            channel=pl.lit(steps["channel"][0] if steps.height else None, pl.String),
        ).sort("sent_time", "author", "sequence", nulls_last=True),
        COLUMNS,
    )


def _handlings(steps: pl.DataFrame) -> pl.DataFrame:
    """What handlers recorded of each request. One that declined does not count: the next one was asked."""
    status, time = pl.col("status"), pl.col("event_time")
    by_peer = steps.group_by(*_KEY, "peer", maintain_order=True).agg(
        begin_time=time.filter(status == "accepted").first(),
        done_time=time.filter(status.is_in(_HANDLER_ENDS)).first(),
        ended=status.is_in(_HANDLER_ENDS).sum().cast(pl.Int64),
        is_declined=(status == "declined").any() & ~status.is_in(_HANDLER_ENDS).any(),
    )
    taken = by_peer.filter(pl.col("begin_time").is_not_null() & ~pl.col("is_declined"))
    return taken.group_by(_KEY, maintain_order=True).agg(
        handling_peer=pl.col("peer").first(),
        begin_time=pl.col("begin_time").first(),
        done_time=pl.col("done_time").first(),
        handler_count=pl.col("ended").sum(),
    )


def _ms(start: str, end: str) -> pl.Expr:
    return ((pl.col(end) - pl.col(start)).dt.total_microseconds() / 1000).round(3)


def build(inputs: ChannelInputs) -> pl.DataFrame:
    return requests(inputs.scan("requests"))


TABLE = Table(
    "requests",
    "Which requests were sent on the switch, who handled them, and how did they end?",
    COLUMNS,
    Stage.CHANNEL,
    build,
)
