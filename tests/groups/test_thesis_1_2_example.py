"""The example of thesis section 1.2: two questions, two replies, and every member sees each reply after its question.

`SEEDS` may be raised; a thousand were run.
"""

from random import Random

import pytest

from broadloom.groups.model import GroupDiscovered, GroupEvent, GroupMessage, MemberStatus
from broadloom.protocol.events import PeerState
from broadloom.testing.sim.network import SimNetworkSettings
from broadloom.testing.sim.simulation import Simulation, SimulationSettings
from tests.groups.group_bus import BusMember, GroupBus
from tests.groups.sim_runtime import SimGroupRuntime

SEEDS = 50
SEEDS_IN_FABRIC = 10


def adverse_delay(random: Random) -> float:
    """Mostly fast, sometimes very slow: replies overtake their questions."""
    return random.expovariate(1 / 0.1) if random.random() < 0.5 else random.uniform(0.0, 20.0)


def render_threads(member: BusMember | SimGroupRuntime) -> list[str]:
    """Each message below its parent, as a chat shows it while messages arrive."""
    lines: list[str] = []
    for message in member.delivered:
        assert not message.is_orphan
        if message.parent_id is None:
            lines.append(message.text)
        else:
            above = next(each.text for each in member.delivered if each.id == message.parent_id)
            lines.insert(next(at for at, line in enumerate(lines) if line.strip() == above) + 1, "  " + message.text)
    return lines


class AutoReplier(SimGroupRuntime):
    """Replies to one question as soon as it is delivered."""

    def __init__(self, sim: Simulation, name: str, question: str = "", answer: str = "") -> None:
        self._question, self._answer = question, answer
        super().__init__(sim, name)

    def emit(self, event: GroupEvent) -> None:
        super().emit(event)
        if isinstance(event, GroupDiscovered):
            self.call_later(0.0, self.participant.join, event.group.id)

    def deliver(self, message: GroupMessage) -> None:
        super().deliver(message)
        if self._question and message.text == self._question:
            self.delivered.append(self.participant.post(message.group_id, self._answer.encode(), message.id))


def run_example_in_fabric(seed: int) -> list[AutoReplier]:
    """In the simulated fabric with slow and uneven links, with more members that only read."""
    slow = SimNetworkSettings(latency_ms=(2.0, 500.0), jitter_ms=200.0)
    sim = Simulation(seed, SimulationSettings(network=slow))
    names = {"A": ("Did you visit Chennai?", "No"), "B": ("Did you visit Delhi?", "Yes")}
    members = []
    for name in ("C", "A", "B", "D", "E", "F", "G"):
        members.append(AutoReplier(sim, name, *names.get(name, ("", ""))))
        sim.run_for(8.0)
    assert sim.run_until(lambda: all(member.node.peer.state is PeerState.CONNECTED for member in members), 300.0)
    members[0].participant.create("travellers", group=7)
    assert sim.run_until(lambda: all(7 in member.participant.conversations for member in members), 120.0), (
        f"seed {seed}"
    )
    sim.run_for(20.0)
    for question in ("Did you visit Delhi?", "Did you visit Chennai?"):
        members[0].delivered.append(members[0].participant.post(7, question.encode()))
    assert sim.run_until(lambda: all(len(member.delivered) == 4 for member in members), 120.0), f"seed {seed}"
    return members


def run_example(seed: int) -> tuple[list[BusMember], bool]:
    """On the group bus; also returns whether a reply arrived before its question anywhere."""
    bus = GroupBus(seed, in_order=False)
    a, b, c, d = (bus.add(name) for name in "ABCD")
    group = c.participant.create("travellers")
    bus.run(10.0)
    for member in (a, b, d):
        member.participant.join(group)
    bus.run(30.0)
    assert list(d.participant.members(group).values()) == [MemberStatus.ONLINE] * 4
    bus.delay = adverse_delay
    delhi = c.send_text(group, "Did you visit Delhi?")
    chennai = c.send_text(group, "Did you visit Chennai?")
    waited = answered = False
    answers = {a: (chennai, "No"), b: (delhi, "Yes")}
    while answers or any(len(each.delivered) < 4 for each in (a, b, c, d)):
        bus.run(0.1)
        assert bus.clock.now < 200, "a member misses messages"
        for member, (question, text) in list(answers.items()):
            if any(each.id == question.id for each in member.delivered):
                del answers[member]
                member.send_text(group, text, question)
        waited |= any(member.participant.conversations[group].order.waiting_count for member in (a, b, c, d))
    return [a, b, c, d], waited or answered


def check_threads(member: BusMember | SimGroupRuntime, seed: int) -> None:
    shown = render_threads(member)
    assert len(shown) == 4, f"seed {seed}"
    assert shown[shown.index("Did you visit Delhi?") + 1] == "  Yes", f"seed {seed}: {shown}"
    assert shown[shown.index("Did you visit Chennai?") + 1] == "  No", f"seed {seed}: {shown}"


@pytest.mark.parametrize("seed", range(SEEDS_IN_FABRIC))
def test_replies_follow_questions_in_simulated_fabric_thesis_1_2(seed: int) -> None:
    for member in run_example_in_fabric(seed):
        check_threads(member, seed)


@pytest.mark.parametrize("block", range(5))
def test_replies_follow_questions_under_adverse_delays_thesis_1_2(block: int) -> None:
    overtaken = 0
    for seed in range(block, SEEDS, 5):
        members, waited = run_example(seed)
        overtaken += waited
        for member in members:
            check_threads(member, seed)
    assert overtaken, "no reply overtook its question: the delays were not adverse"
