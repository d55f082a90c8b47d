"""Synthetic flood tapes with known ground truth: links, arrival times and clock offsets.

A random regular fabric in which each message takes the fastest path to every peer. The latency of a link is a fixed
part (equal in both directions) plus a random part per direction and message. Each run has its own clock offset and
drift.
"""

from dataclasses import dataclass

import networkx as nx
import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra

from broadloom.record.arrow_import import pa
from broadloom.record.reader import TABLE_SCHEMA

START_US = 1_767_225_600_000_000  # 2026-01-01
CHANNEL = "00ff00ff00ff00ff"


@dataclass
class FloodTape:
    rows: pa.Table
    offset_s: dict[str, float]
    """By run: how far its clock is ahead at the start."""
    drift: dict[str, float]
    """By run: seconds gained per second."""
    latencies_us: np.ndarray
    """True latency of every delivery."""
    crossings_us: dict[tuple[str, str], list[float]]
    """By sending and receiving peer: true latency of every first copy."""


def flood_tape(
    *,
    peers: int = 40,
    runs: int = 8,
    messages: int = 300,
    seconds: float = 120,
    offset_s_max: float = 5.0,
    drift_ppm_max: float = 0.0,
    fixed_ms: tuple[float, float] = (1.0, 20.0),
    jitter_ms: float = 5.0,
    seed: int = 1,
) -> FloodTape:
    random = np.random.default_rng(seed)
    graph = nx.random_regular_graph(4, peers, seed=seed)
    ends = np.array(graph.edges)
    fixed = random.uniform(*fixed_ms, len(ends)) * 1000
    names = [f"{0xAB00 + peer:016x}" for peer in range(peers)]
    run_of = np.arange(peers) % runs
    offset = random.uniform(-offset_s_max, offset_s_max, runs)
    offset[0] = 0.0
    drift = random.uniform(-drift_ppm_max, drift_ppm_max, runs) * 1e-6
    a, b = np.concatenate([ends[:, 0], ends[:, 1]]), np.concatenate([ends[:, 1], ends[:, 0]])
    rows: list[dict] = []
    latencies: list[float] = []
    took: dict[tuple[str, str], list[float]] = {}

    def shown(peer: int, true_us: float) -> int:
        run = run_of[peer]
        return int(START_US + true_us + offset[run] * 1e6 + drift[run] * true_us + 0.5)

    def note(kind: str, peer: int, true_us: float, author: int, sequence: int, **more) -> None:
        base = {"kind": kind, "run_id": f"run-{run_of[peer]:02}", "peer": names[peer], "author": names[author]}
        rows.append({**base, "event_time": shown(peer, true_us), "sequence": sequence, "true": true_us, **more})

    drawn = [
        (
            int(random.integers(peers)),
            float(random.uniform(0, seconds * 1e6)),
            np.concatenate([fixed, fixed]) + random.exponential(jitter_ms * 1000, 2 * len(ends)),
        )
        for _ in range(messages)
    ]
    for author, said, length in drawn:
        sequence = sum(1 for other, earlier, _ in drawn if other == author and earlier <= said)
        matrix = csr_matrix((length, (a, b)), shape=(peers, peers))
        distance, before = dijkstra(matrix, indices=author, return_predecessors=True)
        note("sent", author, said, author, sequence)
        hops = {author: 0}
        for peer in np.argsort(distance)[1:].tolist():
            came_from = int(before[peer])
            hops[peer] = hops[came_from] + 1
            took.setdefault((names[came_from], names[peer]), []).append(distance[peer] - distance[came_from])
            more = {"hops": hops[peer]}
            note("received", peer, said + distance[peer], author, sequence, neighbor=names[came_from], **more)
            note("delivered", peer, said + distance[peer], author, sequence, **more)
            latencies.append(distance[peer])
    table = tape_rows(sorted(rows, key=lambda row: row.pop("true")))
    offsets, drifts = ({f"run-{run:02}": float(each[run]) for run in range(runs)} for each in (offset, drift))
    return FloodTape(table, offsets, drifts, np.array(latencies), took)


def tape_rows(rows: list[dict]) -> pa.Table:
    """Rows of a tape; missing columns are null or have a default. `event_time` is in microseconds."""
    full = [
        {"ordinal": index, "run_id": "run_id", "channel": CHANNEL, **row, "event_time": round(row["event_time"])}
        for index, row in enumerate(rows)
    ]
    plain = [
        pa.field(field.name, pa.int64() if pa.types.is_timestamp(field.type) else field.type) for field in TABLE_SCHEMA
    ]
    return pa.Table.from_pylist(full, schema=pa.schema(plain)).cast(TABLE_SCHEMA)
