"""Metrics of a tape over time, the same that a local cluster reports.

Clocks are taken from the tape without correction; the pipeline's tables are exact.
"""

from collections import Counter
from math import nan
from pathlib import Path

from broadloom.record import read
from broadloom.record.arrow_import import pa, pc
from broadloom.record.schema import EventKind
from broadloom.testing.cluster.metrics import MetricsSample

SAMPLES_MAX = 600
COUNTED_KINDS = (
    EventKind.SENT,
    EventKind.DELIVERED,
    EventKind.RECEIVED,
    EventKind.DUPLICATES,
    EventKind.MISSED,
    EventKind.LINK_UP,
    EventKind.LINK_DOWN,
)
MESSAGE_KEY = ("author", "sequence")


def tape_metrics(path: Path, channel: str) -> list[MetricsSample]:
    """One sample per second, or every few seconds for a long tape."""
    columns = ["kind", "event_time", "author", "sequence", "last_sequence", "hops", "event_count"]
    rows = read(path, channel=channel, kinds=COUNTED_KINDS, columns=columns)
    if not rows.num_rows:
        return []
    ends = pc.min_max(rows["event_time"]).as_py()
    start_s, length_s = ends["min"].timestamp(), (ends["max"] - ends["min"]).total_seconds()
    step_s = max(1.0, length_s / SAMPLES_MAX)
    seconds = pc.divide(pc.cast(pc.cast(rows["event_time"], pa.int64()), pa.float64()), 1e6)
    bins = pc.floor(pc.divide(pc.subtract(seconds, start_s), step_s))
    rows = rows.append_column("bin", pc.cast(bins, pa.int64()))
    counts = _counts(rows)
    hops = _hops(rows)
    latencies = _latencies(rows)
    samples = []
    for place in range(int(length_s / step_s) + 1):
        received, copies = counts[place, EventKind.RECEIVED.value], counts[place, EventKind.DUPLICATES.value]
        p50, p99 = latencies.get(place, (nan, nan))
        middle, most = hops.get(place, (nan, 0))
        samples.append(
            MetricsSample(
                at_s=start_s + (place + 1) * step_s,
                peers=0,
                sent_per_s=counts[place, EventKind.SENT.value] / step_s,
                delivered_per_s=counts[place, EventKind.DELIVERED.value] / step_s,
                latency_p50_ms=p50,
                latency_p99_ms=p99,
                hops_p50=middle,
                hops_max=most,
                redundancy=(received + copies) / received if received else nan,
                slow_peers=0,
                missed=counts[place, EventKind.MISSED.value],
                # Both ends record a link.
                links_made=(counts[place, EventKind.LINK_UP.value] + 1) // 2,
                links_lost=(counts[place, EventKind.LINK_DOWN.value] + 1) // 2,
            )
        )
    return samples


def _rows_of_kind(rows: pa.Table, kind: EventKind) -> pa.Table:
    return rows.filter(pc.equal(rows["kind"], kind.value))


def _counts(rows: pa.Table) -> Counter[tuple[int, str]]:
    """By bin and kind. One row may stand for several duplicates or missed messages."""
    is_duplicates, is_missed = (pc.equal(rows["kind"], kind.value) for kind in (EventKind.DUPLICATES, EventKind.MISSED))
    missed = pc.add(pc.subtract(rows["last_sequence"], rows["sequence"]), 1)
    weights = pc.if_else(is_duplicates, rows["event_count"], pc.if_else(is_missed, missed, 1))
    summed = rows.append_column("weight", weights).group_by(["bin", "kind"]).aggregate([("weight", "sum")])
    return Counter({(each["bin"], each["kind"]): each["weight_sum"] for each in summed.to_pylist()})


def _hops(rows: pa.Table) -> dict[int, tuple[float, int]]:
    found = (
        _rows_of_kind(rows, EventKind.DELIVERED)
        .group_by("bin")
        .aggregate([("hops", "approximate_median"), ("hops", "max")])
    )
    return {each["bin"]: (round(each["hops_approximate_median"]), each["hops_max"]) for each in found.to_pylist()}


def _latencies(rows: pa.Table) -> dict[int, tuple[float, float]]:
    """By time of delivery, in milliseconds."""
    sent = (
        _rows_of_kind(rows, EventKind.SENT).select([*MESSAGE_KEY, "event_time"]).rename_columns([*MESSAGE_KEY, "sent"])
    )
    joined = (
        _rows_of_kind(rows, EventKind.DELIVERED)
        .select([*MESSAGE_KEY, "event_time", "bin"])
        .join(sent, list(MESSAGE_KEY), join_type="inner")
    )
    if not joined.num_rows:
        return {}
    micros = pc.subtract(pc.cast(joined["event_time"], pa.int64()), pc.cast(joined["sent"], pa.int64()))
    latencies = pa.table({"bin": joined["bin"], "ms": pc.divide(pc.cast(micros, pa.float64()), 1000.0)})
    options = pc.TDigestOptions(q=[0.5, 0.99])
    found = latencies.group_by("bin").aggregate([("ms", "tdigest", options)])
    return {each["bin"]: tuple(each["ms_tdigest"]) for each in found.to_pylist()}
