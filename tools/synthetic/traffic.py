"""Messages and deliveries of a synthetic channel, as arrays.

Every guarantee holds: a message reaches each peer that is a member when it is sent, once, in the order of its author,
and a reply after its parent.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tools.synthetic.peers import NEVER_S, EndStatus, SyntheticPeers

US = 1_000_000
IDLE_S = 1.0
"""A peer sends nothing right after it joined and right before it leaves."""
UNDELIVERED_S = 0.5
"""Messages sent this shortly before a crash reach no peer."""
REPLY_DELAY_S = 1.0
"""Minimum time from a message to a reply: longer than any delivery takes."""
BACKFILL_S = 0.05
"""A joiner also gets messages sent this shortly before it joined."""
CHUNK_PAIRS = 2_000_000

Ints = NDArray[np.int64]


@dataclass(slots=True)
class SyntheticMessages:
    author: Ints
    sequence: Ints
    sent_us: Ints
    size: Ints
    group: Ints
    """Index of the group; -1 for none."""
    topic: Ints
    parent: Ints
    """Index of the message it replies to; -1 for none."""


@dataclass(slots=True)
class SyntheticDeliveries:
    message: Ints
    """Index of the message."""
    receiver: Ints
    received_us: Ints
    delivered_us: Ints
    is_delivered: NDArray[np.bool_]
    """False if it was received, but the peer was gone before it could be delivered in order."""
    hops: Ints


def generate_messages(
    seed: int, synthetic_peers: SyntheticPeers, count: int, seconds: float, groups: int, topics: int, reply_ratio: float
) -> SyntheticMessages:
    draw = np.random.default_rng([seed, 1])
    start_s = float(synthetic_peers.joined_s[synthetic_peers.joined_s < 0.19 * seconds].max()) + IDLE_S
    sent_s = np.sort(draw.uniform(min(start_s, 0.5 * seconds), seconds - 2 * IDLE_S, count))
    author = _authors(draw, synthetic_peers, sent_s)
    group = draw.integers(0, groups, count) if groups else np.full(count, -1)
    sent_us = (sent_s * US).astype(np.int64)
    # No two in the same microsecond, so that the order is unique.
    sent_us = np.maximum.accumulate(sent_us - np.arange(count)) + np.arange(count)
    return SyntheticMessages(
        author,
        _running_numbers(author),
        sent_us,
        draw.integers(16, 1200, count),
        group,
        np.where(group >= 0, group % topics, -1) if topics else np.full(count, -1),
        _parents(draw, synthetic_peers, sent_us, author, group, reply_ratio) if groups else np.full(count, -1),
    )


def generate_deliveries(seed: int, synthetic_peers: SyntheticPeers, messages: SyntheticMessages) -> SyntheticDeliveries:
    draw = np.random.default_rng([seed, 2])
    count, peers = len(messages.author), len(synthetic_peers.ids)
    joined_us = (synthetic_peers.joined_s * US).astype(np.int64)
    ended_us = (np.minimum(synthetic_peers.ended_s, NEVER_S) * US).astype(np.int64)
    has_crashed = np.array([each is EndStatus.CRASHED for each in synthetic_peers.end_status])
    unspread = has_crashed[messages.author] & (messages.sent_us > ended_us[messages.author] - int(UNDELIVERED_S * US))
    slowness = draw.uniform(0.8, 2.0, peers)
    reach = max(2.0, np.log(max(peers, 3)) / np.log(3))
    parts = []
    step = max(1, CHUNK_PAIRS // peers)
    for first in range(0, count, step):
        places = np.arange(first, min(first + step, count))
        sent_us = messages.sent_us[places][:, None]
        may_receive = (sent_us > joined_us - int(BACKFILL_S * US)) & (sent_us < ended_us) & ~unspread[places][:, None]
        may_receive[np.arange(len(places)), messages.author[places]] = False
        row, receiver = np.nonzero(may_receive)
        hops = np.maximum(1, np.rint(draw.normal(reach, 1.0, len(row)))).astype(np.int64)
        took_us = (hops * slowness[receiver] * draw.uniform(500, 2500, len(row))).astype(np.int64)
        arrived_us = np.maximum(messages.sent_us[places[row]] + took_us, joined_us[receiver] + 1000)
        parts.append((places[row], receiver, arrived_us, hops))
    message, receiver, received_us, hops = (np.concatenate(column) for column in zip(*parts, strict=True))
    delivered_us = _in_author_order(messages.author[message] * peers + receiver, received_us) + 10
    came = received_us < ended_us[receiver]
    is_delivered = (delivered_us < ended_us[receiver])[came]
    return SyntheticDeliveries(
        message[came], receiver[came], received_us[came], delivered_us[came], is_delivered, hops[came]
    )


def _authors(draw: np.random.Generator, synthetic_peers: SyntheticPeers, sent_s: NDArray[np.float64]) -> Ints:
    """A few peers send most; only present peers send. Peer 0 is always present."""
    peers = len(synthetic_peers.ids)
    weight = 1 / np.arange(1, peers + 1) ** 0.7
    rank = draw.permutation(peers)
    weight = weight[rank] / weight.sum()
    quiet_s = np.array([IDLE_S if each is EndStatus.LEFT else 0.0 for each in synthetic_peers.end_status])
    author = draw.choice(peers, len(sent_s), p=weight)
    absent = np.zeros(len(sent_s), bool)
    for _ in range(50):
        absent = (sent_s < synthetic_peers.joined_s[author] + IDLE_S) | (
            sent_s > synthetic_peers.ended_s[author] - quiet_s[author]
        )
        absent &= author != 0
        if not absent.any():
            break
        author[absent] = draw.choice(peers, int(absent.sum()), p=weight)
    else:
        author[absent] = 0
    return author.astype(np.int64)


def _running_numbers(author: Ints) -> Ints:
    order = np.argsort(author, kind="stable")
    ordered = author[order]
    begins = np.r_[0, np.flatnonzero(np.diff(ordered)) + 1] if len(ordered) else np.zeros(0, np.int64)
    counts = np.diff(np.r_[begins, len(ordered)])
    sequence = np.empty(len(author), np.int64)
    sequence[order] = np.arange(len(ordered)) - np.repeat(begins, counts) + 1
    return sequence


def _parents(
    draw: np.random.Generator, synthetic_peers: SyntheticPeers, sent_us: Ints, author: Ints, group: Ints, ratio: float
) -> Ints:
    """An earlier message of the same group, old enough to be everywhere, sent when the replier was present."""
    parent = np.full(len(author), -1)
    joined_us = (synthetic_peers.joined_s * US).astype(np.int64)
    for number in range(int(group.max()) + 1 if len(group) else 0):
        places = np.flatnonzero(group == number)
        old = np.searchsorted(sent_us[places], sent_us[places] - int(REPLY_DELAY_S * US))
        back = np.minimum(draw.geometric(0.2, len(places)), old)
        chosen = np.where(old > 0, old - back, -1)
        parent[places] = np.where(chosen >= 0, places[np.maximum(chosen, 0)], -1)
    known = sent_us[np.maximum(parent, 0)] > joined_us[author] + int(BACKFILL_S * US)
    return np.where((parent >= 0) & known & (draw.random(len(author)) < ratio), parent, -1)


def _in_author_order(group: Ints, arrived_us: Ints) -> Ints:
    """Delivery times: not before earlier messages of the same author."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    begins = np.r_[False, ordered[1:] != ordered[:-1]] if len(ordered) else np.zeros(0, bool)
    # One running maximum for all: each group is lifted above the previous one, and each delivery comes a microsecond
    # after the previous one.
    places = np.arange(len(ordered))
    lift = np.cumsum(begins, dtype=np.int64) * (int(arrived_us.max(initial=0)) + len(ordered) + 1) - places
    delivered = np.empty_like(arrived_us)
    delivered[order] = np.maximum.accumulate(arrived_us[order] + lift) - lift
    return delivered
