"""Generates tapes with known ground truth, in the layout and schema of the recorder: ten million rows in under a
minute.

The same config gives the same rows. Each channel is generated in memory, at about 150 bytes per row.
"""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from broadloom.record.schema import CHANNEL_DIGITS, EventKind
from tools.synthetic.peers import LEAVING_S, NEVER_S, EndStatus, SyntheticPeers, generate_peers
from tools.synthetic.rows import SyntheticRows, TextPools, write
from tools.synthetic.traffic import (
    US,
    SyntheticDeliveries,
    SyntheticMessages,
    generate_deliveries,
    generate_messages,
)

BEGIN = datetime(2026, 1, 5, 12, tzinfo=UTC)
DUPLICATES_PER_MESSAGE = 2
"""Further copies of each message, as in a fabric with four links per peer."""

STARTED_S = 0.001
"""Nothing is recorded before peer 0 has joined."""


@dataclass(frozen=True, slots=True)
class SyntheticConfig:
    rows: int = 100_000
    """Approximate rows per channel."""
    peers: int = 100
    arrivals: int = 10
    """Peers that join later."""
    leaves: int = 10
    crashes: int = 10
    machines: int = 8
    """Each machine records its peers in one run."""
    seconds: float = 600.0
    channels: int = 1
    groups: int = 8
    topics: int = 4
    reply_ratio: float = 0.5
    """Ratio of messages that reply to another one."""
    identification_interval_s: float = 60.0
    ads: int = 3
    skew_s: float = 0.0
    """Maximum offset of the machines' clocks."""
    begin: datetime = BEGIN
    seed: int = 1


@dataclass(frozen=True, slots=True)
class GroundTruth:
    """What is on a synthetic channel."""

    channel: str
    """First digits of its ID."""
    rows: int
    messages: int
    deliveries: int
    peers: SyntheticPeers
    skews_s: tuple[float, ...]
    """By machine."""
    runs: tuple[str, ...]


def generate(folder: Path | str, config: SyntheticConfig | None = None) -> list[GroundTruth]:
    config = config or SyntheticConfig()
    return [_channel(Path(folder), config, config.seed * 1_000 + number) for number in range(config.channels)]


def _channel(folder: Path, config: SyntheticConfig, seed: int) -> GroundTruth:
    peers = generate_peers(
        seed, config.peers, config.arrivals, config.leaves, config.crashes, config.machines, config.seconds
    )
    mean_peers = float(np.sum(np.minimum(peers.ended_s, config.seconds) - peers.joined_s)) / config.seconds
    count = max(1, round(config.rows / (2 * max(mean_peers - 1, 0.5) + 1)))
    messages = generate_messages(seed, peers, count, config.seconds, config.groups, config.topics, config.reply_ratio)
    deliveries = generate_deliveries(seed, peers, messages)
    channel = hashlib.sha256(f"made {seed}".encode()).hexdigest()
    draw = np.random.default_rng([seed, 3])
    skews_s = draw.uniform(-config.skew_s, config.skew_s, config.machines)
    runs = tuple(f"{config.begin:%Y%m%dT%H%M%S}-{digits:08x}" for digits in draw.integers(0, 1 << 32, config.machines))
    pools = TextPools(
        peers.ids, [f"subscriber-{peer:05d}" for peer in range(len(peers.ids))], config.groups, config.topics
    )
    rows = _rows(config, peers, messages, deliveries, pools)
    write(folder, channel, runs, rows, pools, peers.machine, (skews_s * US).astype(np.int64), config.begin)
    return GroundTruth(
        channel[:CHANNEL_DIGITS],
        len(rows),
        count,
        int(deliveries.is_delivered.sum()),
        peers,
        tuple(float(each) for each in skews_s),
        runs,
    )


def _rows(
    config: SyntheticConfig,
    synthetic_peers: SyntheticPeers,
    messages: SyntheticMessages,
    deliveries: SyntheticDeliveries,
    pools: TextPools,
) -> SyntheticRows:
    rows = SyntheticRows()
    about = {"size_bytes": messages.size, "group_id": messages.group, "topic": messages.topic}
    parent = {
        "parent_author": np.where(messages.parent >= 0, messages.author[np.maximum(messages.parent, 0)], -1),
        "parent_sequence": np.where(messages.parent >= 0, messages.sequence[np.maximum(messages.parent, 0)], -1),
    }
    rows.add(
        EventKind.SENT,
        messages.sent_us,
        messages.author,
        author=messages.author,
        sequence=messages.sequence,
        **about,
        **parent,
    )
    way = np.random.default_rng([config.seed, 4]).integers(
        0, synthetic_peers.neighbors.shape[1], len(deliveries.message)
    )
    named = {
        "author": messages.author[deliveries.message],
        "sequence": messages.sequence[deliveries.message],
        "size_bytes": messages.size[deliveries.message],
    }
    relays = synthetic_peers.neighbors[deliveries.receiver, way]
    rows.add(
        EventKind.RECEIVED,
        deliveries.received_us,
        deliveries.receiver,
        hops=deliveries.hops,
        neighbor=relays,
        **named,
    )
    there = deliveries.is_delivered
    rows.add(
        EventKind.DELIVERED,
        deliveries.delivered_us[there],
        deliveries.receiver[there],
        hops=deliveries.hops[there],
        group_id=messages.group[deliveries.message[there]],
        topic=messages.topic[deliveries.message[there]],
        **{name: column[there] for name, column in named.items()},
        **{name: column[deliveries.message[there]] for name, column in parent.items()},
    )
    _add_duplicates(rows, config, synthetic_peers, deliveries)
    _add_membership(rows, synthetic_peers)
    _add_subscribers(rows, config, synthetic_peers, pools)
    return rows


def _add_duplicates(
    rows: SyntheticRows, config: SyntheticConfig, synthetic_peers: SyntheticPeers, deliveries: SyntheticDeliveries
) -> None:
    """Counted per peer and second, recorded at the end of the second if the peer is still present."""
    seconds = int(config.seconds) + 2
    cells, counts = np.unique(deliveries.receiver * seconds + deliveries.received_us // US, return_counts=True)
    receiver, time_us = cells // seconds, (cells % seconds + 1) * US
    there = time_us < synthetic_peers.ended_s[receiver] * US
    rows.add(EventKind.DUPLICATES, time_us[there], receiver[there], event_count=counts[there] * DUPLICATES_PER_MESSAGE)


def _add_membership(rows: SyntheticRows, synthetic_peers: SyntheticPeers) -> None:
    peers = np.arange(len(synthetic_peers.ids))
    rows.add(EventKind.JOINED, (synthetic_peers.joined_s * US).astype(np.int64), peers, name=peers)
    left = np.array([peer for peer in peers if synthetic_peers.end_status[peer] is EndStatus.LEFT], dtype=np.int64)
    rows.add(EventKind.LEAVING, (synthetic_peers.ended_s[left] * US).astype(np.int64), left)
    rows.add(EventKind.LEFT, ((synthetic_peers.ended_s[left] + LEAVING_S) * US).astype(np.int64), left)
    for is_up, kind in ((True, EventKind.LINK_UP), (False, EventKind.LINK_DOWN)):
        links = [link for link in synthetic_peers.links if link.is_up is is_up]
        other = np.array([link.neighbor for link in links], dtype=np.int64)
        rows.add(
            kind,
            np.array([int(link.time_s * US) for link in links], dtype=np.int64),
            np.array([link.peer for link in links], dtype=np.int64),
            neighbor=other,
            address=other,
            reason=None
            if is_up
            else np.array([TextPools.REASONS.index(link.reason or "") for link in links], dtype=np.int64),
        )


def _add_subscribers(
    rows: SyntheticRows, config: SyntheticConfig, synthetic_peers: SyntheticPeers, pools: TextPools
) -> None:
    """Peer 0 records all identifications. Ads are shown to all peers that are present."""
    until_s = np.minimum(synthetic_peers.ended_s, config.seconds)
    counts = (
        np.maximum(0, ((until_s - synthetic_peers.joined_s) // config.identification_interval_s)).astype(np.int64) + 1
    )
    peer = np.repeat(np.arange(len(synthetic_peers.ids)), counts)
    turn = np.arange(len(peer)) - np.repeat(np.cumsum(counts) - counts, counts)
    time_s = np.maximum(synthetic_peers.joined_s[peer] + turn * config.identification_interval_s + 0.1, STARTED_S)
    rows.add(
        EventKind.IDENTIFICATION, (time_s * US).astype(np.int64), np.zeros(len(peer), np.int64), author=peer, name=peer
    )
    for number in range(config.ads):
        shown_s = config.seconds * (number + 1) / (config.ads + 1)
        there = np.flatnonzero(
            (synthetic_peers.joined_s < shown_s)
            & (synthetic_peers.ended_s > shown_s + 0.1)
            & (synthetic_peers.ended_s <= NEVER_S)
        )
        time_us = np.full(len(there), int(shown_s * US)) + there * 10
        group = np.full(len(there), number % config.groups if config.groups else -1)
        rows.add(EventKind.AD_IMPRESSION, time_us, there, name=np.full(len(there), pools.ad(number)), group_id=group)
