"""Ordered conversations between simulated peers, and what must hold for them at every step and at rest.

Mode `safe`: no two members ever have different entries at one index, and none is revoked. Mode `available`: entries
with the same epoch and index are equal everywhere, and every change of a delivered entry was reported in a `Rewound`
event that names exactly the revoked ones. Both: the submissions of each author are in the order in which it made them,
without gaps, each once. At rest: all have the same entries, and every submission of a living author is among them.
"""

from collections import Counter
from typing import TYPE_CHECKING

from broadloom.order.model import Diverged, Entry, Epoch, OrderEvent, Rewound, Skipped
from broadloom.order.settings import OrderSettings
from broadloom.order.store import MemoryOrderStore
from broadloom.testing.sim.order_runtime import SimOrderRuntime

if TYPE_CHECKING:
    from broadloom.testing.sim.node import SimNode
    from broadloom.testing.sim.simulation import Simulation

GUARANTEE = "agreed order"
RESTART_S = 3.0
"""Mean time until a voter that crashed is started again."""


class OrderTraffic:
    """All members take part in one conversation; random ones submit. In mode `safe` the first peers are the voters, and
    a voter that crashed or left is started again, with its store."""

    def __init__(self, simulation: "Simulation") -> None:
        self._sim = simulation
        self._rate = 0.0
        self._round = 0
        self._attached: dict[SimNode, SimOrderRuntime] = {}
        self._names: dict[int, str] = {}
        self._stores: dict[str, MemoryOrderStore] = {}
        self._voter_nodes: dict[str, SimNode] = {}
        self.voters: tuple[str, ...] = ()
        self.settings = OrderSettings()
        self.final: dict[int, tuple[int, bytes]] = {}
        """Mode `safe`: author and data by index."""
        self.assigned: dict[tuple[Epoch, int], tuple[int, bytes]] = {}
        self.submitted: dict[SimNode, list[bytes]] = {}
        self.counts = Counter[str]()
        self._may_rewind = False
        """Whether there was a fault after which members may have different logs."""

    @property
    def replicas(self) -> list[SimOrderRuntime]:
        """Of living members."""
        return [each for each in self._attached.values() if each.is_connected]

    def start(self, mode: str, per_s: float, voter_count: int = 3) -> None:
        if mode == "safe":
            self.voters = tuple(f"voter {number}" for number in range(voter_count))
        self.set_rate(per_s)

    def set_rate(self, per_s: float) -> None:
        self._rate = per_s
        self._round += 1
        self._schedule(self._round)

    def _schedule(self, this_round: int) -> None:
        delay_s = self._sim.random.expovariate(self._rate) if self._rate else 0.1
        self._sim.clock.call_at(self._sim.clock.now + delay_s, self._step, this_round)

    def _step(self, this_round: int) -> None:
        if this_round != self._round:
            return
        self._attach_all()
        writers = [each for each in self.replicas if not each.node.is_paused]
        if writers and self._rate:
            self.submit(self._sim.random.choice(writers))
        self._schedule(this_round)

    def submit(self, runtime: SimOrderRuntime) -> None:
        sent = self.submitted.setdefault(runtime.node, [])
        if runtime.replica.submissions.has_room:
            data = b"%d:%d" % (runtime.node.number, len(sent) + 1)
            sent.append(data)
            runtime.replica.submit(data)

    # -- taking part

    def _attach_all(self) -> None:
        for name in self.voters:
            node = self._voter_nodes.get(name)
            if node is not None and not node.is_alive and self._sim.random.random() < 0.1 / RESTART_S:
                node = self._voter_nodes[name] = self._sim.add_peer()
                self._names[node.peer.me.peer_id] = name
                self.counts["restarts"] += 1
        for node in self._sim.nodes:
            if node not in self._attached and node.is_connected and not node.is_paused:
                self._attach(node)

    def _attach(self, node: "SimNode") -> None:
        free = [name for name in self.voters if name not in self._voter_nodes]
        if free and node.peer.me.peer_id not in self._names:
            self._names[node.peer.me.peer_id] = free[0]
            self._voter_nodes[free[0]] = node
        name = self._names.setdefault(node.peer.me.peer_id, f"peer {node.number}")
        store = None
        if name in self.voters:
            store = self._stores.setdefault(name, MemoryOrderStore(self._sim.random.getrandbits(63) + 1))
        runtime = SimOrderRuntime(node, self._names, voters=self.voters, store=store, settings=self.settings)
        runtime.on_entry = lambda entry: self._on_entry(runtime, entry)
        runtime.on_order_event = lambda event: self._on_event(runtime, event)
        self._attached[node] = runtime

    # -- faults

    def sequencer_nodes(self) -> "list[SimNode]":
        return [each.node for each in self.replicas if each.replica.is_sequencing]

    def inject_faults(self, duration_s: float, interval_s: float, kinds: tuple[str, ...], members_min: int) -> None:
        """Faults in random order, every second one at the sequencer. At the end processes are resumed and partitions
        healed. Partitions and pauses last long enough for the roster to notice some of them."""
        sim = self._sim
        end = sim.clock.now + duration_s
        heal_at = resume_at = float("inf")
        paused: SimNode | None = None
        while sim.clock.now < end:
            next_at = sim.clock.now + sim.random.expovariate(1 / interval_s)
            sim.run_for(max(0.0, min(next_at, end, heal_at, resume_at) - sim.clock.now))
            if sim.clock.now >= heal_at:
                sim.heal()
                heal_at = float("inf")
            elif sim.clock.now >= resume_at and paused is not None:
                paused.resume()
                paused, resume_at = None, float("inf")
            elif sim.clock.now < end:
                kind = sim.random.choice(kinds)
                self.counts[kind] += 1
                self._may_rewind = self._may_rewind or kind in ("pause", "partition", "reset")
                targets = [node for node in sim.members if not node.is_paused and node.peer.is_present]
                leading = [node for node in self.sequencer_nodes() if node in targets]
                target = sim.random.choice((leading if sim.random.random() < 0.5 else targets) or targets or sim.alive)
                # Those that are still joining do not count: the members that they have heard of must not all die.
                is_spare = len(sim.members) > members_min and target in targets
                match kind:
                    case "kill" if is_spare:
                        target.kill(host=sim.random.random() < 0.2)
                    case "leave" if is_spare:
                        if target in self._attached:
                            self._attached[target].replica.close()
                        target.leave()
                    case "reset":
                        sim.reset_connections(0.2)
                    case "takeover":  # without a reason, as if a timeout was too short
                        self._attached[target].replica.elections.start_takeover() if target in self._attached else None
                    case "pause" if paused is None and len(targets) > 1:
                        paused, resume_at = target, sim.clock.now + sim.random.uniform(0.5, 12.0)
                        paused.pause()
                    case "partition" if not sim.network.is_partitioned:
                        sim.partition(sim.random.random() / 2, one_way=sim.random.random() < 0.2)
                        heal_at = sim.clock.now + sim.random.uniform(1.0, 20.0)
                    case _:
                        sim.add_peer()
        if paused is not None:
            paused.resume()
        if sim.network.is_partitioned:
            sim.heal()

    # -- at every step

    def _on_entry(self, runtime: SimOrderRuntime, entry: Entry) -> None:
        self.counts["delivered"] += 1
        last = runtime.delivered[-1].index if runtime.delivered else None
        if last is not None and entry.index != last + 1:
            self._violation(runtime, f"got entry {entry.index} after {last}")
        content = (entry.author, entry.data)
        if self.assigned.setdefault((entry.epoch, entry.index), content) != content:
            self._violation(runtime, f"got another entry {entry.index} of epoch {entry.epoch}")
        if self.voters and self.final.setdefault(entry.index, content) != content:
            self._violation(runtime, f"got another entry {entry.index} than others")
        number = int(entry.data.partition(b":")[2])
        before = next((each for each in reversed(runtime.delivered) if each.author == entry.author), None)
        if before is not None and number != int(before.data.partition(b":")[2]) + 1:
            self._violation(runtime, f"got {entry.data!r} after {before.data!r}")
        runtime.delivered.append(entry)

    def _on_event(self, runtime: SimOrderRuntime, event: OrderEvent) -> None:
        self.counts[type(event).__name__] += 1
        runtime.events.append(event)
        match event:
            case Rewound(to_index, entries):
                revoked = [each for each in runtime.delivered if each.index > to_index]
                if self.voters:
                    self._violation(runtime, f"revoked final entries after {to_index}")
                if not (self._may_rewind or self._sim.network.is_partitioned or self._sim.network.healed_at > 0):
                    self._violation(runtime, f"revoked entries after {to_index}, although no member was cut off")
                if [(each.index, each.data) for each in revoked] != [(each.index, each.data) for each in entries]:
                    self._violation(runtime, f"reported {len(entries)} revoked entries instead of {len(revoked)}")
                del runtime.delivered[len(runtime.delivered) - len(revoked) :]
            case Diverged(text) | Skipped(text):
                self._violation(runtime, f"reported {type(event).__name__}: {text}")

    # -- at rest

    def find_problem(self) -> str | None:
        """Why the members do not agree yet, or None."""
        replicas = self.replicas
        if len([each for each in replicas if each.replica.is_sequencing]) != 1:
            return f"{len([each for each in replicas if each.replica.is_sequencing])} sequencers"
        longest = max(replicas, key=lambda each: each.replica.log.end)
        for each in replicas:
            log = each.replica.log
            if (log.end, log.chain, log.epoch) != (
                longest.replica.log.end, longest.replica.log.chain, longest.replica.log.epoch,
            ):  # fmt: skip
                return f"{each.node} is at {log.end} of epoch {log.epoch}, {longest.node} at {longest.replica.log.end}"
            if each.replica.submissions.own:
                return f"{each.node} waits for {len(each.replica.submissions.own)} submissions"
            if each.delivered and each.delivered[-1].index != log.end:
                return f"{each.node} has delivered {each.delivered[-1].index} of {log.end} entries"
        return None

    def finish(self, timeout_s: float) -> float:
        """Stop submitting; all living members must agree within the timeout. Returns the seconds it took."""
        self.set_rate(0)
        start = self._sim.clock.now
        if not self._sim.run_until(lambda: self.find_problem() is None, timeout_s):
            self._sim.checker.report_violation(GUARANTEE, None, f"after {timeout_s:g} s: {self.find_problem()}")
        self._check_at_rest()
        return self._sim.clock.now - start

    def _check_at_rest(self) -> None:
        longest = max(self.replicas, key=lambda each: len(each.delivered))
        entries = {each.index: each for each in longest.delivered}
        for each in self.replicas:
            for entry in each.delivered:
                if entry.index in entries and entries[entry.index].data != entry.data:
                    self._violation(each, f"has another entry {entry.index} than {longest.node}")
        log = longest.replica.log
        ordered = Counter(log.entry(index).data for index in range(log.base + 1, log.end + 1))
        for data, count in ordered.items():
            if count > 1:
                self._violation(longest, f"has {data!r} {count} times")
        for each in self.replicas:
            for data in self.submitted.get(each.node, ()):
                if data not in ordered:
                    self._violation(each, f"submitted {data!r}, which was not ordered")

    def _violation(self, runtime: SimOrderRuntime, text: str) -> None:
        self._sim.checker.report_violation(GUARANTEE, runtime.node, text)
