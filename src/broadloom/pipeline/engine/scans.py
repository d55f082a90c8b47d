"""What the stage `scan` takes from the rows of a part. The results of all parts of a channel are concatenated.

Each scan is a pure function of a frame of events and the settings. It names the columns it reads.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from broadloom.pipeline.analysis.app_entries import EVENT_COLUMNS as APP_COLUMNS
from broadloom.pipeline.analysis.app_entries import app_entries
from broadloom.pipeline.analysis.forged_rows import odd_sendings
from broadloom.pipeline.analysis.link_crossings import COLUMNS as CROSSING_COLUMNS
from broadloom.pipeline.analysis.link_crossings import KINDS as CROSSING_KINDS
from broadloom.pipeline.analysis.subscribers import NAME_COLUMNS, gather_names
from broadloom.pipeline.engine.events import plain
from broadloom.pipeline.tables import mailbox_stats, requests, rule_stats
from broadloom.pipeline.tables import messages as messages_function
from broadloom.pipeline.tables.membership_intervals import ROSTER_KINDS
from broadloom.pipeline.tables.recorded_peers import MEMBERSHIP_KINDS
from broadloom.pipeline.tables.sessions import KINDS as SESSION_KINDS
from broadloom.pipeline.tables.sessions import SIGN_COLUMNS, rule
from broadloom.record.schema import EventKind

DELIVERY_KINDS = ("received", "delivered")
"""Most rows of a tape."""

_KIND = pl.col("kind")
_TIME = pl.col("event_time")
_FIRST_AND_LAST = {"first_time": _TIME.min(), "last_time": _TIME.max()}


@dataclass(frozen=True, slots=True)
class Scan:
    columns: tuple[str, ...]
    function: Callable[[pl.DataFrame, Mapping[str, Any]], pl.DataFrame]
    tables: frozenset[str]
    """Tables that need it."""
    needs_deliveries: bool = False
    """Whether it looks at rows of `DELIVERY_KINDS`."""


def _membership(events: pl.DataFrame, _settings: Mapping[str, Any]) -> pl.DataFrame:
    """Events about membership and links, and counts of dropped rows."""
    return events.filter(_KIND.is_in(MEMBERSHIP_KINDS)).select(_MEMBERSHIP)


def _peer_spans(events: pl.DataFrame, _settings: Mapping[str, Any]) -> pl.DataFrame:
    """First and last event of each peer in each run. `rows_dropped` events have no peer, but count for their run."""
    return events.group_by("peer", "run_id").agg(**_FIRST_AND_LAST, last_ordinal=pl.col("ordinal").max())


def _relayed(events: pl.DataFrame, _settings: Mapping[str, Any]) -> pl.DataFrame:
    """First and last message that each run received from each neighbor."""
    return events.filter(_KIND == "received").group_by("run_id", peer="neighbor").agg(**_FIRST_AND_LAST)


def _runs(events: pl.DataFrame, _settings: Mapping[str, Any]) -> pl.DataFrame:
    return events.group_by("run_id").agg(
        start_time=_TIME.min(), end_time=_TIME.max(), event_count=pl.len().cast(pl.Int64)
    )


def _held(events: pl.DataFrame, _settings: Mapping[str, Any]) -> pl.DataFrame:
    """The last message of each author that each peer has."""
    return events.filter(_KIND == "delivered").group_by("author", "peer").agg(held=pl.col("sequence").max())


def _missed(events: pl.DataFrame, _settings: Mapping[str, Any]) -> pl.DataFrame:
    return events.filter(_KIND == "missed").select("author", "peer", "sequence", "last_sequence")


def _odd_sendings(events: pl.DataFrame, _settings: Mapping[str, Any]) -> pl.DataFrame:
    return odd_sendings(events)


def _names(events: pl.DataFrame, _settings: Mapping[str, Any]) -> pl.DataFrame:
    return gather_names(events)


def _roster(events: pl.DataFrame, _settings: Mapping[str, Any]) -> pl.DataFrame:
    """What recorders saw in the roster. `peer` is the member."""
    seen = events.filter(_KIND.is_in(ROSTER_KINDS) & pl.col("author").is_not_null())
    return seen.select("kind", "run_id", "ordinal", "event_time", observer="peer", peer="author")


def _seconds(events: pl.DataFrame, _settings: Mapping[str, Any]) -> pl.DataFrame:
    """Messages and copies by run and second."""
    return (
        events.filter(_KIND.is_in(["sent", "received", "duplicates"]))
        .group_by("run_id", event_time=_TIME.dt.truncate("1s"))
        .agg(
            message_count=(_KIND == "sent").sum().cast(pl.Int64),
            first_copy_count=(_KIND == "received").sum().cast(pl.Int64),
            duplicate_count=pl.col("event_count").filter(_KIND == "duplicates").sum(),
        )
    )


def _active(events: pl.DataFrame, _settings: Mapping[str, Any]) -> pl.DataFrame:
    """Distinct hours and peers."""
    hour = _TIME.dt.truncate("1h").alias("start_time")
    recorded = events.filter(pl.col("peer").is_not_null()).select(hour, "peer").unique()
    # Not `delivered`: a message may be delivered an hour after it was sent, but it is received within moments.
    authors = events.filter(_KIND == "received").select(hour, peer="author").unique()
    return pl.concat([recorded, authors]).unique()


def _signs(events: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Signs of life of subscribers, combined per time slice: a slice is shorter than any limit of the rule, so its
    first and last time are enough."""
    rows = plain(events.filter(_KIND.is_in(SESSION_KINDS)).select(_SIGNS))
    return (
        rows.select(
            "event_time",
            **SIGN_COLUMNS,
            time_slice=_TIME.dt.timestamp("us") // rule(settings).window_us,
        )
        .group_by("peer", "subscriber", "topic", "sign", "time_slice")
        .agg(**_FIRST_AND_LAST)
    )


def _impressions(events: pl.DataFrame, _settings: Mapping[str, Any]) -> pl.DataFrame:
    shown = events.filter(_KIND.eq(EventKind.AD_IMPRESSION.value))
    return shown.select("group_id", "topic", "event_time", "peer", ad_name="name")


def _requests(events: pl.DataFrame, _settings: Mapping[str, Any]) -> pl.DataFrame:
    return events.filter(_KIND.is_in(requests.KINDS)).select(requests.EVENT_COLUMNS)


def _rule_hits(events: pl.DataFrame, _settings: Mapping[str, Any]) -> pl.DataFrame:
    return rule_stats.rule_hits(events)


def _mailbox_changes(events: pl.DataFrame, _settings: Mapping[str, Any]) -> pl.DataFrame:
    return mailbox_stats.mailbox_changes(events)


def _app_entries(events: pl.DataFrame, _settings: Mapping[str, Any]) -> pl.DataFrame:
    return app_entries(events)


def _messages(events: pl.DataFrame, _settings: Mapping[str, Any]) -> pl.DataFrame:
    return messages_function.gather_messages(events)


_MEMBERSHIP = (
    *("kind", "run_id", "ordinal", "event_time", "end_time", "peer", "neighbor", "reason", "name", "event_count"),
)
_SIGNS = ("kind", "event_time", "peer", "author", "name", "topic")
_ON_FABRIC = frozenset({"membership_intervals"})
_ON_AUDIT = frozenset({"delivery_balances"})

SCANS = {
    "messages": Scan(messages_function.EVENT_COLUMNS, _messages, frozenset({"messages"}), needs_deliveries=True),
    "membership": Scan(
        _MEMBERSHIP,
        _membership,
        frozenset({"messages", "recorded_peers", "audit_summary", "link_latency"}) | _ON_FABRIC,
    ),
    "peer_spans": Scan(
        ("peer", "run_id", "event_time", "ordinal"),
        _peer_spans,
        frozenset({"messages", "recorded_peers", "clock_offsets"}) | _ON_FABRIC,
        needs_deliveries=True,
    ),
    "relayed": Scan(
        ("kind", "run_id", "neighbor", "event_time"),
        _relayed,
        frozenset({"messages"}) | _ON_FABRIC,
        needs_deliveries=True,
    ),
    "runs": Scan(("run_id", "event_time"), _runs, frozenset({"channels"}), needs_deliveries=True),
    "held": Scan(("kind", "author", "peer", "sequence"), _held, _ON_AUDIT, needs_deliveries=True),
    "missed": Scan(("kind", "author", "peer", "sequence", "last_sequence"), _missed, frozenset({"messages"})),
    "odd_sendings": Scan(
        ("kind", "author", "sequence", "peer", "run_id", "ordinal", "event_time"),
        _odd_sendings,
        frozenset({"messages"}),
    ),
    "names": Scan(NAME_COLUMNS, _names, frozenset({"author_stats", "sessions"}) | _ON_FABRIC),
    "roster": Scan(
        ("kind", "run_id", "ordinal", "event_time", "peer", "author"), _roster, frozenset({"sessions"}) | _ON_FABRIC
    ),
    "seconds": Scan(
        ("kind", "run_id", "event_time", "event_count"), _seconds, frozenset({"redundancy"}), needs_deliveries=True
    ),
    "active": Scan(("kind", "event_time", "peer", "author"), _active, frozenset({"activity"}), needs_deliveries=True),
    "signs": Scan(_SIGNS, _signs, frozenset({"sessions"})),
    "impressions": Scan(
        ("kind", "name", "group_id", "topic", "event_time", "peer"), _impressions, frozenset({"ad_broadcasts"})
    ),
    "requests": Scan(requests.EVENT_COLUMNS, _requests, frozenset({"requests"})),
    "rule_hits": Scan(rule_stats.EVENT_COLUMNS, _rule_hits, frozenset({"rule_stats"})),
    "mailbox_changes": Scan(mailbox_stats.EVENT_COLUMNS, _mailbox_changes, frozenset({"mailbox_stats"})),
    "app_entries": Scan(APP_COLUMNS, _app_entries, frozenset({"auction_lots", "game_rounds", "meetings"})),
}


def crossing_rows(events: pl.DataFrame) -> pl.DataFrame:
    """What the stage `cross` needs: every event by which a peer has a message."""
    return events.select(CROSSING_COLUMNS).filter(_KIND.is_in(CROSSING_KINDS))
