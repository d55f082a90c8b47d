"""Histories that once broke a promise, each with the reason why it did."""

import pytest

from broadloom.protocol import Peer, Tuning
from broadloom.protocol.events import LinkDownReason
from broadloom.testing.sim import exhaustive, scenario
from broadloom.testing.sim.dissemination import DisseminationMode
from broadloom.testing.sim.network import SimNetworkSettings
from broadloom.testing.sim.simulation import Simulation, SimulationSettings
from broadloom.testing.sim.step_checker import STABLE_PERIOD_S
from broadloom.testing.sim.steps import Run, join_storm
from broadloom.wire import Address


def test_neighbours_with_holes_after_most_have_died():
    """Two neighbours lacked one link each and refused every edge as too dense: the estimate of the diameter was still
    that of the large fabric, and for an edge pinned onto two, the end that goes to the other was counted as well."""
    scenario.load("kill-most").run(seed=0, peers=60)


def test_neighbours_with_holes_among_six():
    """The same with a diameter that was never right: among seven peers a flood once travelled over four links."""
    for seed in range(30):
        exhaustive.run_order(exhaustive.parse_order("jjjjjjl"), seed, degree=4)


@pytest.mark.parametrize(("word", "seed", "degree"), [("jjdjljlljjdjjj", 195, 6)])
def test_a_newcomer_at_the_address_of_a_dead_peer(word: str, seed: int, degree: int):
    """It was told of the dead one and kept asking it, at its own address, instead of searching again."""
    exhaustive.run_order(exhaustive.parse_order(word), seed, degree)


@pytest.mark.parametrize(
    ("word", "seed", "degree"),
    [
        ("jdjdjjldjjljjd", 442, 4),  # all wait for the one of them that asks itself
        ("jjjdjljdjddjjd", 732, 8),  # two seekers ask each other, and pass over the member that they know
        ("jjdjjjddljljjj", 477, 6),  # two ask each other and do not search, the rest wait for one of them to found
    ],
)
def test_seekers_that_ask_only_those_they_have_heard_of(word: str, seed: int, degree: int):
    """A member that knocks is taken for a fellow seeker and never asked to weave one in."""
    exhaustive.run_order(exhaustive.parse_order(word), seed, degree, converge_between=False)


def test_a_seeker_that_loses_its_first_link_before_the_greeting():
    """Its search had ended when the link came, and nothing began it again."""
    exhaustive.run_order(exhaustive.parse_order("jjdjjljdjjjdjj"), seed=1486, degree=5, converge_between=False)


def test_seekers_that_wait_for_one_that_does_not_know_that_it_can_be_found():
    """The lowest id founds. It had met others that had looked further, and so passed over its own port: it never
    learned that it can be found at a portal, and left the founding to others, who left it to it."""

    def founded_at(seed: int) -> float:
        sim = Simulation(seed)
        for _ in range(6):
            sim.add(host="h0", bootstrap=(Address("h0", 0),))
            sim.run(0.4 * sim.random.random())
        sim.run_until(lambda: bool(sim.members), 60)
        return sim.clock.now

    assert [seed for seed in range(150) if founded_at(seed) > 6] == []


def test_a_newcomer_that_is_answered_by_a_leaver():
    """It took the leaver for a fellow seeker that had looked everywhere, searched no further and founded a second
    channel beside the first."""

    def founds(seed: int) -> bool:
        lines: list[str] = []
        sim = Simulation(seed, trace=lines.append)
        for _ in range(2):
            sim.add(host="h0", bootstrap=(Address("h0", 0),))
            sim.run(2)
        sim.converge(60)
        sim.leave(sim.alive[:1])
        newcomer = sim.add(host="h0", bootstrap=(Address("h0", 0),))
        sim.converge(60)
        said = [line.split(": ", 1)[1] for line in lines if f" {newcomer}: " in line]
        return said.index("is connected") < next(at for at, what in enumerate(said) if what.startswith("link to"))

    assert [seed for seed in range(60) if founds(seed)] == []


def test_parts_that_were_founded_side_by_side():
    """As above; what was said in one part was had late in the other, or two small parts did not become one."""
    words = {
        "jljjjjjjjldjdd": (8, 4),
        "jjjljdjjlljjjl": (207, 6),
        "jjjjljjljlljdl": (233, 8),
        "jjjlljjjjljdjl": (727, 6),
    }
    for word, (seed, degree) in words.items():
        exhaustive.run_order(exhaustive.parse_order(word), seed, degree, converge_between=False)


@pytest.mark.parametrize(
    ("word", "seed", "degree"),
    [
        ("jjjlljjjjljjld", 1037, 3),
        ("jljjdjjjjdljdd", 1448, 5),
        ("jjldjljjjjjljl", 549, 8),
        ("jjjljjjljdljjl", 1740, 8),
    ],
)
def test_messages_of_a_gone_author_whose_beginning_nobody_has(word: str, seed: int, degree: int):
    """Two parts merge. In one, an author spoke and went, and those that are left of it came after its first messages.
    The other part asked for these first ones for the whole retention time, and held back all that followed them."""
    exhaustive.run_order(exhaustive.parse_order(word), seed, degree, converge_between=False)


@pytest.mark.parametrize(
    ("word", "seed", "degree", "spread"),
    [
        ("jdjjjjjjldjdjd", 99, 4, DisseminationMode.TREE),
        ("jjddjdjjdjjjjj", 136, 3, DisseminationMode.FLOOD),
        ("jjdjjjljjjjllj", 233, 4, DisseminationMode.TREE),
        ("jjdljjdjjjjjdd", 267, 4, DisseminationMode.TREE),
        ("jljjjjjjjljddj", 360, 3, DisseminationMode.FLOOD),
        ("jjldjljjjjjljl", 79, 8, DisseminationMode.MIXED),
        ("jjldjljjjjjljl", 138, 3, DisseminationMode.MIXED),
    ],
)
def test_messages_that_died_with_their_author(word: str, seed: int, degree: int, spread: DisseminationMode):
    """Two parts merge. In one, an author spoke before anybody heard it, spoke again, and died. Who came from the other
    part asked for the first messages, which nobody had, and held back the others for the whole retention time."""
    exhaustive.run_order(exhaustive.parse_order(word), seed, degree, converge_between=False, mode=spread)


def test_an_author_whose_neighbours_all_came_later():
    """It had spoken before they came, so they had no use for what it had said, and did not tell those behind them."""
    exhaustive.run_order(
        exhaustive.parse_order("jljjjjjjljljjl"), 740, degree=3, converge_between=False, mode=DisseminationMode.FLOOD
    )


def test_one_that_founded_alone_spoke_and_left():
    """Nobody was there to leave its message with. (It was the check that asked for it.)"""
    exhaustive.run_order(
        exhaustive.parse_order("jjddjjljjlljlj"), 2375, degree=4, converge_between=False, mode=DisseminationMode.TREE
    )


@pytest.mark.parametrize("seed", [37, 257])
def test_those_who_hold_a_message_are_behind_others_who_came_after_it(seed: int):
    """Two parts merge, after many had come and gone in both. All neighbours of one that lacked messages were latecomers
    who neither had them nor asked for them. It waited for the whole retention time, and missed them."""
    steps = [
        {"do": "grow"},
        {"do": "traffic", "per_s": 20},
        {"do": "wait", "duration_s": 2},
        {"do": "partition"},
        {"do": "wait", "duration_s": 3},
        {"do": "traffic", "per_s": 0},
        {"do": "churn", "fraction_per_min": 6.0, "minutes": 0.5, "kill_fraction": 0.3},
        {"do": "heal"},
        {"do": "converge", "timeout_s": 60},
    ]
    scenario.parse("wall", {"peers": 6, "step": steps}).run(seed)


def _disconnect(one: Peer, other: Peer) -> None:
    """Both ends of their link notice at the same moment that it is lost."""
    for here, there in ((one, other), (other, one)):
        link = here.links.get(there.me.peer_id)
        assert link is not None
        link.close(LinkDownReason.CONNECTION_LOST)


def test_a_call_crossed_by_one_of_ours_while_the_last_place_was_taken():
    """Of two calls that cross, the one of the lower id goes on; whether there still was a place for it was not asked,
    and the peer died of its own assertion. (A question to be woven in keeps no place, and a kept one lapses before the
    call does.)"""
    sim = Simulation(1, SimulationSettings(network=SimNetworkSettings(latency_ms=(10.0, 10.0), jitter_ms=1e-6)))
    for _ in range(12):
        sim.add()
        sim.run(0.5)
    sim.converge(60)
    peers = {node.peer.me.peer_id: node.peer for node in sim.alive}
    high = peers[max(peers)]
    low = next(peer for peer in peers.values() if peer is not high and peer.me.peer_id not in high.links)
    third = peers[high.links.neighbors[0]]
    _disconnect(high, third)
    _disconnect(low, peers[low.links.neighbors[0]])
    third.join_protocol.request_link(high.me)
    sim.run(0.001)
    high.join_protocol.join_via(low.me, lambda _accepted: None)
    low.join_protocol.request_link(high.me)
    sim.converge(60)


@pytest.mark.parametrize("seed", range(3))
def test_an_author_forgotten_during_a_split_and_heard_again(seed: int):
    """Its whole run was told as missed, also what had been delivered before the split."""
    steps = [
        {"do": "grow"},
        {"do": "traffic", "per_s": 20},
        {"do": "wait", "duration_s": 3},
        {"do": "partition"},
        {"do": "wait", "duration_s": 20},
        {"do": "heal"},
        {"do": "wait", "duration_s": 10},
        {"do": "converge", "allow_missed": True},
    ]
    content = {"peers": 12, "peer": {"retention_s": 5}, "step": steps}
    scenario.parse("forgotten", content).run(seed)


def test_the_last_words_of_one_whose_neighbours_leave_at_the_same_moment():
    """They took its message, but had given up their own links already and passed it on to nobody."""
    sim = _grown(20, seed=1)
    sim.run(2 * STABLE_PERIOD_S)
    author = sim.alive[0]
    sim.broadcast(author, b"the last one")
    sim.leave([author, *(node for node in sim.alive if node.peer.me.peer_id in author.peer.links)])
    sim.converge(60)


@pytest.mark.parametrize("seed", range(20))
def test_two_that_are_left_of_many(seed: int):
    """They called addresses of their caches at random, dead ones again and again, and came to the living one late."""
    sim = _grown(60, seed)
    sim.run(40)  # until everyone has heard of everyone
    sim.kill(sim.sample(58))
    sim.converge(60)


def _grown(peers: int, seed: int) -> Simulation:
    sim = Simulation(seed)
    while len(sim.alive) < peers:
        sim.add()
        sim.run(0.25)
    sim.converge(60)
    return sim


@pytest.mark.parametrize("seed", [3, 7])
def test_a_channel_that_was_never_founded(seed: int):
    """Fifty started at the same instant on the portal's host. All waited for the one with the lowest id to found the
    channel, but it listened deeper than anybody looks, and could not find itself at the portal."""
    run = Run(Simulation(seed), 50)
    join_storm(run, channel_exists=False, one_host=True, timeout_s=60)


@pytest.mark.parametrize("spread", [DisseminationMode.MIXED, DisseminationMode.TREE])
def test_peers_that_feed_each_other_in_a_circle(spread: DisseminationMode):
    """A small message floods by any way, and peers took whoever brought it first for the one that feeds them, also one
    that they fed themselves. Both then waited for a large one until they pulled it, 0.7 s later."""
    sim = Simulation(1, SimulationSettings(peer=spread.apply_to(Tuning())))
    while len(sim.alive) < 40:
        sim.add()
        sim.run(0.25)
    sim.converge(60)
    sim.quiesce(60)
    sim.set_traffic(60, sim.sample(12))
    sim.run(6)
    sim.set_traffic(0)
    sim.converge(30)
    assert sim.checker.latency_max_s < 0.4
    nodes = {node.peer.me.peer_id: node for node in sim.alive}
    for author in sim.checker.sent_at:
        for peer in nodes:
            at, steps = peer, 0
            while at != author:
                parent = nodes[at].peer.broadcaster.authors[author].parent
                assert parent is not None
                at, steps = parent.peer_id, steps + 1
                assert steps <= len(nodes)


def test_messages_that_died_with_all_that_had_them():
    """An author and its side of a split died; a newcomer there had only its last message. The others hold that one back
    until they may give up what lies before it, which is when it is past retention, and not for ever."""
    scenario.load("random-faults").with_dissemination(DisseminationMode.TREE).run(seed=1077, peers=24)
