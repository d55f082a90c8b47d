"""The audit on a small tape with the pure functions alone: what Spark does, in one cell, in milliseconds."""

from dataclasses import dataclass
from typing import cast

import polars as pl

from broadloom.pipeline.arrow import deliveries, delivery_balances, messages, parents, recorded_peers
from broadloom.pipeline.quarantine import quarantine
from broadloom.record.arrow_import import pa
from broadloom.record.schema import EventKind

SETTLE_S = 10.0
CLOCK_S = 0.5


@dataclass
class AuditResult:
    messages: pl.DataFrame
    deliveries: pl.DataFrame
    recorded_peers: pl.DataFrame
    delivery_balances: pl.DataFrame
    audit: pl.DataFrame

    @property
    def findings(self) -> set[tuple[str, str, int, str]]:
        """Finding, author, sequence, receiver."""
        return set(self.audit.select("finding", "author", "sequence", "receiver").iter_rows())

    @property
    def violations(self) -> set[tuple[str, str, int, str]]:
        return {each for each in self.findings if each[0] != "missed_reported"}


def frame(table: pa.Table) -> pl.DataFrame:
    return cast("pl.DataFrame", pl.from_arrow(table))


def run_audit(tape: pa.Table, quarantined: pa.Table | None = None) -> AuditResult:
    """`tape` as `broadloom.record.reader` gives it; `lacking` as the quarantine."""
    rows = frame(tape)
    aside = quarantined if quarantined is not None else quarantine([])
    said = messages.merge_messages(messages.gather_messages(_select(rows, messages.KINDS, messages.EVENT_COLUMNS)))
    named = rows.rename({"observer": "receiver"})
    told = frame(said).select(
        pl.lit("message").alias("kind"), "channel", "author", "sequence", pl.when("recorded").then("time").alias("time")
    )
    both = pl.concat(
        [named.filter(pl.col("kind").is_in(deliveries.KINDS)).select(deliveries.INPUT_COLUMNS), told], how="diagonal"
    )
    got = deliveries.pair_deliveries(both.to_arrow())
    marks = _select(rows, recorded_peers.MEMBERSHIP_KINDS, recorded_peers.MEMBERSHIP_COLUMNS)
    spans = rows.group_by("channel", "observer", "run").agg(
        pl.col("time").max().alias("last"), pl.col("ordinal").max().alias("last_ordinal")
    )
    who = recorded_peers.recorded_peers(marks, spans.to_arrow(), aside, SETTLE_S)
    present = frame(who).filter(pl.col("ending") == "present")["peer"].implode()
    held = (
        frame(got)
        .filter(pl.col("receiver").is_in(present) & ((pl.col("copies") > 0) | pl.col("missed").is_not_null()))
        .group_by("channel", "author")
        .agg(pl.col("sequence").max().alias("held"))
    )
    last = frame(said).group_by("channel", "author").agg(pl.col("time").filter("recorded").max().alias("last"))
    gaps = pl.concat(
        [
            rows.filter(pl.col("kind") == EventKind.ROWS_DROPPED.value).select(
                "channel", "run", pl.col("time").alias("begin"), pl.col("until").alias("end")
            ),
            frame(aside).filter("lacking").select("channel", "run"),
        ],
        how="diagonal",
    )
    ground = delivery_balances.AuditInputs(
        frame(who).with_columns(pl.lit(0, pl.Int32).alias("column")).to_arrow(),
        delivery_balances.author_bounds(last.to_arrow(), held.to_arrow(), who, SETTLE_S),
        gaps.to_arrow(),
        SETTLE_S,
        CLOCK_S,
    )
    cell = pl.concat(
        [frame(got).select(delivery_balances.DELIVERY_COLUMNS), frame(said).select(delivery_balances.MESSAGE_COLUMNS)],
        how="diagonal",
    ).with_columns(pl.lit(0, pl.Int32).alias("column"))
    told_accounts = frame(delivery_balances.delivery_balances(cell.to_arrow(), ground))
    found = told_accounts.select("channel", "author", pl.col("member").alias("receiver"), "findings")
    found = found.explode("findings").drop_nulls("findings").unnest("findings")
    early = frame(parents.replies_before_parent(_replies(frame(got), frame(said))))
    audit = pl.concat([found, early.select(found.columns)], how="vertical")
    return AuditResult(frame(said), frame(got), frame(who), told_accounts, audit)


def _select(rows: pl.DataFrame, kinds: tuple[str, ...], columns: list[str]) -> pa.Table:
    return rows.filter(pl.col("kind").is_in(kinds)).select(columns).to_arrow()


def _replies(got: pl.DataFrame, said: pl.DataFrame) -> pa.Table:
    got = got.filter(pl.col("copies") > 0)
    place = ["channel", "receiver", "run", "ordinal"]
    own = [pl.col("author").alias("key_author"), pl.col("sequence").alias("key_sequence")]
    named = [pl.col("parent_author").alias("key_author"), pl.col("parent_sequence").alias("key_sequence")]
    sent = said.filter("recorded").with_columns(pl.col("author").alias("receiver"))
    return pl.concat(
        [
            got.filter("answers").select(*place, *named, "author", "sequence", pl.col("delivered").alias("time")),
            got.select(*place, *own),
            sent.select(*place, *own),
        ],
        how="diagonal",
    ).to_arrow()
