"""The stages as pure functions of frames (see the package). They know nothing of Spark."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from broadloom.pipeline.analysis.channel_clock import ChannelClock
from broadloom.pipeline.analysis.clock_correction import ClockCorrection
from broadloom.pipeline.analysis.frames import MICROSECONDS_PER_S, arrow, conform, from_rows
from broadloom.pipeline.analysis.link_crossings import FASTEST, merge_fastest
from broadloom.pipeline.billing.config import BillingConfig
from broadloom.pipeline.engine.events import TEXT, FlawedFiles, plain
from broadloom.pipeline.engine.scans import DELIVERY_KINDS, SCANS
from broadloom.pipeline.table import ChannelInputs, Stage
from broadloom.pipeline.tables import all_tables, audit_summary, delivery_balances, latency
from broadloom.pipeline.tables.audit_findings import (
    FINDING_COLUMNS,
    findings_of_balances,
    forged_findings,
    replies_before_parent,
)
from broadloom.pipeline.tables.audit_summary import fabric_at, tapes_end
from broadloom.pipeline.tables.clock_offsets import COLUMNS as CLOCK_OFFSETS
from broadloom.pipeline.tables.clock_offsets import estimate_clock_offsets
from broadloom.pipeline.tables.deliveries import EVENT_COLUMNS as DELIVERY_COLUMNS
from broadloom.pipeline.tables.deliveries import MESSAGE_COLUMNS as SENT_COLUMNS
from broadloom.pipeline.tables.deliveries import deliveries_table, pair_deliveries
from broadloom.pipeline.tables.delivery_balances import CLOCK_TOLERANCE, AuditInputs, author_bounds
from broadloom.pipeline.tables.invoices import build_invoices
from broadloom.pipeline.tables.recorded_peers import SETTLE, missing_rows
from broadloom.record.arrow_import import pa, pq
from broadloom.record.schema import EventKind
from broadloom.testing.checks.settling import FabricState

ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)
"""Since when a fabric is settled that was never disturbed."""

Frames = dict[str, pl.DataFrame]


@dataclass(frozen=True, slots=True)
class Job:
    """What every task of a build needs to know."""

    wanted: frozenset[str]
    """Tables to compute: those to write, and their inputs."""
    written: frozenset[str]
    """Tables to write."""
    folder: str
    """Where tables are written: a folder per table."""
    settings: Mapping[str, Any]
    billing: BillingConfig
    quarantine: pl.DataFrame
    flawed: FlawedFiles | None = None
    previous_invoices: pl.DataFrame | None = None

    def inputs(self, channel: str, scans: Frames, clocks: pl.DataFrame | None = None) -> ChannelInputs:
        own = self.quarantine.filter(pl.col("channel") == channel)
        return ChannelInputs(channel, scans, self.settings, own, self.billing, _correction(clocks))

    @property
    def has_clocks(self) -> bool:
        return "clock_offsets" in self.wanted

    @property
    def has_crossings(self) -> bool:
        """Whether all crossings of links are needed. For clocks, some are enough."""
        return "link_latency" in self.wanted

    def scan_columns(self) -> list[str]:
        """Columns that the first scan reads."""
        chosen = [each.columns for each in SCANS.values() if each.tables & self.wanted]
        crossing = [("kind", "run_id", "event_time", "peer", "author", "sequence", "neighbor")] * self.has_clocks
        return list(dict.fromkeys(["event_time", *(name for columns in [*chosen, *crossing] for name in columns)]))

    def pair_columns(self) -> list[str]:
        """Columns that the second scan reads."""
        columns = DELIVERY_COLUMNS if "deliveries" in self.wanted else latency.EVENT_COLUMNS
        return list(dict.fromkeys([*columns, *(latency.EVENT_COLUMNS if "latency" in self.wanted else ())]))

    @property
    def has_pairs(self) -> bool:
        return bool({"deliveries", "latency"} & self.wanted)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    table: str
    name: str
    rows: int
    bytes: int
    seconds: float


@dataclass(slots=True)
class TableWriter:
    """Writes tables as Parquet, under a name that no other attempt of the same task uses."""

    job: Job
    label: str
    attempt: int = 0
    files: list[WrittenFile] = field(default_factory=list)

    def write(self, name: str, rows: pl.DataFrame | pa.Table, seconds: float = 0.0) -> None:
        """A frame, or Arrow of which texts are dictionaries."""
        if name not in self.job.written:
            return
        began = time.monotonic()
        path = Path(self.job.folder) / name / f"part-{self.label}-{self.attempt}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        table = arrow(rows) if isinstance(rows, pl.DataFrame) else rows
        pq.write_table(table, path, compression="zstd", store_schema=False)
        seconds += time.monotonic() - began
        self.files.append(WrittenFile(name, path.name, table.num_rows, path.stat().st_size, round(seconds, 4)))


def scan(job: Job, events: pl.DataFrame) -> Frames:
    """The first scan of a part."""
    found: Frames = {}
    few: pl.DataFrame | None = None
    for name, each in SCANS.items():
        if not each.tables & job.wanted:
            continue
        rows = events
        if not each.needs_deliveries:
            few = rows = few if few is not None else events.filter(~pl.col("kind").is_in(DELIVERY_KINDS))
        # Only its columns: a filter copies all that are there.
        found[name] = each.function(rows.select(each.columns), job.settings)
    return found


def build_stage(job: Job, stage: Stage, inputs: ChannelInputs, writer: TableWriter) -> None:
    """Build the tables of a stage that are built per channel."""
    for each in all_tables():
        if each.stage is stage and each.name in job.wanted and each.build is not None:
            began = time.monotonic()
            inputs.tables[each.name] = each.build(inputs)
            writer.write(each.name, inputs.tables[each.name], time.monotonic() - began)


def audit_inputs(job: Job, inputs: ChannelInputs) -> AuditInputs:
    """What the audit needs of the whole channel, from the stage `merge`."""
    clock = ChannelClock.of(inputs)
    messages = inputs["messages"].select(delivery_balances.MESSAGE_COLUMNS)
    messages = _by_one_clock(messages, inputs.scan("first_seen"), clock).sort("author", "sequence")
    membership = inputs.scan("membership")
    joined = membership.filter(pl.col("kind") == EventKind.JOINED.value).sort("ordinal").unique("peer", keep="first")
    peers = inputs["recorded_peers"].drop("channel")
    peers = peers.join(joined.select("peer", own_joined_time="event_time"), on="peer", how="left")
    settle_s = float(job.settings[SETTLE.name])
    held, missed = inputs.scan("held"), inputs.scan("missed")
    bounds = author_bounds(messages, held, missed, peers, settle_s + 2 * clock.error_us_max / MICROSECONDS_PER_S)
    gaps = missing_rows(membership, inputs.quarantine).with_columns(common_end=pl.col("gap_end"))
    gaps = clock.apply(gaps, "run_id", "common_end")
    end_time = tapes_end(inputs, clock)
    state = fabric_at(end_time, inputs, clock)
    settled = None if state.repairing_s is not None else end_time - timedelta(seconds=state.repaired_s or 0.0)
    if state == FabricState():
        settled = ALWAYS
    tolerance_s = float(job.settings[CLOCK_TOLERANCE.name])
    return AuditInputs(
        messages, peers, bounds, gaps, settle_s, tolerance_s, clock.errors_us, end_time=end_time, settled_time=settled
    )


def _by_one_clock(messages: pl.DataFrame, first_seen: pl.DataFrame, clock: ChannelClock) -> pl.DataFrame:
    """With `sent_time` by the clock of the channel; of a message that was not recorded, when it was first seen."""
    keys = ["author", "sequence"]
    messages = clock.apply(messages, "run_id", "sent_time")
    if not first_seen.height:
        return messages
    seen = clock.apply(first_seen, "run_id", "first_seen_time").group_by(keys).agg(pl.col("first_seen_time").min())
    messages = messages.join(seen, on=keys, how="left")
    return messages.with_columns(sent_time=pl.coalesce("first_seen_time", "sent_time")).drop("first_seen_time")


def pair(
    job: Job,
    channel: str,
    events: pl.DataFrame,
    messages: pl.DataFrame,
    audit: AuditInputs | None,
    clocks: pl.DataFrame | None,
    writer: TableWriter,
) -> Frames:
    """The second scan of a part: writes deliveries and balances, and returns what `finish` needs of them."""
    found: Frames = {}
    known = messages.select(delivery_balances.MESSAGE_COLUMNS)
    if "deliveries" in job.wanted:
        began = time.monotonic()
        sent = known.select(SENT_COLUMNS).with_columns(pl.col("author").cast(TEXT))
        deliveries, forged, keys = pair_deliveries(events, sent)
        if "deliveries" in job.written:
            writer.write("deliveries", deliveries_table(deliveries, channel), time.monotonic() - began)
        if "delivery_balances" in job.wanted and audit is not None:
            began = time.monotonic()
            receivers = plain(events.select(pl.col("peer").unique().drop_nulls()))["peer"]
            balances = delivery_balances.delivery_balances(deliveries, forged, receivers, audit)
            balances = conform(balances.with_columns(channel=pl.lit(channel)), delivery_balances.COLUMNS)
            writer.write("delivery_balances", balances, time.monotonic() - began)
            early = replies_before_parent(deliveries, keys, known)
            listed = findings_of_balances(balances)
            every = [each.select(FINDING_COLUMNS) for each in (listed, early, forged_findings(forged))]
            found["findings"] = pl.concat(every)
            found["balance_sums"] = balances.group_by("receiver").agg(pl.col(audit_summary.SUMMED).sum())
    if "latency" in job.wanted:
        timed = latency.latencies(events, known.filter("is_recorded"), _correction(clocks))
        found["latency_counts"] = latency.count_latencies(timed)
    return found


RUN_SPANS = ("run_id", "first_time", "last_time")


def clock_offsets(fastest: list[pl.DataFrame], spans: pl.DataFrame) -> pl.DataFrame:
    """Over all channels: a process that takes part in several has one clock. `spans`: `RUN_SPANS` of `peer_spans`."""
    spans = (
        plain(spans).group_by("run_id").agg(start_time=pl.col("first_time").min(), end_time=pl.col("last_time").max())
    )
    known = FASTEST.to_frame() if not fastest else merge_fastest(pl.concat(fastest))
    return estimate_clock_offsets(known, spans)


INVOICED = ("channels", "sessions", "usage", "auction_lots")
"""Tables over which invoices are made."""


def build_all_channels(job: Job, clocks: pl.DataFrame | None, tables: Frames, writer: TableWriter) -> None:
    """The tables over all channels; `tables` has what invoices are built from."""
    writer.write("quarantine", job.quarantine)
    if clocks is not None:
        writer.write("clock_offsets", clocks)
    if "invoices" in job.wanted:
        began = time.monotonic()
        rows = build_invoices(tables, job.previous_invoices, job.settings, job.billing)
        writer.write("invoices", rows, time.monotonic() - began)


def _correction(clocks: pl.DataFrame | None) -> ClockCorrection:
    return ClockCorrection(from_rows([], CLOCK_OFFSETS) if clocks is None else clocks)
