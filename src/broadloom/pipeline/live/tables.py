"""The live tables and their columns."""

from dataclasses import dataclass

from broadloom.pipeline.table import CHANNEL, COUNT, FLAG, ID, NUMBER, TEXT, TIME, TableColumn
from broadloom.record.arrow_import import pa


@dataclass(frozen=True, slots=True)
class LiveTable:
    name: str
    question: str
    columns: tuple[TableColumn, ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(each.name, each.type, metadata={"about": each.about}) for each in self.columns])


_START = TableColumn("start_time", TIME, "Start of the window.")
_FINAL = TableColumn("is_final", FLAG, "Whether the row can no longer change.")

TRAFFIC = LiveTable(
    "traffic",
    "How much was sent and delivered per window?",
    (
        CHANNEL,
        _START,
        TableColumn("event_count", COUNT, "Events of all kinds."),
        TableColumn("sent_count", COUNT, "Messages broadcast by recorded peers."),
        TableColumn("received_count", COUNT, "First copies received."),
        TableColumn("delivered_count", COUNT, "Messages delivered to applications, over all peers."),
        TableColumn("duplicate_count", COUNT, "Further copies received."),
        TableColumn("missed_count", COUNT, "Messages reported to applications as missed."),
        TableColumn("dropped_row_count", COUNT, "Rows dropped by recorders."),
        TableColumn("sent_bytes", COUNT, "Payload of the messages broadcast."),
        TableColumn("delivered_bytes", COUNT, "Payload of the messages delivered."),
        TableColumn("peer_count", COUNT, "Peers that recorded an event."),
        TableColumn("author_count", COUNT, "Peers whose messages were sent or delivered."),
        _FINAL,
    ),
)

LATENCY = LiveTable(
    "latency",
    "How long did deliveries take per window, and over how many hops?",
    (
        CHANNEL,
        _START,
        TableColumn("delivery_count", COUNT, "Deliveries whose sending is known; the other columns are over these."),
        TableColumn("latency_mean_ms", NUMBER, "Mean latency. Clocks are not corrected."),
        TableColumn("latency_p50_ms", NUMBER, "Median latency, accurate to 1 %."),
        TableColumn("latency_p90_ms", NUMBER, "90th percentile."),
        TableColumn("latency_p99_ms", NUMBER, "99th percentile."),
        TableColumn("latency_max_ms", NUMBER, "Longest latency."),
        TableColumn("hops_mean", NUMBER, "Mean number of links traveled."),
        TableColumn("hops_max", COUNT, "Most links traveled."),
        TableColumn(
            "negative_count", COUNT, "Deliveries before their sending, because clocks differ; counted as 0 ms."
        ),
        TableColumn("untimed_count", COUNT, "Deliveries whose sending is not on the tapes, or not yet."),
        _FINAL,
    ),
)

SESSIONS = LiveTable(
    "sessions",
    "Who is or was connected, from when to when?",
    (
        CHANNEL,
        TableColumn("subscriber", TEXT, "Name of the subscriber; its peer ID if it has no name."),
        TableColumn("start_time", TIME, "First sign of life."),
        TableColumn("end_time", TIME, "End of the connect time; of an open session, so far."),
        TableColumn("identification_count", COUNT, "Identifications, each counted once."),
        TableColumn("peer_count", COUNT, "Peers of the subscriber in this session."),
        TableColumn("end_status", TEXT, "`left`, `timed_out`, or `open` if it may continue."),
        _FINAL,
    ),
)

FABRIC_SNAPSHOTS = LiveTable(
    "fabric_snapshots",
    "What did the fabric look like at the end of each window in which it changed?",
    (
        CHANNEL,
        _START,
        TableColumn("snapshot_time", TIME, "End of the window, or the newest event."),
        TableColumn("peer_count", COUNT, "Recorded peers that are members."),
        TableColumn("unrecorded_count", COUNT, "Neighbors of these without a tape."),
        TableColumn("link_count", COUNT, "Links that no end has recorded as down."),
        TableColumn("degree_min", COUNT, "Fewest links of a recorded peer."),
        TableColumn("degree_mean", NUMBER, "Mean links of a recorded peer."),
        TableColumn("degree_max", COUNT, "Most links of a recorded peer."),
        TableColumn("component_count", COUNT, "Connected components; 1 if the fabric is connected."),
        TableColumn("diameter", COUNT, "Diameter; null if not connected, or above 512 peers."),
        _FINAL,
    ),
)

EXCLUDED_EVENTS = LiveTable(
    "excluded_events",
    "Which events are in no live table, and why?",
    (
        CHANNEL,
        TableColumn("batch_id", COUNT, "Micro-batch they arrived in."),
        TableColumn(
            "reason",
            TEXT,
            "`late` (older than the watermark), `future` (too far ahead of the clock), or as in `quarantine`.",
        ),
        TableColumn("kind", TEXT, "Kind of event."),
        TableColumn("event_count", COUNT, "Number of events."),
        TableColumn("first_event_time", TIME, "Time of the oldest."),
        TableColumn("last_event_time", TIME, "Time of the newest."),
        TableColumn("peer", ID, "Peer that recorded most of them."),
        _FINAL,
    ),
)

TABLES: dict[str, LiveTable] = {
    each.name: each for each in (TRAFFIC, LATENCY, SESSIONS, FABRIC_SNAPSHOTS, EXCLUDED_EVENTS)
}
