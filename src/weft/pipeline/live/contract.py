"""The live tables and their columns: what a dashboard may rely on."""

from dataclasses import dataclass

from weft.pipeline.table import COUNT, FLAG, ID, NUMBER, TEXT, TIME, Column
from weft.record.arrow import pa


@dataclass(frozen=True, slots=True)
class LiveTable:
    name: str
    question: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(each.name, each.type, metadata={"about": each.about}) for each in self.columns])


_CHANNEL = Column("channel", TEXT, "First 16 digits of the channel's id.")
_START = Column("start", TIME, "Beginning of the window.")
_FINAL = Column("final", FLAG, "Whether the row can change no more; otherwise it is what is known so far.")

RATES = LiveTable(
    "rates",
    "How much happened, window by window?",
    (
        _CHANNEL,
        _START,
        Column("rows", COUNT, "Events of all kinds."),
        Column("sent", COUNT, "Messages broadcast by recorded peers."),
        Column("received", COUNT, "First copies that came."),
        Column("delivered", COUNT, "Messages given to applications, over all observers."),
        Column("duplicates", COUNT, "Further copies that came."),
        Column("missed", COUNT, "Messages that applications were told they would not get."),
        Column("lost", COUNT, "Rows that recorders lost, as their gap rows tell."),
        Column("sent_bytes", COUNT, "Payload of the messages broadcast."),
        Column("delivered_bytes", COUNT, "Payload of the messages given to applications."),
        Column("observers", COUNT, "Peers that recorded something."),
        Column("authors", COUNT, "Peers whose messages were sent or delivered."),
        _FINAL,
    ),
)

LATENCY = LiveTable(
    "latency",
    "How long did messages take, and over how many hops, by the window of their delivery?",
    (
        _CHANNEL,
        _START,
        Column("deliveries", COUNT, "Deliveries whose sending is known; the figures are over these."),
        Column("mean_ms", NUMBER, "Mean delay. Delays are by the clocks as they are, without correction."),
        Column("p50_ms", NUMBER, "Median delay, to 1 %."),
        Column("p90_ms", NUMBER, "Delay that 90 % did not exceed, to 1 %."),
        Column("p99_ms", NUMBER, "Delay that 99 % did not exceed, to 1 %."),
        Column("max_ms", NUMBER, "Longest delay."),
        Column("mean_hops", NUMBER, "Mean number of links travelled."),
        Column("max_hops", COUNT, "Most links travelled."),
        Column("backward", COUNT, "Deliveries before their sending, by clocks that disagree; they count as no delay."),
        Column("unmatched", COUNT, "Deliveries whose sending is not on the tapes, or not yet."),
        _FINAL,
    ),
)

SESSIONS = LiveTable(
    "sessions",
    "Who is or was connected, from when to when?",
    (
        _CHANNEL,
        Column("subscriber", TEXT, "Who, by name."),
        Column("start", TIME, "First sign of life."),
        Column("end", TIME, "End of the connect time; of an open session as far as it is known."),
        Column("identifications", COUNT, "How often the subscriber said that it is here."),
        Column("peers", COUNT, "Peers of the subscriber in this session."),
        Column("ended", TEXT, "How it ended: left or silent; open if it may go on."),
        _FINAL,
    ),
)

FABRIC = LiveTable(
    "fabric",
    "What did the fabric look like at the end of a window in which it changed?",
    (
        _CHANNEL,
        _START,
        Column("time", TIME, "When it looked so: the end of the window, or the newest event."),
        Column("peers", COUNT, "Recorded peers that are members."),
        Column("unrecorded", COUNT, "Neighbours of these that do not record themselves."),
        Column("links", COUNT, "Links that no end has said to be down."),
        Column("degree_min", COUNT, "Fewest links of a recorded peer."),
        Column("degree_mean", NUMBER, "Mean links of a recorded peer."),
        Column("degree_max", COUNT, "Most links of a recorded peer."),
        Column("components", COUNT, "Parts that are not linked to each other; 1 is whole."),
        Column("diameter", COUNT, "Longest of the shortest ways; null if in parts, or above 512 peers."),
        _FINAL,
    ),
)

ASIDE = LiveTable(
    "aside",
    "Which rows are in no table, and why?",
    (
        _CHANNEL,
        Column("batch", COUNT, "The micro-batch that they came in."),
        Column("why", TEXT, "late: older than the watermark; future: too far ahead of the clock."),
        Column("kind", TEXT, "Kind of event."),
        Column("rows", COUNT, "How many."),
        Column("first", TIME, "The oldest."),
        Column("last", TIME, "The newest."),
        Column("observer", ID, "The observer with most of them."),
        _FINAL,
    ),
)

TABLES: dict[str, LiveTable] = {each.name: each for each in (RATES, LATENCY, SESSIONS, FABRIC, ASIDE)}
