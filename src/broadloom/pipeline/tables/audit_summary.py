"""The result of the audit, one row per channel."""

from datetime import datetime, timedelta

import polars as pl

from broadloom.pipeline.analysis.channel_clock import ChannelClock
from broadloom.pipeline.analysis.fabric_timeline import FabricTimeline
from broadloom.pipeline.analysis.frames import from_rows
from broadloom.pipeline.quarantine import unread_files
from broadloom.pipeline.table import CHANNEL, ChannelInputs, Stage, Table, column
from broadloom.pipeline.tables.audit_findings import FINDINGS
from broadloom.pipeline.tables.fabric_snapshots import DEGREE
from broadloom.pipeline.tables.recorded_peers import SETTLE, disruptions
from broadloom.record.schema import EventKind
from broadloom.testing.checks.settling import FabricState, Verdict, combined_verdict, verdict

NOT_JUDGED = {
    "pending_at_end_count": "sent shortly before the end of the tapes or of a peer",
    "unknown_dropped_rows_count": "possibly among rows that are not on the tapes",
    "unknown_clock_count": "sent too close to a join for the clocks to order them",
}

COLUMNS = (
    CHANNEL,
    column(
        "verdict",
        "`held`, `broken` (a guarantee was violated), `unsettled` (a partition or a repair delays deliveries) or "
        "`unjudged` (nothing was due, a file could not be read, or a peer recorded no delivery).",
    ),
    column("verdict_time", "Time of the last event on the tapes: what the verdict is about."),
    column("waits_for", "What an unsettled verdict waits for; else null."),
    column("message_count", "Messages on the tapes."),
    column("peer_count", "Peers that recorded."),
    column("due_count", "Deliveries that were due and could be judged."),
    column("delivered_count", "Messages delivered, counted once per receiver."),
    *(column(f"{name}_count", f"Findings `{name}`: {about}") for name, about in FINDINGS.items()),
    column("unsettled_count", "Deliveries that wait for a partition or a repair to end."),
    *(column(name, f"Deliveries not judged: {reason}.") for name, reason in NOT_JUDGED.items()),
    column("dropped_row_count", "Rows dropped by recorders, according to `rows_dropped` events."),
    column("quarantined_file_count", "Files of this channel in the table `quarantine`."),
    column("unread_file_count", "Those of them that may have had rows which are missing now."),
    column("unjudged_peer_count", "Members of which nothing could be judged, though messages were sent to them."),
    column("notes", "What could not be judged, and why; null if everything was."),
)

SILENCE_S_MAX = 2.0
"""A member that got nothing, though others sent messages this long before its end, is not just too young."""

SUMMED = ("due_count", "delivered_count", "unsettled_count", *NOT_JUDGED)
"""Columns of `delivery_balances` that are summed up."""


def tapes_end(inputs: ChannelInputs, clock: ChannelClock) -> datetime:
    """Time of the last event."""
    spans = inputs.scan("peer_spans").select("run_id", "last_time")
    end_time = clock.apply(spans, "run_id", "last_time")["last_time"].max()
    assert isinstance(end_time, datetime)
    return end_time


def fabric_at(time: datetime, inputs: ChannelInputs, clock: ChannelClock) -> FabricState:
    """How far the fabric is repaired."""
    lost = disruptions(clock.apply(inputs.scan("membership"), "run_id", "event_time"))
    times = lost["last_disruption_time"].dt.timestamp("us").to_numpy()
    if not len(times):
        return FabricState()
    timeline = FabricTimeline(inputs["links"], inputs["membership_intervals"], int(inputs.settings[DEGREE.name]))
    now = pl.Series([time]).dt.timestamp("us")[0]
    return timeline.state_at(now, times, float(inputs.settings[SETTLE.name]))


def _unjudged_peers(
    peers: pl.DataFrame, messages: pl.DataFrame, sums: pl.DataFrame, clock: ChannelClock
) -> dict[str, int]:
    """Members to which nothing was due that can be judged, and how many messages were sent in the meantime."""
    judged = sums.filter((pl.col("due_count") > 0) | (pl.col("unsettled_count") > 0))["receiver"]
    rest = peers.filter(~pl.col("peer").is_in(judged.implode()) & pl.col("joined_time").is_not_null())
    if not rest.height:
        return {}
    sent = clock.apply(messages.select("author", "run_id", "sent_time"), "run_id", "sent_time")
    found: dict[str, int] = {}
    for peer, start, end in rest.select("peer", "joined_time", "end_time").sort("peer").iter_rows():
        is_meanwhile = pl.col("sent_time").is_between(start, end - timedelta(seconds=SILENCE_S_MAX))
        count = sent.filter(is_meanwhile, pl.col("author") != peer).height
        found |= {peer: count} if count else {}
    return found


def audit_verdict(summaries: pl.DataFrame, quarantined: pl.DataFrame) -> Verdict:
    """Over all channels, and files whose channel is not known."""
    is_idle = (pl.col("verdict") == Verdict.UNJUDGED.value) & (
        pl.sum_horizontal("due_count", "unread_file_count", "unjudged_peer_count") == 0
    )
    verdicts = summaries.filter(~is_idle)["verdict"].to_list()
    return combined_verdict([*verdicts, Verdict.UNJUDGED] if unread_files(quarantined) else verdicts)


def build(inputs: ChannelInputs) -> pl.DataFrame:
    messages, peers = inputs["messages"], inputs["recorded_peers"]
    if not messages.height and not peers.height:
        return from_rows([], COLUMNS)
    sums, findings = inputs.scan("balance_sums"), inputs["audit_findings"]
    counts = dict.fromkeys(FINDINGS, 0) | dict(findings["finding"].value_counts().iter_rows())
    dropped = inputs.scan("membership").filter(pl.col("kind") == EventKind.ROWS_DROPPED.value)
    waiting = int(sums["unsettled_count"].sum())
    clock = ChannelClock.of(inputs)
    silent, unread = _unjudged_peers(peers, messages, sums, clock), unread_files(inputs.quarantine)
    is_judged = bool(sums["due_count"].sum()) and not silent and not unread
    found = verdict(int(findings["is_violation"].sum()), waiting, is_judged=is_judged)
    end_time = tapes_end(inputs, clock)
    waits_for = None
    if found is Verdict.UNSETTLED:
        waits_for = f"{waiting:,} deliveries wait for {fabric_at(end_time, inputs, clock).waits_for}"
    row = {
        "channel": inputs.channel,
        "verdict": found.value,
        "verdict_time": end_time,
        "waits_for": waits_for,
        "message_count": messages.height,
        "peer_count": peers.height,
        **{name: int(sums[name].sum()) for name in SUMMED},
        **{f"{name}_count": count for name, count in counts.items()},
        "dropped_row_count": int(dropped["event_count"].sum()),
        "quarantined_file_count": inputs.quarantine.height,
        "unread_file_count": unread,
        "unjudged_peer_count": len(silent),
    }
    notes = [f"{row[name]} deliveries: {reason}" for name, reason in NOT_JUDGED.items() if row[name]]
    if unread:
        notes.append(f"everything on {unread} files that cannot be used")
    if silent:
        peer, count = next(iter(silent.items()))
        notes.append(
            f"{len(silent)} peers, as {peer}, that got none of the {count} messages sent while it was a member"
        )
    if peers["joined_time"].null_count():
        notes.append(f"{peers['joined_time'].null_count()} peers whose join is not on the tapes")
    return from_rows([{**row, "notes": "; ".join(notes) or None}], COLUMNS)


TABLE = Table(
    "audit_summary",
    "Did every guarantee hold?",
    COLUMNS,
    Stage.FINISH,
    build,
    depends_on=("quarantine", "messages", "recorded_peers", "links", "delivery_balances", "audit_findings"),
    settings=(SETTLE, DEGREE),
)
