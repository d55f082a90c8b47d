"""The audit with the pure Arrow functions alone: what Spark does, in one cell and in milliseconds."""

from dataclasses import dataclass
from typing import cast

import polars as pl

from broadloom.pipeline.arrow import deliveries, delivery_balances, messages, parents, recorded_peers
from broadloom.pipeline.quarantine import quarantine
from broadloom.record.arrow_import import pa
from broadloom.record.schema import EventKind

SETTLE_S = 10.0
CLOCK_TOLERANCE_S = 0.5


@dataclass
class AuditResult:
    messages: pl.DataFrame
    deliveries: pl.DataFrame
    recorded_peers: pl.DataFrame
    delivery_balances: pl.DataFrame
    audit_findings: pl.DataFrame

    @property
    def findings(self) -> set[tuple[str, str, int, str]]:
        """Finding, author, sequence, receiver."""
        return set(self.audit_findings.select("finding", "author", "sequence", "receiver").iter_rows())

    @property
    def violations(self) -> set[tuple[str, str, int, str]]:
        return {each for each in self.findings if each[0] != "reported_missed"}


def frame(table: pa.Table) -> pl.DataFrame:
    return cast("pl.DataFrame", pl.from_arrow(table))


def run_audit(tape: pa.Table, quarantined: pa.Table | None = None) -> AuditResult:
    """`tape` as returned by `broadloom.record.read`."""
    rows = frame(tape)
    excluded = quarantined if quarantined is not None else quarantine([])
    found_messages = frame(
        messages.merge_messages(messages.gather_messages(_select(rows, messages.KINDS, messages.EVENT_COLUMNS)))
    )
    sendings = found_messages.select(
        pl.lit(deliveries.MESSAGE).alias("kind"),
        "channel",
        "author",
        "sequence",
        pl.when("is_recorded").then("sent_time").alias("event_time"),
    )
    events = rows.rename({"peer": "receiver"}).filter(pl.col("kind").is_in(deliveries.KINDS))
    events = pl.concat([events.select(deliveries.INPUT_COLUMNS), sendings], how="diagonal")
    found_deliveries = frame(deliveries.pair_deliveries(events.to_arrow()))
    membership = _select(rows, recorded_peers.MEMBERSHIP_KINDS, recorded_peers.MEMBERSHIP_COLUMNS)
    spans = rows.group_by("channel", "peer", "run_id").agg(
        pl.col("event_time").max().alias("last_event_time"), pl.col("ordinal").max().alias("last_ordinal")
    )
    peers = recorded_peers.recorded_peers(membership, spans.to_arrow(), excluded, SETTLE_S)
    present = frame(peers).filter(pl.col("end_status") == "present")["peer"].implode()
    is_held = (pl.col("delivery_count") > 0) | pl.col("missed_time").is_not_null()
    held = (
        found_deliveries.filter(pl.col("receiver").is_in(present) & is_held)
        .group_by("channel", "author")
        .agg(pl.col("sequence").max().alias("held"))
    )
    last_sent = pl.col("sent_time").filter("is_recorded").max().alias("last_sent_time")
    authors = found_messages.group_by("channel", "author").agg(last_sent)
    gaps = pl.concat(
        [
            rows.filter(pl.col("kind") == EventKind.ROWS_DROPPED.value).select(
                "channel", "run_id", pl.col("event_time").alias("gap_start"), pl.col("end_time").alias("gap_end")
            ),
            frame(excluded).filter("leaves_gap").select("channel", "run_id"),
        ],
        how="diagonal",
    )
    one_cell = pl.lit(0, pl.Int32).alias("grid_column")
    inputs = delivery_balances.AuditInputs(
        frame(peers).with_columns(one_cell).to_arrow(),
        delivery_balances.author_bounds(authors.to_arrow(), held.to_arrow(), peers, SETTLE_S),
        gaps.to_arrow(),
        SETTLE_S,
        CLOCK_TOLERANCE_S,
    )
    cell = pl.concat(
        [
            found_deliveries.select(delivery_balances.DELIVERY_COLUMNS),
            found_messages.select(delivery_balances.MESSAGE_COLUMNS),
        ],
        how="diagonal",
    ).with_columns(one_cell)
    balances = frame(delivery_balances.delivery_balances(cell.to_arrow(), inputs))
    findings = balances.select("channel", "author", "receiver", "findings")
    findings = findings.explode("findings").drop_nulls("findings").unnest("findings")
    early = frame(parents.replies_before_parent(_replies(found_deliveries, found_messages)))
    findings = pl.concat([findings, early.select(findings.columns)], how="vertical")
    return AuditResult(found_messages, found_deliveries, frame(peers), balances, findings)


def _select(rows: pl.DataFrame, kinds: tuple[str, ...], columns: list[str]) -> pa.Table:
    return rows.filter(pl.col("kind").is_in(kinds)).select(columns).to_arrow()


def _replies(found_deliveries: pl.DataFrame, found_messages: pl.DataFrame) -> pa.Table:
    delivered = found_deliveries.filter(pl.col("delivery_count") > 0)
    position = ["channel", "receiver", "run_id", "ordinal"]
    own_key = [pl.col("author").alias("key_author"), pl.col("sequence").alias("key_sequence")]
    parent_key = [pl.col("parent_author").alias("key_author"), pl.col("parent_sequence").alias("key_sequence")]
    sent = found_messages.filter("is_recorded").with_columns(pl.col("author").alias("receiver"))
    replies = delivered.filter("is_reply").select(
        *position, *parent_key, "author", "sequence", pl.col("delivered_time").alias("event_time")
    )
    return pl.concat(
        [replies, delivered.select(*position, *own_key), sent.select(*position, *own_key)], how="diagonal"
    ).to_arrow()
