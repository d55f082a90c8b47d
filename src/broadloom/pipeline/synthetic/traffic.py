"""What is said on a made channel, and who gets it when: arrays, message by message and delivery by delivery.

It keeps every promise: a message reaches each peer that is a member from its sending on, once, in its author's order,
and a response after what it responds to.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from broadloom.pipeline.synthetic.peers import NEVER_S, EndStatus, SyntheticPeers

US = 1_000_000
IDLE_S = 1.0
"""A peer says nothing so shortly after it came, and before it leaves."""
UNDELIVERED_S = 0.5
"""What a peer says so shortly before its death reaches nobody."""
REPLY_DELAY_S = 1.0
"""The least from a message to a response: longer than any delivery takes."""
BACKFILL_S = 0.05
"""A newcomer gets also what was said so shortly before it joined."""
CHUNK_PAIRS = 2_000_000

Ints = NDArray[np.int64]


@dataclass(slots=True)
class SyntheticMessages:
    author: Ints
    sequence: Ints
    sent_us: Ints
    size: Ints
    group: Ints
    """Number of the group; -1 for none."""
    topic: Ints
    parent: Ints
    """Place of the message that it responds to; -1 for none."""


@dataclass(slots=True)
class SyntheticDeliveries:
    message: Ints
    """Its place."""
    receiver: Ints
    received_us: Ints
    delivered_us: Ints
    is_delivered: NDArray[np.bool_]
    """Else it was received, but the peer went before it was its turn."""
    hops: Ints


def generate_messages(
    seed: int, synthetic_peers: SyntheticPeers, count: int, seconds: float, groups: int, topics: int, reply_ratio: float
) -> SyntheticMessages:
    """`response` is the share of messages that respond to another of their group."""
    draw = np.random.default_rng([seed, 1])
    start_s = float(synthetic_peers.joined_s[synthetic_peers.joined_s < 0.19 * seconds].max()) + IDLE_S
    sent_s = np.sort(draw.uniform(min(start_s, 0.5 * seconds), seconds - 2 * IDLE_S, count))
    author = _authors(draw, synthetic_peers, sent_s)
    group = draw.integers(0, groups, count) if groups else np.full(count, -1)
    sent_us = (sent_s * US).astype(np.int64)
    # No two at the same microsecond, so that there is one order.
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
    has_died = np.array([each is EndStatus.CRASHED for each in synthetic_peers.end_status])
    unspread = has_died[messages.author] & (messages.sent_us > ended_us[messages.author] - int(UNDELIVERED_S * US))
    slowness = draw.uniform(0.8, 2.0, peers)
    reach = max(2.0, np.log(max(peers, 3)) / np.log(3))
    parts = []
    step = max(1, CHUNK_PAIRS // peers)
    for first in range(0, count, step):
        places = np.arange(first, min(first + step, count))
        sent_us = messages.sent_us[places][:, None]
        may = (sent_us > joined_us - int(BACKFILL_S * US)) & (sent_us < ended_us) & ~unspread[places][:, None]
        may[np.arange(len(places)), messages.author[places]] = False
        row, receiver = np.nonzero(may)
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
    """Few say most; only those who are there say anything. Peer 0 is always there."""
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
    """An earlier message of the same group, old enough that everyone has it, said when its answerer was there."""
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
    """When each is delivered: not before those of the same author that were sent before it."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    begins = np.r_[False, ordered[1:] != ordered[:-1]] if len(ordered) else np.zeros(0, bool)
    # One running maximum for all: each group lies wholly above the one before it, and each delivery a microsecond after
    # the one before it.
    places = np.arange(len(ordered))
    lift = np.cumsum(begins, dtype=np.int64) * (int(arrived_us.max(initial=0)) + len(ordered) + 1) - places
    delivered = np.empty_like(arrived_us)
    delivered[order] = np.maximum.accumulate(arrived_us[order] + lift) - lift
    return delivered
