"""Many peers and groups with churn and a partition in the simulated fabric: all members converge to the same tree.

As a program: `python -m tests.groups.churn PEERS GROUPS FIRST_SEED LAST_SEED`.
"""

import sys
import time
from collections import Counter
from random import Random
from typing import Any

from broadloom.groups.conversation import UNAVAILABLE_S
from broadloom.groups.model import GroupDiscovered, GroupEvent, GroupId
from broadloom.groups.proofs import PostSigner
from broadloom.groups.settings import GroupSettings
from broadloom.groups.store import MemoryStore
from broadloom.testing.sim.simulation import Simulation
from tests.groups.sim_runtime import SimGroupRuntime

GROUPS_EACH = 3
CONVERGE_TIMEOUT_S = 240.0
DIGEST_POLL_S = 10.0
"""Members remember a digest that was read, and ask for nothing when they meet it: so they are read rarely."""
RECENT = 20
SETTINGS = GroupSettings(orphan_timeout_s=60.0)
"""Longer than the partition: on the other side, a reply may wait for its parent until then."""


class ChurnMember(SimGroupRuntime):
    """An application that joins the groups it wants and replies to recent messages."""

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        wanted_groups: list[GroupId],
        store: MemoryStore,
        post_signer: PostSigner | None = None,
    ) -> None:
        self.wanted_groups = wanted_groups
        self.store = store
        super().__init__(simulation, name, store=store, settings=SETTINGS, post_signer=post_signer)

    def emit(self, event: GroupEvent) -> None:
        super().emit(event)
        if isinstance(event, GroupDiscovered) and event.group.id in self.wanted_groups:
            self.call_later(0.0, self.participant.join, event.group.id)

    def post_random_reply(self, random: Random) -> None:
        groups = list(self.participant.conversations)
        if groups and self.node.is_alive:
            group = random.choice(groups)
            recent = [each for each in self.delivered[-RECENT:] if each.group_id == group]
            parent_id = random.choice(recent).id if recent and random.random() < 0.8 else None
            self.delivered.append(
                self.participant.post(group, b"words of %s" % self.participant.me.name.encode(), parent_id)
            )

    def tree(self, group: GroupId) -> dict[Any, Any]:
        rows = self.participant.conversations[group].history.scan(0, 1 << 30)
        return {post.id: post.parent_id for _, post in rows}


class ChurnRun:
    def __init__(self, seed: int, peers: int, groups: int) -> None:
        self.seed = seed
        self.sim = Simulation(seed)
        self.random = Random(seed)
        self.groups = list(range(1, groups + 1))
        self.members: list[ChurnMember] = []
        self.offline: list[ChurnMember] = []
        self.sent_counts: Counter[str] = Counter()
        for number in range(peers):
            self.add(f"m{number}", self.random.sample(self.groups, min(GROUPS_EACH, groups)), MemoryStore())
            self.sim.run_for(0.2)
            if number == 0:
                self.sim.run_for(10.0)
                for group in self.groups:
                    self.members[0].participant.create(f"group {group}", group=group)
        self.sim.run_for(15.0)

    def add(self, name: str, wanted_groups: list[GroupId], store: MemoryStore) -> None:
        self.members.append(ChurnMember(self.sim, name, wanted_groups, store))

    def chat(self, seconds: float, per_s: float = 5.0) -> None:
        for _ in range(int(seconds * per_s)):
            self.random.choice(self.members).post_random_reply(self.random)
            self.sim.run_for(1 / per_s)

    def remove(self, count: int, *, kill: bool) -> None:
        for member in self.random.sample(self.members[1:], count):
            self.members.remove(member)
            self.offline.append(member)
            if kill:
                self.sim.kill([member.node])
            else:
                member.participant.go_offline()
                self.sim.leave([member.node])

    def rejoin(self, count: int) -> None:
        for member in self.random.sample(self.offline, min(count, len(self.offline))):
            self.offline.remove(member)
            self.add(member.participant.me.name, member.wanted_groups, member.store)

    def run(self) -> float:
        """Returns the seconds from healing until all trees are equal."""
        few = max(1, len(self.members) // 12)
        self.chat(10.0)
        for _ in range(2):
            self.remove(few, kill=True)
            self.remove(few, kill=False)
            self.chat(5.0)
            self.rejoin(few)
            self.chat(5.0)
        self.sim.partition(0.4)
        self.chat(20.0)
        self.remove(few, kill=True)
        self.chat(10.0)
        self.sim.heal()
        healed = self.sim.clock.now
        self.rejoin(few)
        self.chat(5.0)
        if not self.sim.run_until(lambda: self.find_problem() is None, CONVERGE_TIMEOUT_S):
            raise AssertionError(f"seed {self.seed}: {self.find_problem()}")
        took_s = self.sim.clock.now - healed
        deadline = self.sim.clock.now + UNAVAILABLE_S + CONVERGE_TIMEOUT_S
        while not self.has_equal_digests():
            if self.sim.clock.now >= deadline:
                raise AssertionError(f"seed {self.seed}: the digests differ")
            self.sim.run_for(DIGEST_POLL_S)
        return took_s

    def has_equal_digests(self) -> bool:
        """They also cover messages that members only heard of, and that nobody present has: for `UNAVAILABLE_S`."""
        return all(
            len({each.participant.conversations[group].history_digest().digest for each in self.inside(group)}) <= 1
            for group in self.groups
        )

    def inside(self, group: GroupId) -> list[ChurnMember]:
        return [member for member in self.members if group in member.participant.conversations]

    def find_problem(self) -> str | None:
        hashes = Counter(member.participant.directory.hash for member in self.members)
        if len(hashes) > 1:
            return f"{len(hashes)} different directories"
        for group in self.groups:
            inside = self.inside(group)
            waiting = sum(member.participant.conversations[group].order.waiting_count for member in inside)
            received = {
                repr(sorted((author, list(held)) for author, held in conversation.order.received.items()))
                for conversation in (member.participant.conversations[group] for member in inside)
            }
            if len(received) > 1 or waiting:
                return f"group {group}: {len(received)} different sets of messages, {waiting} waiting"
        return None

    def check(self) -> int:
        """Compare the trees themselves; returns the total number of messages."""
        total = 0
        for group in self.groups:
            inside = self.inside(group)
            trees = [member.tree(group) for member in inside]
            assert all(tree == trees[0] for tree in trees), f"seed {self.seed}: group {group}"
            total += len(trees[0]) if trees else 0
            for member in inside:
                assert not any(each.is_orphan for each in member.delivered), f"seed {self.seed}"
        assert {group for member in self.members for group in member.participant.conversations} == set(self.groups)
        return total


def main(peers: int, groups: int, first: int, last: int) -> None:
    for seed in range(first, last + 1):
        started_at = time.process_time()
        run = ChurnRun(seed, peers, groups)
        took_s = run.run()
        total = run.check()
        sent: Counter[str] = Counter()
        for member in [*run.members, *run.offline]:
            sent.update(member.participant.sent_counts)
        print(
            f"seed {seed}: {len(run.members)} members, {groups} groups, {total} messages, converged "
            f"{took_s:.1f} s after healing; CPU {time.process_time() - started_at:.0f} s; sent {dict(sent)}",
            flush=True,
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:5]))
