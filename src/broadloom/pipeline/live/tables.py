"""The live tables and their columns: what a dashboard may rely on."""

from dataclasses import dataclass

from broadloom.pipeline.table import COUNT, FLAG, ID, NUMBER, TEXT, TIME, TableColumn
from broadloom.record.arrow_import import pa


@dataclass(frozen=True, slots=True)
class LiveTable:
    name: str
    question: str
    columns: tuple[TableColumn, ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(each.name, each.type, metadata={"about": each.about}) for each in self.columns])


_CHANNEL = TableColumn("channel", TEXT, "First 16 digits of the channel's id.")
_START = TableColumn("start", TIME, "Beginning of the window.")
_FINAL = TableColumn("final", FLAG, "Whether the row can change no more; otherwise it is what is known so far.")

TRAFFIC = LiveTable(
    "rates",
    "How much happened, window by window?",
    (
        _CHANNEL,
        _START,
        TableColumn("rows", COUNT, "Events of all kinds."),
        TableColumn("sent", COUNT, "Messages broadcast by recorded peers."),
        TableColumn("received", COUNT, "First copies that came."),
        TableColumn("delivered", COUNT, "Messages given to applications, over all observers."),
        TableColumn("duplicates", COUNT, "Further copies that came."),
        TableColumn("missed", COUNT, "Messages that applications were told they would not get."),
        TableColumn("lost", COUNT, "Rows that recorders lost, as their gap rows tell."),
        TableColumn("sent_bytes", COUNT, "Payload of the messages broadcast."),
        TableColumn("delivered_bytes", COUNT, "Payload of the messages given to applications."),
        TableColumn("observers", COUNT, "Peers that recorded something."),
        TableColumn("authors", COUNT, "Peers whose messages were sent or delivered."),
        _FINAL,
    ),
)

LATENCY = LiveTable(
    "latency",
    "How long did messages take, and over how many hops, by the window of their delivery?",
    (
        _CHANNEL,
        _START,
        TableColumn("deliveries", COUNT, "Deliveries whose sending is known; the figures are over these."),
        TableColumn("mean_ms", NUMBER, "Mean delay. Delays are by the clocks as they are, without correction."),
        TableColumn("p50_ms", NUMBER, "Median delay, to 1 %."),
        TableColumn("p90_ms", NUMBER, "Delay that 90 % did not exceed, to 1 %."),
        TableColumn("p99_ms", NUMBER, "Delay that 99 % did not exceed, to 1 %."),
        TableColumn("max_ms", NUMBER, "Longest delay."),
        TableColumn("mean_hops", NUMBER, "Mean number of links travelled."),
        TableColumn("max_hops", COUNT, "Most links travelled."),
        TableColumn(
            "backward", COUNT, "Deliveries before their sending, by clocks that disagree; they count as no delay."
        ),
        TableColumn("unmatched", COUNT, "Deliveries whose sending is not on the tapes, or not yet."),
        _FINAL,
    ),
)

SESSIONS = LiveTable(
    "sessions",
    "Who is or was connected, from when to when?",
    (
        _CHANNEL,
        TableColumn("subscriber", TEXT, "Who, by name."),
        TableColumn("start", TIME, "First sign of life."),
        TableColumn("end", TIME, "End of the connect time; of an open session as far as it is known."),
        TableColumn("identifications", COUNT, "How often the subscriber said that it is here."),
        TableColumn("peers", COUNT, "Peers of the subscriber in this session."),
        TableColumn("ended", TEXT, "How it ended: left or silent; open if it may go on."),
        _FINAL,
    ),
)

FABRIC_SNAPSHOTS = LiveTable(
    "fabric",
    "What did the fabric look like at the end of a window in which it changed?",
    (
        _CHANNEL,
        _START,
        TableColumn("time", TIME, "When it looked so: the end of the window, or the newest event."),
        TableColumn("peers", COUNT, "Recorded peers that are members."),
        TableColumn("unrecorded", COUNT, "Neighbours of these that do not record themselves."),
        TableColumn("links", COUNT, "Links that no end has said to be down."),
        TableColumn("degree_min", COUNT, "Fewest links of a recorded peer."),
        TableColumn("degree_mean", NUMBER, "Mean links of a recorded peer."),
        TableColumn("degree_max", COUNT, "Most links of a recorded peer."),
        TableColumn("components", COUNT, "Parts that are not linked to each other; 1 is whole."),
        TableColumn("diameter", COUNT, "Longest of the shortest ways; null if in parts, or above 512 peers."),
        _FINAL,
    ),
)

EXCLUDED_EVENTS = LiveTable(
    "aside",
    "Which rows are in no table, and why?",
    (
        _CHANNEL,
        TableColumn("batch", COUNT, "The micro-batch that they came in."),
        TableColumn("why", TEXT, "late: older than the watermark; future: too far ahead of the clock."),
        TableColumn("kind", TEXT, "Kind of event."),
        TableColumn("rows", COUNT, "How many."),
        TableColumn("first", TIME, "The oldest."),
        TableColumn("last", TIME, "The newest."),
        TableColumn("observer", ID, "The observer with most of them."),
        _FINAL,
    ),
)

TABLES: dict[str, LiveTable] = {
    each.name: each for each in (TRAFFIC, LATENCY, SESSIONS, FABRIC_SNAPSHOTS, EXCLUDED_EVENTS)
}
