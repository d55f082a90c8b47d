"""The peers of a synthetic channel: when each joined and left or crashed, and the links between them.

Links grow as in Broadloom: a joiner is pinned onto two edges (SWAN), and peers that lost a neighbor are linked with
each other.
"""

import random
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from broadloom.protocol.events import LinkDownReason

DEGREE = 4
STAGGER_S = 0.01
"""Between the joins of two initial peers."""
LEAVING_S = 0.2
"""From `leaving` to `left`."""
CRASH_DETECTION_S = 0.05
"""From a crash to its detection by the neighbors."""
NEVER_S = 1e9


class EndStatus(Enum):
    PRESENT = "present"
    LEFT = "left"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class SyntheticLink:
    """An event at one end of a link."""

    time_s: float
    peer: int
    neighbor: int
    is_up: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class SyntheticPeers:
    ids: list[str]
    machine: NDArray[np.int64]
    joined_s: NDArray[np.float64]
    ended_s: NDArray[np.float64]
    """When it began to leave or crashed; `NEVER_S` if neither."""
    end_status: list[EndStatus]
    links: list[SyntheticLink]
    neighbors: NDArray[np.int64]
    """Some neighbors of each peer."""


def generate_peers(
    seed: int, peers: int, arrivals: int, leaves: int, crashes: int, machines: int, seconds: float
) -> SyntheticPeers:
    """Peer 0 joins first and stays. Others leave, crash and join in the middle of the time."""
    rng = random.Random(seed)
    count = peers + arrivals
    draw = np.random.default_rng(seed)
    ids = [f"{each:016x}" for each in draw.integers(0, 1 << 63, count)]
    joined_s: NDArray[np.float64] = np.arange(count, dtype=np.float64) * STAGGER_S
    joined_s[peers:] = np.sort(draw.uniform(0.2, 0.7, arrivals)) * seconds
    ended_s = np.full(count, NEVER_S)
    ending = [EndStatus.PRESENT] * count
    departing = rng.sample(range(1, peers), min(peers - 1, leaves + crashes))
    for place, peer in enumerate(departing):
        ending[peer] = EndStatus.LEFT if place < leaves else EndStatus.CRASHED
        ended_s[peer] = rng.uniform(0.3, 0.8) * seconds
    links = _links(rng, joined_s, ended_s, ending)
    near = np.tile(np.arange(count)[:, None], (1, DEGREE))
    seen: dict[int, list[int]] = {}
    for each in links:
        if each.is_up and len(seen.setdefault(each.peer, [])) < DEGREE:
            seen[each.peer].append(each.neighbor)
    for peer, others in seen.items():
        near[peer] = [others[place % len(others)] for place in range(DEGREE)]
    return SyntheticPeers(ids, np.arange(count) % machines, joined_s, ended_s, ending, links, near)


def _links(
    rng: random.Random, joined_s: NDArray[np.float64], ended_s: NDArray[np.float64], end_status: list[EndStatus]
) -> list[SyntheticLink]:
    """All link events in order. Peers with free slots are linked to each other."""
    near: dict[int, list[int]] = {}
    events: list[SyntheticLink] = []

    def link(one: int, other: int, time_s: float) -> None:
        near[one].append(other)
        near[other].append(one)
        events.extend((SyntheticLink(time_s, one, other, True), SyntheticLink(time_s, other, one, True)))

    def unlink(one: int, other: int, time_s: float) -> None:
        near[one].remove(other)
        near[other].remove(one)
        reason = LinkDownReason.REWIRED.value
        events.extend(
            (SyntheticLink(time_s, one, other, False, reason), SyntheticLink(time_s, other, one, False, reason))
        )

    def join(peer: int, time_s: float) -> None:
        others = list(near)
        near[peer] = []
        if len(others) <= DEGREE:
            for other in others:
                link(peer, other, time_s)
            return
        for _ in range(20 * DEGREE):
            if len(near[peer]) > DEGREE - 2:
                return
            one = rng.choice(others)
            if one in near[peer] or not near[one]:
                continue
            other = rng.choice(near[one])
            if other != peer and other not in near[peer]:
                unlink(one, other, time_s)
                link(peer, one, time_s)
                link(peer, other, time_s)

    def depart(peer: int, time_s: float) -> None:
        others = near.pop(peer)
        has_crashed = end_status[peer] is EndStatus.CRASHED
        noticed_s = time_s + (CRASH_DETECTION_S if has_crashed else LEAVING_S / 2)
        reason = LinkDownReason.CONNECTION_LOST if has_crashed else LinkDownReason.PEER_LEFT
        for other in others:
            near[other].remove(peer)
            events.append(SyntheticLink(noticed_s, other, peer, False, reason.value))
            if not has_crashed:
                events.append(SyntheticLink(noticed_s, peer, other, False, LinkDownReason.LOCAL_LEAVE.value))
        short = [other for other in near if len(near[other]) < min(DEGREE, len(near) - 1)]
        rng.shuffle(short)
        for place, one in enumerate(short):
            for other in short[place + 1 :]:
                if max(len(near[one]), len(near[other])) < DEGREE and other not in near[one]:
                    link(one, other, noticed_s)

    changes = [(time_s, peer, True) for peer, time_s in enumerate(joined_s)]
    changes += [(time_s, peer, False) for peer, time_s in enumerate(ended_s) if time_s < NEVER_S]
    for time_s, peer, joins in sorted(changes):
        (join if joins else depart)(peer, float(time_s))
    return events
