"""The guarantees of the switch, judged by the tapes: a request has at most one handler, and exactly one end.

Two handlers are no violation if the sender allowed another one after a loss (`if_lost="next"`). A request has no end
only if its sender's tape is complete, and the sender left, or stayed until `settle_s` after the timeout.
"""

import polars as pl

from broadloom.pipeline.analysis.frames import seconds

FINDINGS = {
    "request_handled_twice": "a request that two handlers ended, though its sender did not allow that.",
    "request_ended_twice": "a request with more than one end.",
    "request_without_end": "a request without an end, though its sender stayed for longer than it waits, or left.",
}


def request_findings(requests: pl.DataFrame, peers: pl.DataFrame, settle_s: float) -> pl.DataFrame:
    """`requests` and `peers` are the tables `requests` and `recorded_peers`."""
    several = requests.filter((pl.col("handler_count") > 1) & ~pl.col("is_repeatable").fill_null(False))
    ended = requests.filter(pl.col("end_count") > 1)
    known = peers.filter(~pl.col("has_dropped_rows")).select("end_status", "last_event_time", sender="peer")
    waited = pl.col("sent_time") + pl.duration(milliseconds=pl.col("timeout_ms").clip(0, _TIMEOUT_MS_MAX))
    is_over = (pl.col("last_event_time") > waited + seconds(settle_s)).fill_null(False)
    unended = requests.filter(pl.col("sent_time").is_not_null() & (pl.col("end_count") == 0)).join(known, "sender")
    unended = unended.filter((pl.col("end_status") == "left") | ((pl.col("end_status") == "present") & is_over))
    return pl.concat(
        [
            _findings(several, "request_handled_twice", "handler", pl.format("{} handlers ended it", "handler_count")),
            _findings(ended, "request_ended_twice", "sender", pl.format("its sender recorded {} ends", "end_count")),
            _findings(unended, "request_without_end", "sender", pl.lit("its sender recorded no end")),
        ]
    )


_TIMEOUT_MS_MAX = 1e12
"""A longer timeout is nonsense, and the time would overflow."""


def _findings(requests: pl.DataFrame, finding: str, receiver: str, detail: pl.Expr) -> pl.DataFrame:
    return requests.select(
        *("sequence", pl.lit(finding).alias("finding"), pl.lit(True).alias("is_violation")),
        author="sender",
        receiver=receiver,
        event_time=pl.coalesce("end_time", "sent_time", "accepted_time"),
        detail=pl.format("{}: {}", "operation", detail),
    )
