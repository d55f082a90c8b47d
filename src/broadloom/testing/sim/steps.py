"""The steps of scenarios: each is a function of the run, with the parameters that the TOML file gives."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from broadloom.protocol.events import PeerState
from broadloom.testing.sim.dissemination import CostMeter, DisseminationMode
from broadloom.topology import analyze_topology, diameter_bounds, target_degree
from broadloom.wire import Address

if TYPE_CHECKING:
    from broadloom.testing.sim.node import SimNode
    from broadloom.testing.sim.simulation import Simulation

GROW_STEP_S = 0.5
DELIVERY_WAIT_S = 2.0
"""Time by which all messages are delivered everywhere in a stable fabric."""
REDUNDANCY_MAX = 0.2
"""Duplicates per delivery along trees."""
TREE_REPAIR_S = 1.5
"""Time by which each message must be delivered after tree parents have crashed."""
HOSTILE_REPAIR_S = 10.0
"""The same with hostile members: what they do not relay arrives when gap repair has asked the others."""
ORDER_FAULTS = ("kill", "kill", "leave", "add", "add", "reset", "pause", "partition", "takeover")
DEPTH_RATIO_MAX = 1.5
"""Maximum depth of an author's tree, as a multiple of the fabric's diameter."""


class Run:
    """One run of a scenario: the simulation, its size, and the metrics that the steps report."""

    def __init__(self, simulation: "Simulation", peers: int) -> None:
        self.simulation = simulation
        self.peers = peers
        self.metrics: dict[str, float] = {}
        self.adjacency: dict[int, list[int]] | None = None
        self.paused: list[SimNode] = []

    def pick(self, fraction: float, count: int) -> "list[SimNode]":
        alive = self.simulation.alive
        return self.simulation.sample(min(count or round(len(alive) * fraction), len(alive)))

    def removable_nodes(self) -> "list[SimNode]":
        return [node for node in self.simulation.members if not node.is_paused and node.peer.is_present]


def grow(run: Run, peers: int = 0, batch_fraction: float = 0.25, timeout_s: float = 60.0) -> None:
    """Add peers in batches (a fraction of the current peers every half second) up to `peers`, then converge."""
    sim = run.simulation
    if not sim.nodes:
        sim.add_peer()
        sim.run_until(lambda: bool(sim.members), timeout_s)
    while (missing := (peers or run.peers) - len(sim.alive)) > 0:
        for _ in range(min(missing, max(1, int(len(sim.alive) * batch_fraction)))):
            sim.add_peer()
        sim.run_for(GROW_STEP_S)
    run.metrics["grown_s"] = sim.converge(timeout_s)


def join_storm(run: Run, channel_exists: bool = True, one_host: bool = False, timeout_s: float = 120.0) -> None:
    """Start all peers at the same instant with the same bootstrap host."""
    sim = run.simulation
    bootstrap = Address("h0", 0)
    if channel_exists:
        sim.add_peer(bootstrap=(bootstrap,))
        sim.run_until(lambda: bool(sim.members), timeout_s)
    while len(sim.alive) < run.peers:
        sim.add_peer(bootstrap=(bootstrap,), host="h0" if one_host else None)
    run.metrics["joined_s"] = sim.converge(timeout_s)


def traffic(run: Run, per_s: float, authors: int = 0) -> None:
    """Send at this total rate, from random members or from this many authors; 0 stops it."""
    run.simulation.set_traffic(per_s, run.simulation.sample(min(authors, len(run.simulation.alive))) or None)


def request_traffic(run: Run, per_s: float) -> None:
    """Send direct requests and one-way messages between random members at this total rate; 0 stops it."""
    run.simulation.requests.set_rate(per_s)


def finish_requests(run: Run, timeout_s: float = 30.0) -> None:
    """Stop the requests; each one of a living peer must have an outcome within the timeout."""
    requests = run.simulation.requests
    requests.set_rate(0)
    if not run.simulation.run_until(lambda: not requests.open_requests, timeout_s):
        record = requests.open_requests[0]
        text = f"{len(requests.open_requests)} requests have no outcome after {timeout_s:g} s"
        run.simulation.checker.report_violation("direct requests", record.caller, text)
    run.metrics["requests"] = len(requests.records)
    run.metrics |= {kind.name.lower(): count for kind, count in sorted(requests.replies.items(), key=str)}


def finish_receipts(run: Run, timeout_s: float = 10.0) -> None:
    """When all open receipts have ended, every other member must confirm one more message within the timeout."""
    sim = run.simulation
    sim.set_traffic(0)
    sim.run_for(sim.settings.receipt_timeout_s or 0.0)
    author, *others = [node for node in sim.members if not node.is_hostile]
    sequence = author.broadcast(b"all have recovered", receipt_timeout_s=timeout_s)
    sim.run_for(timeout_s + 1)
    receipt = next(each for each in author.receipts if each.sequence == sequence)
    if receipt.confirmed != {node.peer.me.peer_id for node in others} or not receipt.is_roster_complete:
        sim.checker.report_violation(10, author, f"{len(others)} members have a message, but {receipt}")
    receipts = [receipt for node in sim.nodes for receipt in node.receipts]
    run.metrics["receipts"] = len(receipts)
    run.metrics["incomplete"] = sum(not receipt.is_complete for receipt in receipts)


def fetch_state(run: Run) -> None:
    """From now on, every peer runs a program that fetches the state of another one and then reads."""
    run.simulation.state_traffic.start()


def finish_state(run: Run, timeout_s: float = 60.0) -> None:
    """Stop the traffic; every program must have its state and all messages within the timeout."""
    sim = run.simulation
    sim.set_traffic(0)
    if not sim.run_until(lambda: sim.state_traffic.find_problem() is None, timeout_s):
        sim.checker.report_violation(11, None, f"after {timeout_s:g} s: {sim.state_traffic.find_problem()}")
    run.metrics["fetched"] = sum(sim.state_traffic.fetched)
    run.metrics["fetches_failed"] = len(sim.state_traffic.fetched) - sum(sim.state_traffic.fetched)


def order_traffic(run: Run, mode: str, per_s: float, voters: int = 3) -> None:
    """All members take part in one ordered conversation, and random ones submit at this total rate. In mode `safe` the
    first members are the voters."""
    run.simulation.order.start(mode, per_s, voters)


def order_faults(
    run: Run, duration_s: float = 25.0, interval_s: float = 2.5, kinds: Sequence[str] = ORDER_FAULTS
) -> None:
    """Inject faults in random order, every second one at the sequencer. Voters that crash are started again."""
    run.simulation.order.inject_faults(duration_s, interval_s, tuple(kinds), members_min=4)


def finish_order(run: Run, timeout_s: float = 90.0) -> None:
    """Stop submitting; all members must have the same entries, and every submission, within the timeout."""
    run.metrics["agreed_s"] = run.simulation.order.finish(timeout_s)
    run.metrics |= {name.lower(): count for name, count in sorted(run.simulation.order.counts.items())}


def wait(run: Run, duration_s: float) -> None:
    """Let time pass."""
    run.simulation.run_for(duration_s)


def converge(run: Run, timeout_s: float = 60.0, metric: str = "converged_s", allow_missed: bool = False) -> None:
    """Stop the traffic; the fabric must be regular and every message delivered within the timeout."""
    run.simulation.set_traffic(0)
    run.metrics[metric] = run.simulation.converge(timeout_s, allow_missed=allow_missed)


def merge(run: Run, timeout_s: float = 60.0, metric: str = "merged_s") -> None:
    """Under continuing traffic, the fabric must be regular and connected within the timeout."""
    sim = run.simulation
    start = sim.clock.now

    def is_merged() -> bool:
        problem = sim.convergence_problems()
        return problem is None or problem[0] not in (4, 5, 6)

    if not sim.run_until(is_merged, timeout_s):
        guarantee, text = sim.convergence_problems() or (5, "")
        sim.checker.report_violation(guarantee, None, f"after {timeout_s:g} s: {text}")
    run.metrics[metric] = sim.clock.now - start


def kill(run: Run, fraction: float = 0.0, count: int = 0, host: bool = False) -> None:
    """Crash processes at the same instant; with `host`, their machines, which send no reset."""
    run.simulation.kill(run.pick(fraction, count), host=host)


def kill_tree_parents(
    run: Run, fraction: float = 0.1, host: bool = False, timeout_s: float = TREE_REPAIR_S, duration_s: float = 10.0
) -> None:
    """Crash the peers with the most children in the authors' trees; under traffic, each message of a living author must
    still be delivered within the timeout."""
    sim = run.simulation
    if sim.settings.hostile_count:
        timeout_s = max(timeout_s, HOSTILE_REPAIR_S)
    authors = dict.fromkeys(sim.checker.sent_at)
    children_by_parent = Counter(
        window.tree.parent.peer_id
        for node in sim.alive
        for author, window in node.peer.broadcaster.receiver.windows.items()
        if author in authors and window.tree.parent is not None
    )
    candidates = [node for node in sim.alive if node.peer.me.peer_id not in authors]
    candidates.sort(key=lambda node: -children_by_parent[node.peer.me.peer_id])
    sim.kill(candidates[: round(len(sim.alive) * fraction)], host=host)
    cost_meter = CostMeter(sim)
    sim.run_for(duration_s)
    latency_max_ms = cost_meter.read().latency_max_ms
    run.metrics["latency_max_ms"] = round(latency_max_ms)
    if latency_max_ms > timeout_s * 1000:
        sim.checker.report_violation(
            1, None, f"a message was delivered only after {latency_max_ms:.0f} ms in a connected fabric"
        )


def leave(run: Run, fraction: float = 0.0, count: int = 0) -> None:
    """Let peers leave gracefully at the same instant."""
    run.simulation.leave(run.pick(fraction, count))


def pause(run: Run, fraction: float = 0.0, count: int = 0) -> None:
    """Pause processes, as with SIGSTOP; their connections stay open."""
    run.paused = run.pick(fraction, count)
    for node in run.paused:
        node.pause()


def resume(run: Run) -> None:
    """Resume the paused processes."""
    for node in run.paused:
        if node.is_alive:
            node.resume()


def throttle(
    run: Run,
    fraction: float = 0.0,
    count: int = 0,
    bytes_per_s: float = 0.0,
    frame_cost_ms: float = 0.0,
    handshake_cost_ms: float = 0.0,
) -> None:
    """Limit the upload of some hosts, or make their processes slow to read frames and to open connections."""
    for node in run.pick(fraction, count):
        node.bytes_per_s = bytes_per_s
        node.frame_cost_s = frame_cost_ms / 1000
        node.handshake_cost_s = handshake_cost_ms / 1000


def partition(run: Run, fraction: float = 0.5, one_way: bool = False) -> None:
    """Partition the network; frames between the two sides are held back."""
    run.simulation.partition(fraction, one_way=one_way)


def heal(run: Run) -> None:
    """End the partition."""
    run.simulation.heal()


def reset_connections(run: Run, fraction: float) -> None:
    """Reset a fraction of all connections."""
    run.simulation.reset_connections(fraction)


def churn(run: Run, fraction_per_min: float, minutes: float, kill_fraction: float = 0.5) -> None:
    """Remove peers (by crash or leave) and add others, at the same rate."""
    sim = run.simulation
    end = sim.clock.now + minutes * 60
    while sim.clock.now < end:
        rate = fraction_per_min * len(sim.alive) / 60
        sim.run_for(min(sim.random.expovariate(2 * rate), end - sim.clock.now))
        if sim.random.random() < 0.5:
            sim.add_peer()
        elif len(sim.alive) > run.peers // 2:
            leaving = sim.sample(1)
            if sim.random.random() < kill_fraction or leaving[0].peer.state is not PeerState.CONNECTED:
                sim.kill(leaving)
            else:
                sim.leave(leaving)
    run.metrics["arrivals"] = len(sim.nodes) - run.peers


def random_faults(run: Run, duration_s: float = 30.0, interval_s: float = 1.5) -> None:
    """Inject all faults in random order, often before the fabric has recovered from the last one. At the end, processes
    are resumed and partitions healed."""
    sim = run.simulation
    end = sim.clock.now + duration_s
    while sim.clock.now < end:
        sim.run_for(min(sim.random.expovariate(1 / interval_s), end - sim.clock.now))
        leaving = run.removable_nodes() if len(run.removable_nodes()) > run.peers // 2 else []
        match sim.random.choice(_FAULTS):
            case "kill" if leaving:
                sim.kill(sim.random.sample(leaving, sim.random.randint(1, max(1, len(leaving) // 8))))
            case "leave" if leaving:
                sim.leave(sim.random.sample(leaving, sim.random.randint(1, 2)))
            case "reset":
                sim.reset_connections(0.1)
            case "pause" if not run.paused:
                pause(run, fraction=0.1)
            case "resume":
                resume(run)
                run.paused = []
            case "partition" if not sim.network.is_partitioned:
                partition(run, fraction=sim.random.random() / 2, one_way=sim.random.random() < 0.3)
            case "heal":
                heal(run)
            case _:
                sim.add_peer()
    resume(run)
    heal(run)
    run.metrics["arrivals"] = len(sim.nodes) - run.peers


_FAULTS = ("kill", "kill", "leave", "add", "add", "reset", "pause", "resume", "resume", "partition", "heal", "heal")


def quiesce(run: Run, timeout_s: float = 120.0) -> None:
    """Wait until links no longer change."""
    run.metrics["quiescent_s"] = run.simulation.quiesce(timeout_s)


def measure_redundancy(run: Run, broadcasts: int = 5) -> None:
    """Check that a flood in a quiescent fabric takes exactly (r-1)N+1 copies, and a tree no more than that."""
    sim = run.simulation
    for _ in range(broadcasts):
        before = sim.network.broadcast_frames_sent
        sim.random.choice(sim.members).broadcast(b"counted")
        sim.converge(30)
        sim.run_for(1)
        sent = sim.network.broadcast_frames_sent - before
        count, degree = len(sim.alive), sim.settings.peer.degree
        expected = (degree - 1) * count + 1
        is_tree = DisseminationMode.from_settings(sim.settings.peer) is DisseminationMode.TREE
        if sent > expected or sent < (count - 1 if is_tree else expected):
            sim.checker.report_violation(4, None, f"a broadcast to {count} peers took {sent} copies, not {expected}")
        run.metrics["copies"] = sent


def measure_topology(run: Run, connectivity_peers_max: int = 0) -> None:
    """Measure degree, diameter, mean distance and (up to a size) vertex connectivity; check the bounds of the paper."""
    sim = run.simulation
    run.adjacency = sim.adjacency()
    topology = analyze_topology(run.adjacency, with_connectivity=len(run.adjacency) <= connectivity_peers_max)
    low, high = diameter_bounds(topology.peers, sim.settings.peer.degree)
    run.metrics |= {"degree_min": min(topology.degrees), "degree_max": max(topology.degrees)}
    run.metrics |= {"diameter": topology.diameter or 0, "mean_distance": round(topology.mean_distance or 0, 3)}
    run.metrics |= {"bound_low": low, "bound_high": high}
    if topology.diameter is None or topology.diameter > high:
        sim.checker.report_violation(
            4, None, f"diameter {topology.diameter}; at most {high} is expected for {topology.peers} peers"
        )
    if topology.vertex_connectivity is not None:
        run.metrics["connectivity"] = topology.vertex_connectivity
        target = target_degree(topology.peers, sim.settings.peer.degree)
        if topology.vertex_connectivity < target:
            text = f"{topology.vertex_connectivity} crashes can disconnect the fabric, instead of {target}"
            sim.checker.report_violation(4, None, text)


def measure_dissemination(
    run: Run, authors: int = 0, per_s: float = 20.0, warmup_s: float = 5.0, duration_s: float = 10.0
) -> None:
    """Measure duplicates, hops and latency in steady state with this many authors (0: all). Along trees, check their
    bounds."""
    sim = run.simulation
    senders = sim.sample(min(authors or len(sim.alive), len(sim.alive)))
    for node in senders:
        node.broadcast(b"here I am")  # lets the tree of each author form
    sim.set_traffic(per_s, senders)
    sim.run_for(warmup_s)
    cost_meter = CostMeter(sim)
    sim.run_for(duration_s)
    sim.set_traffic(0)
    sim.run_for(DELIVERY_WAIT_S)
    measured = cost_meter.read()
    diameter = analyze_topology(sim.adjacency()).diameter or 0
    label = "one" if authors == 1 else "many"
    run.metrics |= {"diameter": diameter, f"redundancy_{label}": round(measured.redundancy, 3)}
    run.metrics |= {f"hops_{label}": measured.hops, f"latency_max_ms_{label}": round(measured.latency_max_ms)}
    if DisseminationMode.from_settings(sim.settings.peer) is DisseminationMode.TREE:
        if measured.redundancy > REDUNDANCY_MAX:
            text = f"{measured.redundancy:.3f} duplicates per delivery; at most {REDUNDANCY_MAX:g} are allowed"
            sim.checker.report_violation(4, None, text)
        if measured.hops > DEPTH_RATIO_MAX * diameter:
            sim.checker.report_violation(4, None, f"a tree of depth {measured.hops} in a fabric of diameter {diameter}")


STEPS: dict[str, Callable[..., Any]] = {
    step.__name__: step
    for step in (
        grow, join_storm, traffic, request_traffic, finish_requests, finish_receipts, fetch_state, finish_state,
        order_traffic, order_faults, finish_order, wait, converge, merge, kill, kill_tree_parents, leave, pause, resume,
        throttle, partition, heal, reset_connections, churn, random_faults, quiesce, measure_redundancy,
        measure_topology, measure_dissemination,
    )
}  # fmt: skip
