"""Random meetings in the simulator, with kills, leaves, joins and partitions: what must hold in each.

- No two members that are in each other's roster and follow the same sequencer lead at the same time, unless the network
  separates them, or did so a moment ago: each partition has its leader, also before the rosters have noticed it.
- The floor of a leader that was killed is free, or another's, within 3 s.
- When sides that were apart have met, there is one leader at most after a while.
- At rest all members have the same state, with all that living members have submitted, and the leader is one of them.

As a program: `python -m tests.apps.conference.histories SEEDS`.
"""

import math
from itertools import combinations, permutations
from random import Random

from broadloom.apps.conference.actions import (
    Action,
    Annotate,
    ClosePoll,
    HandOver,
    Leave,
    LoadPart,
    OpenPoll,
    Publish,
    RaiseHand,
    ReleaseFloor,
    RequestFloor,
    SetView,
    TakeBack,
    UnloadPart,
    Vote,
)
from broadloom.wire import PeerId
from tests.apps.conference.sim_participant import SimParticipant
from tests.histories import SimHistory, main, run_history

PEERS = 5
STEPS = 30
MEMBERS_MIN = 3
CHECK_S = 0.02
"""Virtual time between two looks at all members."""
FREE_S = 3.0
"""The floor of a leader that was killed is free within this time."""
CATCH_UP_S = 1.0
"""Time after healing in which members get what the other side has ordered."""
MERGE_S = 20.0
"""Two leaders that see each other again are one after this time."""
SETTLE_S = 60.0
PARTS = "rib-1", "rib-2", "spar"


class History(SimHistory):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.random = Random(seed)
        self.participants: list[SimParticipant] = []
        self._two_leaders_since: float | None = None
        self._blocked_at: dict[frozenset[PeerId], float] = {}
        """When the network last separated two members."""
        self._heal_at: float | None = None

    @property
    def alive(self) -> list[SimParticipant]:
        return [each for each in self.participants if each.is_alive]

    def run(self) -> None:
        for _ in range(PEERS):
            self._join()
        self._look()
        self.sim.run_for(3.0)
        for _ in range(STEPS):
            if self.random.random() < 0.25:
                self._fault()
            else:
                self._act()
            self.sim.run_for(self.random.choice([0.02, 0.2, self.random.expovariate(1.0)]))
            if self._heal_at is not None and self.sim.clock.now >= self._heal_at:
                self._heal()
        self._settle()

    # -- what happens

    def _join(self) -> None:
        node = self.sim.add_peer()
        if self.sim.run_until(lambda: node.is_connected, 30.0):
            self.participants.append(SimParticipant(node, f"person {len(self.participants)}"))
            self.note(f"{node} joins")

    def _act(self) -> None:
        if not self.alive:
            return
        actor = self.random.choice(self.alive)
        leaders = [each for each in self.alive if each.is_leader]
        if leaders and self.random.random() < 0.4:
            actor = self.random.choice(leaders)
        action = self._action_of(actor)
        self.counts[type(action).__name__] += 1
        self.note(f"{actor.node}: {action}")
        actor.submit(action)

    def _action_of(self, actor: SimParticipant) -> Action:
        state, choose = actor.core.state, self.random.choice
        if actor.is_leader and self.random.random() < 0.7:
            others = [each for each in state.participants if each != actor.peer_id]
            actions: list[Action] = [ReleaseFloor(), SetView((self.random.random(), 0.0, 1.0), (0.0, 0.0, 0.0))]
            return choose([*actions, *map(HandOver, others[-2:])])
        if state.floor.lender == actor.peer_id and self.random.random() < 0.5:
            return TakeBack()
        notes, polls = list(state.notes), [each for each in state.polls.values() if each.is_open]
        text = f"note {self.random.getrandbits(32)}"
        actions = [
            RequestFloor(), RequestFloor(), RequestFloor(), RaiseHand(is_up=self.random.random() < 0.5),
            LoadPart(choose(PARTS)), UnloadPart(choose(PARTS)), ReleaseFloor(), OpenPoll("ready?", ("yes", "no")),
            Annotate(choose(PARTS), text), Annotate(choose(PARTS), text, reply_to=choose(notes) if notes else None),
            Publish("mass", choose(PARTS), {"kg": self.random.random()}),
            *(Vote(each.id, choose([0, 1])) for each in polls), *(ClosePoll(each.id) for each in polls),
        ]  # fmt: skip
        return choose(actions)

    def _fault(self) -> None:
        is_spare = len(self.alive) > MEMBERS_MIN
        match self.random.randrange(6):
            case 0 | 1 | 2 if is_spare:
                self._kill()
            case 3 if is_spare:
                leaving = self.random.choice(self.alive)
                self.note(f"{leaving.node} leaves")
                if self.random.random() < 0.5:
                    leaving.submit(Leave())
                leaving.runtime.replica.close()
                leaving.node.leave()
            case 4 if not self.sim.network.is_partitioned:
                self.counts["partition"] += 1
                self.sim.partition(0.5)
                self._heal_at = self.sim.clock.now + self.random.choice([1.0, 12.0, 25.0])
                self.note("partition")
                if self.random.random() < 0.7:
                    self.sim.run_for(9.0)
            case _:
                self._join()

    def _kill(self) -> None:
        leaders = [each for each in self.alive if each.is_leader]
        sequencers = [each for each in self.alive if each.runtime.replica.is_sequencing]
        killed = self.random.choice((*leaders, *leaders, *leaders, *sequencers, self.random.choice(self.alive)))
        self.counts["kill"] += 1
        self.note(f"{killed.node} is killed")
        was_leader = killed.is_leader
        killed.node.kill()
        since_heal = self.sim.clock.now - self.sim.network.healed_at
        if was_leader and not self.sim.network.is_partitioned and since_heal > MERGE_S:
            self.counts["leader killed"] += 1
            self.sim.run_for(FREE_S)
            for each in self.alive:
                if each.core.state.floor.holder == killed.peer_id:
                    self.fail(f"{each.node}: {killed.node} has the floor {FREE_S:g} s after it was killed")

    def _heal(self) -> None:
        self._heal_at = None
        self.sim.heal()
        self.note("heals")

    # -- what must hold

    def _look(self) -> None:
        self._note_blocked()
        leaders = [each for each in self.alive if each.is_leader]
        meeting = [
            (one, other)
            for one, other in combinations(leaders, 2)
            if one.runtime.is_present(other.peer_id) and other.runtime.is_present(one.peer_id)
        ]
        for one, other in meeting:
            is_same_order = one.runtime.replica.log.epoch == other.runtime.replica.log.epoch
            if is_same_order and not self._are_apart(one, other):
                self.fail(f"two leaders: {one.node} and {other.node}")
        now = self.sim.clock.now
        if not meeting:
            self._two_leaders_since = None
        elif self._two_leaders_since is None:
            self._two_leaders_since = now
        elif now - self._two_leaders_since > MERGE_S:
            self.fail(f"two leaders for {MERGE_S:g} s: {meeting[0][0].node} and {meeting[0][1].node}")
        self.sim.clock.call_at(now + CHECK_S, self._look)

    def _note_blocked(self) -> None:
        network = self.sim.network
        if network.is_partitioned:
            for one, other in permutations(self.alive, 2):
                if network.is_blocked(one.node.host, other.node.host):
                    self._blocked_at[frozenset((one.peer_id, other.peer_id))] = self.sim.clock.now

    def _are_apart(self, one: SimParticipant, other: SimParticipant) -> bool:
        blocked_at = self._blocked_at.get(frozenset((one.peer_id, other.peer_id)), -math.inf)
        return self.sim.clock.now <= blocked_at + CATCH_UP_S

    def problem_at_rest(self) -> str | None:
        """Why the members do not agree yet, or None."""
        alive = self.alive
        for each in alive:
            known, members = len(each.node.peer.roster.peer_ids()), len(self.sim.members)
            if known != members:
                return f"the roster of {each.node} has {known} of {members} members"
            if each.runtime.replica.submissions.own:
                return f"{each.node} waits for its submissions"
            if each.core.state != alive[0].core.state:
                return f"{each.node} has another state than {alive[0].node}"
        holder = alive[0].core.state.floor.holder
        if holder is not None and holder not in [each.peer_id for each in alive]:
            return f"{holder:016x} has the floor, and is gone"
        return None

    def _settle(self) -> None:
        if self._heal_at is not None:
            self._heal()
        if not self.sim.run_until(lambda: self.problem_at_rest() is None, SETTLE_S):
            self.fail(f"not settled: {self.problem_at_rest()}")
        self.sim.run_for(5.0)
        if problem := self.problem_at_rest():
            self.fail(f"settled, and then not: {problem}")
        numbers = self.alive[0].core.state.numbers
        for each in self.alive:
            if each.skipped:
                self.fail(f"{each.node} skipped entries: {each.skipped}")
            if numbers[each.peer_id] != len(each.submitted):
                self.fail(f"{each.node} submitted {len(each.submitted)} actions; {numbers[each.peer_id]} were applied")
            self.counts["rewound"] += each.rewound_count


def run_seed(seed: int) -> History:
    """Raises `HistoryError`."""
    return run_history(History(seed))


if __name__ == "__main__":
    main(run_seed)
