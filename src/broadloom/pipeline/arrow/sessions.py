"""From signs of life to sessions: a subscriber is connected until nothing has been heard of it for too long.

The rule, for each peer of a subscriber: two signs belong together if no more than `silence_us` lies between them. What
belongs together is a span, from its first sign to its last one and `tail_us` beyond; if the peer itself said that it
left, then until exactly that moment. A subscriber's session is what the spans of all its peers cover without a break.

It does not matter in which order signs came or how often one was seen: the same signs give the same sessions, and one
that comes late and closes a break makes one session of two at the next run.
"""

from dataclasses import dataclass

import polars as pl

from broadloom.pipeline.arrow.frames import to_arrow, to_polars
from broadloom.pipeline.table import TableSettingError
from broadloom.record.arrow_import import pa

_TIME = pa.timestamp("us", tz="UTC")
SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class SessionRule:
    interval_s: float
    """How often a subscriber says that it is here."""
    missed_max: int
    """How many of these may be lacking before the session is over."""
    grace_s: float
    """How much late one may be."""
    tail_s: float
    """How long after its last sign a subscriber counts as connected, if it did not say that it left."""
    window_s: float
    """What is seen by several observers within this time is one identification."""

    def __post_init__(self) -> None:
        if self.interval_s <= 0 or self.missed_max < 0 or self.grace_s < 0 or self.tail_s < 0:
            raise TableSettingError(
                "identification_s has to be above 0, and missed_max, slack_s and tail_s not below 0"
            )
        if not 0 < self.window_s < self.interval_s:
            raise TableSettingError(
                f"identification_spread_s has to be above 0 and below identification_s, not {self.window_s}"
            )
        if self.tail_us > self.timeout_us:
            raise TableSettingError(
                f"session_tail_s may be at most the silence that ends a session, {self.timeout_us / SECOND_US} s here"
            )

    @property
    def timeout_us(self) -> int:
        """More than this between two signs, and the session was over."""
        return round((self.interval_s * (1 + self.missed_max) + self.grace_s) * SECOND_US)

    @property
    def tail_us(self) -> int:
        return round(self.tail_s * SECOND_US)

    @property
    def window_us(self) -> int:
        return round(self.window_s * SECOND_US)


SIGNS: pa.Schema = pa.schema(
    [
        ("channel", pa.string()),
        ("peer", pa.string()),
        ("subscriber", pa.string()),
        ("sign", pa.string()),
        ("first", _TIME),
        ("last", _TIME),
    ]
)
"""Signs of life, those within `spread_us` already put together: `sign` is identification, joined or left. The
subscriber is told by identifications only."""

SPANS: pa.Schema = pa.schema(
    [
        ("channel", pa.string()),
        ("subscriber", pa.string()),
        ("peer", pa.string()),
        ("start", _TIME),
        ("last", _TIME),
        ("end", _TIME),
        ("left", pa.bool_()),
        ("identifications", pa.int64()),
    ]
)

SESSIONS: pa.Schema = pa.schema(
    [
        ("channel", pa.string()),
        ("subscriber", pa.string()),
        ("start", _TIME),
        ("end", _TIME),
        ("connected_us", pa.int64()),
        ("identifications", pa.int64()),
        ("peers", pa.int64()),
        ("ended", pa.string()),
    ]
)

_KEYS = ["channel", "subscriber", "peer"]
_PEER = ["channel", "peer"]


def spans(signs: pa.Table, rule: SessionRule) -> pa.Table:
    """When each peer of a subscriber was connected. All signs of a peer have to be in the table."""
    frame = to_polars(signs)
    said = _identifications(frame.filter(pl.col("sign") == "identification"), rule)
    joined = frame.filter(pl.col("sign") == "joined").select(*_PEER, "first", "last", fresh=pl.lit(0, pl.Int64))
    left = frame.filter(pl.col("sign") == "left").group_by(_PEER).agg(left=pl.col("first").min())
    subscribers = said.select(_KEYS).unique()
    lives = (
        pl.concat([said, subscribers.join(joined, on=_PEER).select(said.columns)])
        .join(left, on=_PEER, how="left")
        # A message under way when its author left is seen after that.
        .with_columns(pl.min_horizontal("first", "left"), pl.min_horizontal("last", "left"))
        .sort([*_KEYS, "first", "last"])
    )
    parted = _starts_group(_KEYS) | (pl.col("first") - _furthest_end("last", _KEYS) > rule.timeout_us)
    found = (
        lives.with_columns(span=parted.cum_sum())
        .group_by("span", maintain_order=True)
        .agg(
            *(pl.col(key).first() for key in _KEYS),
            start=pl.col("first").min(),
            last=pl.col("last").max(),
            said_left=pl.col("left").first(),
            identifications=pl.col("fresh").sum(),
        )
        .with_columns(left=(pl.col("said_left") - pl.col("last") <= rule.timeout_us).fill_null(False))
        .with_columns(end=pl.when("left").then("said_left").otherwise(pl.col("last") + rule.tail_us))
    )
    return to_arrow(found, SPANS)


def sessions(spans: pa.Table, rule: SessionRule) -> pa.Table:
    """Spans of a subscriber put together. `until` of a span is how far the tape of its channel reaches: a session is
    counted no further, and is open if the silence at its end may yet be broken."""
    keys = ["channel", "subscriber"]
    frame = (
        to_polars(spans)
        .with_columns(open=~pl.col("left") & (pl.col("last") + rule.timeout_us >= pl.col("until")))
        .with_columns(end=pl.max_horizontal(pl.min_horizontal("end", "until"), "last"))
        .sort([*keys, "start", "end", "peer"])
    )
    parted = _starts_group(keys) | (pl.col("start") > _furthest_end("end", keys))
    found = (
        frame.with_columns(session=parted.cum_sum())
        .group_by("session", maintain_order=True)
        .agg(
            *(pl.col(key).first() for key in keys),
            pl.col("start").min(),
            pl.col("end").max(),
            pl.col("identifications").sum(),
            peers=pl.col("peer").n_unique().cast(pl.Int64),
            open=pl.col("open").any(),
            left=(pl.col("left") & (pl.col("end") == pl.col("end").max())).any(),
        )
        .with_columns(
            connected_us=pl.col("end") - pl.col("start"),
            ended=pl.when("open").then(pl.lit("open")).when("left").then(pl.lit("left")).otherwise(pl.lit("silent")),
        )
    )
    return to_arrow(found, SESSIONS)


def _identifications(signs: pl.DataFrame, rule: SessionRule) -> pl.DataFrame:
    """With `fresh` 1 where a new identification begins, and 0 where another observer saw the same one."""
    signs = signs.select(*_KEYS, "first", "last").sort([*_KEYS, "first", "last"])
    fresh = _starts_group(_KEYS) | (pl.col("first") - _furthest_end("last", _KEYS) > rule.window_us)
    return signs.with_columns(fresh=fresh.cast(pl.Int64))


def _starts_group(keys: list[str]) -> pl.Expr:
    """In a sorted table: whether a row begins new keys."""
    return pl.any_horizontal(pl.col(key).ne_missing(pl.col(key).shift(1)) for key in keys)


def _furthest_end(end: str, keys: list[str]) -> pl.Expr:
    """The furthest that the rows before this one, of the same keys, reach."""
    return pl.col(end).cum_max().shift(1).over(keys)
