"""The peers of a made channel: when each came and went and how, and the links between them all the while.

Links grow as Broadloom's do: a newcomer is pinned onto two edges, and those whose neighbour went are tied to each
other.
"""

import random
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from broadloom.protocol.events import LinkDownReason

DEGREE = 4
STAGGER_S = 0.01
"""Between two of the peers that are there from the beginning."""
LEAVING_S = 0.2
"""From beginning to leave to being gone."""
CRASH_DETECTION_S = 0.05
"""From a death to its neighbours' knowing."""
NEVER_S = 1e9


class EndStatus(Enum):
    PRESENT = "present"
    LEFT = "left"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class SyntheticLink:
    """One end's word about a link."""

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
    """When it began to leave, or died; `NEVER_S` if neither."""
    end_status: list[EndStatus]
    links: list[SyntheticLink]
    neighbors: NDArray[np.int64]
    """Some that were each peer's neighbours."""


def generate_peers(
    seed: int, peers: int, arrivals: int, leaves: int, crashes: int, machines: int, seconds: float
) -> SyntheticPeers:
    """Peer 0 comes first and stays. The others that go, and those that come late, do so in the middle of the time."""
    chance = random.Random(seed)
    count = peers + arrivals
    draw = np.random.default_rng(seed)
    ids = [f"{each:016x}" for each in draw.integers(0, 1 << 63, count)]
    joined_s: NDArray[np.float64] = np.arange(count, dtype=np.float64) * STAGGER_S
    joined_s[peers:] = np.sort(draw.uniform(0.2, 0.7, arrivals)) * seconds
    ended_s = np.full(count, NEVER_S)
    ending = [EndStatus.PRESENT] * count
    goers = chance.sample(range(1, peers), min(peers - 1, leaves + crashes))
    for place, peer in enumerate(goers):
        ending[peer] = EndStatus.LEFT if place < leaves else EndStatus.CRASHED
        ended_s[peer] = chance.uniform(0.3, 0.8) * seconds
    links = _links(chance, joined_s, ended_s, ending)
    near = np.tile(np.arange(count)[:, None], (1, DEGREE))
    seen: dict[int, list[int]] = {}
    for link in links:
        if link.is_up and len(seen.setdefault(link.peer, [])) < DEGREE:
            seen[link.peer].append(link.neighbor)
    for peer, others in seen.items():
        near[peer] = [others[place % len(others)] for place in range(DEGREE)]
    return SyntheticPeers(ids, np.arange(count) % machines, joined_s, ended_s, ending, links, near)


def _links(
    rng: random.Random, joined_s: NDArray[np.float64], ended_s: NDArray[np.float64], end_status: list[EndStatus]
) -> list[SyntheticLink]:
    """What happens one after the other; a peer without its due number of links gets the next that has room."""
    near: dict[int, list[int]] = {}
    told: list[SyntheticLink] = []

    def tie(one: int, other: int, time_s: float) -> None:
        near[one].append(other)
        near[other].append(one)
        told.extend((SyntheticLink(time_s, one, other, True), SyntheticLink(time_s, other, one, True)))

    def cut(one: int, other: int, time_s: float) -> None:
        near[one].remove(other)
        near[other].remove(one)
        reason = LinkDownReason.REWIRED.value
        told.extend(
            (SyntheticLink(time_s, one, other, False, reason), SyntheticLink(time_s, other, one, False, reason))
        )

    def join(peer: int, time_s: float) -> None:
        others = list(near)
        near[peer] = []
        if len(others) <= DEGREE:
            for other in others:
                tie(peer, other, time_s)
            return
        for _ in range(20 * DEGREE):
            if len(near[peer]) > DEGREE - 2:
                return
            one = rng.choice(others)
            if one in near[peer] or not near[one]:
                continue
            other = rng.choice(near[one])
            if other != peer and other not in near[peer]:
                cut(one, other, time_s)
                tie(peer, one, time_s)
                tie(peer, other, time_s)

    def go(peer: int, time_s: float) -> None:
        others = near.pop(peer)
        died = end_status[peer] is EndStatus.CRASHED
        noticed_s = time_s + (CRASH_DETECTION_S if died else LEAVING_S / 2)
        reason = LinkDownReason.CONNECTION_LOST if died else LinkDownReason.PEER_LEFT
        for other in others:
            near[other].remove(peer)
            told.append(SyntheticLink(noticed_s, other, peer, False, reason.value))
            if not died:
                told.append(SyntheticLink(noticed_s, peer, other, False, LinkDownReason.LOCAL_LEAVE.value))
        lacking = [other for other in near if len(near[other]) < min(DEGREE, len(near) - 1)]
        rng.shuffle(lacking)
        for place, one in enumerate(lacking):
            for other in lacking[place + 1 :]:
                if max(len(near[one]), len(near[other])) < DEGREE and other not in near[one]:
                    tie(one, other, noticed_s)

    happenings = [(time_s, peer, True) for peer, time_s in enumerate(joined_s)]
    happenings += [(time_s, peer, False) for peer, time_s in enumerate(ended_s) if time_s < NEVER_S]
    for time_s, peer, comes in sorted(happenings):
        (join if comes else go)(peer, float(time_s))
    return told
