"""The live tables and their columns."""

from broadloom.pipeline.table import CHANNEL, COUNT, Stage, Table, column

_START = column("start_time", "Start of the window.")
_FINAL = column("is_final", "Whether the row can no longer change.")

TRAFFIC = Table(
    "traffic",
    "How much was sent and delivered per window?",
    (
        CHANNEL,
        _START,
        column("event_count", "Events of all kinds."),
        column("sent_count", "Messages broadcast by recorded peers."),
        column("received_count", "First copies received."),
        column("delivered_count", "Messages delivered to applications, over all peers."),
        column("duplicate_count", "Further copies received."),
        column("missed_count", "Messages reported to applications as missed."),
        column("dropped_row_count", "Rows dropped by recorders."),
        column("sent_bytes", "Payload of the messages broadcast."),
        column("delivered_bytes", "Payload of the messages delivered."),
        column("peer_count", "Peers that recorded an event."),
        column("author_count", "Peers whose messages were sent or delivered."),
        _FINAL,
    ),
    Stage.LIVE,
)

LATENCY = Table(
    "latency",
    "How long did deliveries take per window, and over how many hops?",
    (
        CHANNEL,
        _START,
        column("delivery_count", "Deliveries whose sending is known; the other columns are over these."),
        column("latency_mean_ms", "Mean latency. Clocks are not corrected."),
        column("latency_p50_ms", "Median latency, accurate to 1 %."),
        column("latency_p90_ms", "90th percentile."),
        column("latency_p99_ms", "99th percentile."),
        column("latency_max_ms", "Longest latency."),
        column("hops_mean", "Mean number of links traveled."),
        column("hops_max", "Most links traveled."),
        column("negative_count", "Deliveries before their sending, because clocks differ; counted as 0 ms."),
        column("untimed_count", "Deliveries whose sending is not on the tapes, or not yet."),
        _FINAL,
    ),
    Stage.LIVE,
)

SESSIONS = Table(
    "sessions",
    "Who is or was connected, from when to when?",
    (
        CHANNEL,
        column("subscriber", "Name of the subscriber; its peer ID if it has no name."),
        column("start_time", "First sign of life."),
        column("end_time", "End of the connect time; of an open session, so far."),
        column("identification_count", "Identifications, each counted once."),
        column("peer_count", "Peers of the subscriber in this session."),
        column("end_status", "`left`, `timed_out`, or `open` if it may continue."),
        _FINAL,
    ),
    Stage.LIVE,
)

FABRIC_SNAPSHOTS = Table(
    "fabric_snapshots",
    "What did the fabric look like at the end of each window in which it changed?",
    (
        CHANNEL,
        _START,
        column("snapshot_time", "End of the window, or the newest event."),
        column("peer_count", "Recorded peers that are members."),
        column("unrecorded_count", "Neighbors of these without a tape."),
        column("link_count", "Links that no end has recorded as down."),
        column("degree_min", "Fewest links of a recorded peer."),
        column("degree_mean", "Mean links of a recorded peer."),
        column("degree_max", "Most links of a recorded peer."),
        column("component_count", "Connected components; 1 if the fabric is connected."),
        column("diameter", "Diameter; null if not connected, or above 512 peers."),
        _FINAL,
    ),
    Stage.LIVE,
)

EXCLUDED_EVENTS = Table(
    "excluded_events",
    "Which events are in no live table, and why?",
    (
        CHANNEL,
        column("batch_id", "Micro-batch they arrived in.", COUNT),
        column(
            "reason", "`late` (older than the watermark), `future` (too far ahead of the clock), or as in `quarantine`."
        ),
        column("kind", "Kind of event."),
        column("event_count", "Number of events."),
        column("first_event_time", "Time of the oldest."),
        column("last_event_time", "Time of the newest."),
        column("peer", "Peer that recorded most of them."),
        _FINAL,
    ),
    Stage.LIVE,
)

TABLES: dict[str, Table] = {each.name: each for each in (TRAFFIC, LATENCY, SESSIONS, FABRIC_SNAPSHOTS, EXCLUDED_EVENTS)}
