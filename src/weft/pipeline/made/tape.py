"""Makes a tape with known truth: the layout and schema of the recorder, ten million rows in well under a minute.

The same plan makes the same rows. Each channel is made in memory as a whole, about 150 bytes a row.
"""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from weft.pipeline.made.members import LEAVING_S, NEVER_S, Ending, Members, members
from weft.pipeline.made.rows import Pools, Rows, write
from weft.pipeline.made.traffic import US, Deliveries, Messages, deliveries, messages
from weft.record.schema import CHANNEL_DIGITS, Kind

BEGIN = datetime(2026, 1, 5, 12, tzinfo=UTC)
COPIES = 2
"""Further copies of each message, as a fabric of four links brings them."""

STARTED_S = 0.001
"""Nothing is noted before peer 0 has joined."""


@dataclass(frozen=True, slots=True)
class Plan:
    rows: int = 100_000
    """About so many, of each channel."""
    peers: int = 100
    arrivals: int = 10
    """Of further peers, later."""
    leaves: int = 10
    deaths: int = 10
    machines: int = 8
    """Each records its peers in a run of its own."""
    seconds: float = 600.0
    channels: int = 1
    groups: int = 8
    topics: int = 4
    response: float = 0.5
    """Share of messages that respond to another."""
    identify_s: float = 60.0
    """Each subscriber says so often that it is here."""
    adverts: int = 3
    skew_s: float = 0.0
    """The machines' clocks differ from the truth by up to this."""
    begin: datetime = BEGIN
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Truth:
    """What is on a made channel."""

    channel: str
    """First digits of its id."""
    rows: int
    messages: int
    deliveries: int
    members: Members
    skews_s: tuple[float, ...]
    """By machine."""
    runs: tuple[str, ...]


def make(folder: Path | str, plan: Plan | None = None) -> list[Truth]:
    """Write it, channel by channel."""
    plan = plan or Plan()
    return [_channel(Path(folder), plan, plan.seed * 1_000 + number) for number in range(plan.channels)]


def _channel(folder: Path, plan: Plan, seed: int) -> Truth:
    who = members(seed, plan.peers, plan.arrivals, plan.leaves, plan.deaths, plan.machines, plan.seconds)
    here = float(np.sum(np.minimum(who.ended_s, plan.seconds) - who.joined_s)) / plan.seconds
    count = max(1, round(plan.rows / (2 * max(here - 1, 0.5) + 1)))
    said = messages(seed, who, count, plan.seconds, plan.groups, plan.topics, plan.response)
    got = deliveries(seed, who, said)
    channel = hashlib.sha256(f"made {seed}".encode()).hexdigest()
    draw = np.random.default_rng([seed, 3])
    skews_s = draw.uniform(-plan.skew_s, plan.skew_s, plan.machines)
    runs = tuple(f"{plan.begin:%Y%m%dT%H%M%S}-{digits:08x}" for digits in draw.integers(0, 1 << 32, plan.machines))
    pools = Pools(who.ids, [f"subscriber-{peer:05d}" for peer in range(len(who.ids))], plan.groups, plan.topics)
    rows = _rows(plan, who, said, got, pools)
    write(folder, channel, runs, rows, pools, who.machine, (skews_s * US).astype(np.int64), plan.begin)
    return Truth(
        channel[:CHANNEL_DIGITS],
        len(rows),
        count,
        int(got.is_delivered.sum()),
        who,
        tuple(float(each) for each in skews_s),
        runs,
    )


def _rows(plan: Plan, who: Members, said: Messages, got: Deliveries, pools: Pools) -> Rows:
    rows = Rows()
    about = {"size": said.size, "group": said.group, "topic": said.topic}
    parent = {
        "parent_author": np.where(said.parent >= 0, said.author[np.maximum(said.parent, 0)], -1),
        "parent_sequence": np.where(said.parent >= 0, said.sequence[np.maximum(said.parent, 0)], -1),
    }
    rows.add(Kind.SENT, said.sent_us, said.author, author=said.author, sequence=said.sequence, **about, **parent)
    way = np.random.default_rng([plan.seed, 4]).integers(0, who.near.shape[1], len(got.message))
    named = {"author": said.author[got.message], "sequence": said.sequence[got.message], "size": said.size[got.message]}
    brought = who.near[got.receiver, way]
    rows.add(Kind.RECEIVED, got.received_us, got.receiver, hops=got.hops, neighbour=brought, **named)
    there = got.is_delivered
    rows.add(
        Kind.DELIVERED,
        got.delivered_us[there],
        got.receiver[there],
        hops=got.hops[there],
        group=said.group[got.message[there]],
        topic=said.topic[got.message[there]],
        **{name: column[there] for name, column in named.items()},
        **{name: column[got.message[there]] for name, column in parent.items()},
    )
    _add_duplicates(rows, plan, who, got)
    _add_membership(rows, who)
    _add_subscribers(rows, plan, who, pools)
    return rows


def _add_duplicates(rows: Rows, plan: Plan, who: Members, got: Deliveries) -> None:
    """Counted for each peer and second, told at the second's end if it is still there."""
    seconds = int(plan.seconds) + 2
    cells, counts = np.unique(got.receiver * seconds + got.received_us // US, return_counts=True)
    receiver, time_us = cells // seconds, (cells % seconds + 1) * US
    there = time_us < who.ended_s[receiver] * US
    rows.add(Kind.DUPLICATES, time_us[there], receiver[there], count=counts[there] * COPIES)


def _add_membership(rows: Rows, who: Members) -> None:
    peers = np.arange(len(who.ids))
    rows.add(Kind.JOINED, (who.joined_s * US).astype(np.int64), peers, name=peers)
    left = np.array([peer for peer in peers if who.ending[peer] is Ending.LEFT], dtype=np.int64)
    rows.add(Kind.LEAVING, (who.ended_s[left] * US).astype(np.int64), left)
    rows.add(Kind.LEFT, ((who.ended_s[left] + LEAVING_S) * US).astype(np.int64), left)
    for is_up, kind in ((True, Kind.LINK_UP), (False, Kind.LINK_DOWN)):
        links = [link for link in who.links if link.is_up is is_up]
        other = np.array([link.neighbour for link in links], dtype=np.int64)
        rows.add(
            kind,
            np.array([int(link.time_s * US) for link in links], dtype=np.int64),
            np.array([link.observer for link in links], dtype=np.int64),
            neighbour=other,
            address=other,
            why=None if is_up else np.array([Pools.WHYS.index(link.why or "") for link in links], dtype=np.int64),
        )


def _add_subscribers(rows: Rows, plan: Plan, who: Members, pools: Pools) -> None:
    """Peer 0 keeps the books: it notes who says that it is here. Adverts are shown to all who are there."""
    until_s = np.minimum(who.ended_s, plan.seconds)
    counts = np.maximum(0, ((until_s - who.joined_s) // plan.identify_s)).astype(np.int64) + 1
    peer = np.repeat(np.arange(len(who.ids)), counts)
    turn = np.arange(len(peer)) - np.repeat(np.cumsum(counts) - counts, counts)
    time_s = np.maximum(who.joined_s[peer] + turn * plan.identify_s + 0.1, STARTED_S)
    rows.add(Kind.IDENTIFICATION, (time_s * US).astype(np.int64), np.zeros(len(peer), np.int64), author=peer, name=peer)
    for number in range(plan.adverts):
        shown_s = plan.seconds * (number + 1) / (plan.adverts + 1)
        there = np.flatnonzero((who.joined_s < shown_s) & (who.ended_s > shown_s + 0.1) & (who.ended_s <= NEVER_S))
        time_us = np.full(len(there), int(shown_s * US)) + there * 10
        group = np.full(len(there), number % plan.groups if plan.groups else -1)
        rows.add(Kind.ADVERT, time_us, there, name=np.full(len(there), pools.advert(number)), group=group)
