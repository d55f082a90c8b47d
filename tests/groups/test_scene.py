"""The scene of the thesis (1.2): two questions and two answers, and every screen shows each answer under its question.

`SEEDS` may be raised; a thousand were run.
"""

from random import Random

import pytest

from tests.groups.ether import Ether, EtherMember
from weft.fabric.state import State
from weft.groups.events import GroupEvent, GroupOffered, Here
from weft.groups.names import Message
from weft.groups.over_sim import SimMember
from weft.sim.network import NetworkSettings
from weft.sim.simulation import SimSettings, Simulation

SEEDS = 50
SEEDS_IN_FABRIC = 10


def adverse(random: Random) -> float:
    """Mostly quick, at times very late: answers overtake their questions."""
    return random.expovariate(1 / 0.1) if random.random() < 0.5 else random.uniform(0.0, 20.0)


def screen(member: EtherMember | SimMember) -> list[str]:
    """Each message below the one it responds to, as a chat shows it while messages come in."""
    lines: list[str] = []
    for message in member.delivered:
        assert not message.orphan
        if message.parent is None:
            lines.append(message.text)
        else:
            above = next(each.text for each in member.delivered if each.id == message.parent)
            lines.insert(next(at for at, line in enumerate(lines) if line.strip() == above) + 1, "  " + message.text)
    return lines


class Answering(SimMember):
    """Answers the one question that it knows the answer to, as soon as it is shown."""

    def __init__(self, sim: Simulation, name: str, question: str = "", answer: str = "") -> None:
        self._question, self._answer = question, answer
        super().__init__(sim, name)

    def tell(self, event: GroupEvent) -> None:
        super().tell(event)
        if isinstance(event, GroupOffered):
            self.after(0.0, self.participant.join, event.group.id)

    def deliver(self, message: Message) -> None:
        super().deliver(message)
        if self._question and message.text == self._question:
            self.participant.post(message.group, self._answer.encode(), message.id)


def play_in_fabric(seed: int) -> list[Answering]:
    """The same in the simulated fabric with slow and uneven lines, among others who only listen."""
    slow = NetworkSettings(latency_ms=(2.0, 500.0), jitter_ms=200.0)
    sim = Simulation(seed, SimSettings(network=slow))
    names = {"A": ("Did you visit Chennai?", "No"), "B": ("Did you visit Delhi?", "Yes")}
    members = []
    for name in ("C", "A", "B", "D", "E", "F", "G"):
        members.append(Answering(sim, name, *names.get(name, ("", ""))))
        sim.run(8.0)
    assert sim.run_until(lambda: all(member.node.peer.state is State.CONNECTED for member in members), 300.0)
    members[0].participant.create("travellers", group=7)
    assert sim.run_until(lambda: all(7 in member.participant.conversations for member in members), 120.0), (
        f"seed {seed}"
    )
    sim.run(20.0)
    for question in ("Did you visit Delhi?", "Did you visit Chennai?"):
        members[0].participant.post(7, question.encode())
    assert sim.run_until(lambda: all(len(member.delivered) == 4 for member in members), 120.0), f"seed {seed}"
    return members


def play(seed: int) -> tuple[list[EtherMember], bool]:
    """The scene with these delays; also tells whether an answer came before its question anywhere."""
    ether = Ether(seed, in_order=False)
    a, b, c, d = (ether.add(name) for name in "ABCD")
    group = c.participant.create("travellers")
    ether.run(10.0)
    for member in (a, b, d):
        member.participant.join(group)
    ether.run(30.0)
    assert list(d.participant.members(group).values()) == [Here.PRESENT] * 4
    ether.delay = adverse
    delhi = c.says(group, "Did you visit Delhi?")
    chennai = c.says(group, "Did you visit Chennai?")
    waited = answered = False
    answers = {a: (chennai, "No"), b: (delhi, "Yes")}
    while answers or any(len(each.delivered) < 4 for each in (a, b, c, d)):
        ether.run(0.1)
        assert ether.clock.now < 200, "somebody never got everything"
        for member, (question, text) in list(answers.items()):
            if any(each.id == question.id for each in member.delivered):
                del answers[member]
                member.says(group, text, question)
        waited |= any(member.participant.conversations[group].order.waiting for member in (a, b, c, d))
    return [a, b, c, d], waited or answered


def check(member: EtherMember | SimMember, seed: int) -> None:
    shown = screen(member)
    assert len(shown) == 4, f"seed {seed}"
    assert shown[shown.index("Did you visit Delhi?") + 1] == "  Yes", f"seed {seed}: {shown}"
    assert shown[shown.index("Did you visit Chennai?") + 1] == "  No", f"seed {seed}: {shown}"


@pytest.mark.parametrize("seed", range(SEEDS_IN_FABRIC))
def test_the_same_in_the_fabric(seed: int) -> None:
    for member in play_in_fabric(seed):
        check(member, seed)


@pytest.mark.parametrize("block", range(5))
def test_every_screen_shows_each_answer_under_its_question(block: int) -> None:
    overtaken = 0
    for seed in range(block, SEEDS, 5):
        members, waited = play(seed)
        overtaken += waited
        for member in members:
            check(member, seed)
    assert overtaken, "no answer overtook its question: the delays were not adverse"
