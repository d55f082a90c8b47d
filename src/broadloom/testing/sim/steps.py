"""What a scenario can be made of: each step a function of the simulation, its parameters those of the TOML file."""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broadloom.protocol.events import PeerState
from broadloom.testing.sim.dissemination import CostMeter, DisseminationMode
from broadloom.wire import Address

if TYPE_CHECKING:
    from broadloom.testing.sim.node import SimNode
    from broadloom.testing.sim.simulation import Simulation

GROW_STEP_S = 0.5
DELIVERY_WAIT_S = 2.0
"""By then everything that was said has arrived everywhere, if nothing happened to the fabric."""
REDUNDANCY_MAX = 0.2
TREE_REPAIR_S = 1.5
"""After the death of those that feed others, each message must be with everyone by then."""
DEPTH_RATIO_MAX = 1.5
"""Of an author's tree, as a multiple of the fabric's diameter."""


class Run:
    """One run of a scenario: the simulation, its size, and the figures that the steps report."""

    def __init__(self, simulation: "Simulation", peers: int) -> None:
        self.simulation = simulation
        self.peers = peers
        self.metrics: dict[str, float] = {}
        self.adjacency: dict[int, list[int]] | None = None
        self.victims: list[SimNode] = []

    def pick(self, fraction: float, count: int) -> "list[SimNode]":
        alive = self.simulation.alive
        return self.simulation.sample(min(count or round(len(alive) * fraction), len(alive)))

    def removable_nodes(self) -> "list[SimNode]":
        """Connected and awake: those that can be told to go."""
        return [node for node in self.simulation.members if not node.is_paused and node.peer.is_present]


def grow(run: Run, peers: int = 0, batch_fraction: float = 0.25, timeout_s: float = 60.0) -> None:
    """Peers arrive, every half second so many (a share of those there), until there are `peers`; then all is quiet."""
    sim = run.simulation
    if not sim.nodes:
        sim.add()
        sim.run_until(lambda: bool(sim.members), timeout_s)
    while (missing := (peers or run.peers) - len(sim.alive)) > 0:
        for _ in range(min(missing, max(1, int(len(sim.alive) * batch_fraction)))):
            sim.add()
        sim.run(GROW_STEP_S)
    run.metrics["grown_s"] = sim.converge(timeout_s)


def join_storm(run: Run, channel_exists: bool = True, one_host: bool = False, timeout_s: float = 120.0) -> None:
    """Everyone arrives at the same instant, all through one portal."""
    sim = run.simulation
    bootstrap = Address("h0", 0)
    if channel_exists:
        sim.add(bootstrap=(bootstrap,))
        sim.run_until(lambda: bool(sim.members), timeout_s)
    while len(sim.alive) < run.peers:
        sim.add(bootstrap=(bootstrap,), host="h0" if one_host else None)
    run.metrics["woven_s"] = sim.converge(timeout_s)


def traffic(run: Run, per_s: float, authors: int = 0) -> None:
    """So many times a second in all, a random member (or one of so many) says something; 0 stops it."""
    run.simulation.set_traffic(per_s, run.simulation.sample(min(authors, len(run.simulation.alive))) or None)


def wait(run: Run, duration_s: float) -> None:
    """Let time pass."""
    run.simulation.run(duration_s)


def converge(run: Run, timeout_s: float = 60.0, metric: str = "settled_s", allow_missed: bool = False) -> None:
    """Stop the traffic; one regular fabric and every message everywhere, within so many seconds."""
    run.simulation.set_traffic(0)
    run.metrics[metric] = run.simulation.converge(timeout_s, allow_missed=allow_missed)


def merge(run: Run, timeout_s: float = 60.0, metric: str = "one_fabric_s") -> None:
    """Traffic goes on; the fabric is one regular graph again within so many seconds."""
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
    """Processes die without a word, all at the same instant; with `host`, not even a reset is sent."""
    run.simulation.kill(run.pick(fraction, count), host=host)


def kill_tree_parents(
    run: Run, fraction: float = 0.1, host: bool = False, timeout_s: float = TREE_REPAIR_S, duration_s: float = 10.0
) -> None:
    """Those die that feed the most others along the authors' trees, under traffic; whoever is left has each message of
    the living within so many seconds."""
    sim = run.simulation
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
    sim.run(duration_s)
    latency_max_ms = cost_meter.read().latency_max_ms
    run.metrics["late_ms"] = round(latency_max_ms)
    if latency_max_ms > timeout_s * 1000:
        sim.checker.report_violation(
            1, None, f"a message came only after {latency_max_ms:.0f} ms, although the fabric was whole"
        )


def leave(run: Run, fraction: float = 0.0, count: int = 0) -> None:
    """Peers leave in good order, all at the same instant."""
    run.simulation.leave(run.pick(fraction, count))


def pause(run: Run, fraction: float = 0.0, count: int = 0) -> None:
    """Processes stop for a while; the network still holds their lines."""
    run.victims = run.pick(fraction, count)
    for node in run.victims:
        node.pause()


def resume(run: Run) -> None:
    """Frozen processes go on."""
    for node in run.victims:
        if node.is_alive:
            node.resume()


def throttle(
    run: Run, fraction: float = 0.0, count: int = 0, bytes_per_s: float = 0.0, frame_cost_ms: float = 0.0
) -> None:
    """Some hosts have little upload, or take long for each frame."""
    for node in run.pick(fraction, count):
        node.bytes_per_s = bytes_per_s
        node.frame_cost_s = frame_cost_ms / 1000


def partition(run: Run, fraction: float = 0.5, one_way: bool = False) -> None:
    """The network falls in two; what is under way between the sides is held back."""
    run.simulation.partition(fraction, one_way=one_way)


def heal(run: Run) -> None:
    """The network is whole again."""
    run.simulation.heal()


def reset_connections(run: Run, fraction: float) -> None:
    """A share of all connections is reset."""
    run.simulation.reset_connections(fraction)


def churn(run: Run, fraction_per_min: float, minutes: float, kill_fraction: float = 0.5) -> None:
    """Peers go (some die, some leave) and others come, at the same rate."""
    sim = run.simulation
    end = sim.clock.now + minutes * 60
    while sim.clock.now < end:
        rate = fraction_per_min * len(sim.alive) / 60
        sim.run(min(sim.random.expovariate(2 * rate), end - sim.clock.now))
        if sim.random.random() < 0.5:
            sim.add()
        elif len(sim.alive) > run.peers // 2:
            leaving = sim.sample(1)
            if sim.random.random() < kill_fraction or leaving[0].peer.state is not PeerState.CONNECTED:
                sim.kill(leaving)
            else:
                sim.leave(leaving)
    run.metrics["arrivals"] = len(sim.nodes) - run.peers


def random_faults(run: Run, duration_s: float = 30.0, interval_s: float = 1.5) -> None:
    """All faults in random order, often before the last one was dealt with: deaths, leaving, arrivals, connections that
    break, processes that stop, splits both ways and one way. At the end all go on, and the network is whole."""
    sim = run.simulation
    end = sim.clock.now + duration_s
    while sim.clock.now < end:
        sim.run(min(sim.random.expovariate(1 / interval_s), end - sim.clock.now))
        leaving = run.removable_nodes() if len(run.removable_nodes()) > run.peers // 2 else []
        match sim.random.choice(_FAULTS):
            case "kill" if leaving:
                sim.kill(sim.random.sample(leaving, sim.random.randint(1, max(1, len(leaving) // 8))))
            case "leave" if leaving:
                sim.leave(sim.random.sample(leaving, sim.random.randint(1, 2)))
            case "reset":
                sim.reset_connections(0.1)
            case "pause" if not run.victims:
                pause(run, fraction=0.1)
            case "resume":
                resume(run)
                run.victims = []
            case "partition" if not sim.network.is_partitioned:
                partition(run, fraction=sim.random.random() / 2, one_way=sim.random.random() < 0.3)
            case "heal":
                heal(run)
            case _:
                sim.add()
    resume(run)
    heal(run)
    run.metrics["arrivals"] = len(sim.nodes) - run.peers


_FAULTS = ("kill", "kill", "leave", "add", "add", "reset", "pause", "resume", "resume", "partition", "heal", "heal")


def quiesce(run: Run, timeout_s: float = 120.0) -> None:
    """Wait until nobody has anything left to mend and links stay as they are."""
    run.metrics["rested_s"] = run.simulation.quiesce(timeout_s)


def measure_redundancy(run: Run, broadcasts: int = 5) -> None:
    """Every broadcast that floods a fabric at rest takes exactly (r-1)N+1 copies; along a tree, no more than that."""
    sim = run.simulation
    for _ in range(broadcasts):
        before = sim.network.broadcast_frames_sent
        sim.broadcast(sim.random.choice(sim.members), b"counted")
        sim.converge(30)
        sim.run(1)
        sent = sim.network.broadcast_frames_sent - before
        count, degree = len(sim.alive), sim.settings.peer.degree
        expected = (degree - 1) * count + 1
        is_tree = DisseminationMode.from_settings(sim.settings.peer) is DisseminationMode.TREE
        if sent > expected or sent < (count - 1 if is_tree else expected):
            sim.checker.report_violation(4, None, f"a broadcast to {count} peers took {sent} copies, not {expected}")
        run.metrics["copies"] = sent


def measure_topology(run: Run, connectivity_peers_max: int = 0) -> None:
    """Degree, diameter, mean distance and, up to some size, vertex connectivity, beside the paper's bounds."""
    from broadloom.topology import analyze_topology, diameter_bounds

    sim = run.simulation
    run.adjacency = sim.adjacency()
    topology = analyze_topology(run.adjacency, with_connectivity=len(run.adjacency) <= connectivity_peers_max)
    low, high = diameter_bounds(topology.peers, sim.settings.peer.degree)
    run.metrics |= {"degree_min": min(topology.degrees), "degree_max": max(topology.degrees)}
    run.metrics |= {"diameter": topology.diameter or 0, "mean_distance": round(topology.mean_distance or 0, 3)}
    run.metrics |= {"bound_low": low, "bound_high": high}
    if topology.diameter is None or topology.diameter > high:
        sim.checker.report_violation(
            4, None, f"diameter {topology.diameter}, at most {high} expected for {topology.peers} peers"
        )
    if topology.vertex_connectivity is not None:
        run.metrics["connectivity"] = topology.vertex_connectivity
        target_degree = min(sim.settings.peer.degree, topology.peers - 1)
        if topology.vertex_connectivity < target_degree:
            text = f"{topology.vertex_connectivity} deaths could tear the fabric, {target_degree} should be needed"
            sim.checker.report_violation(4, None, text)


def measure_dissemination(
    run: Run, authors: int = 0, per_s: float = 20.0, warmup_s: float = 5.0, duration_s: float = 10.0
) -> None:
    """What a message costs in steady state, with so many authors (0: all): copies beyond the one that is needed, and
    how far it goes to the last, beside the fabric's diameter. Along trees, bounds are checked."""
    from broadloom.topology import analyze_topology

    sim = run.simulation
    senders = sim.sample(min(authors or len(sim.alive), len(sim.alive)))
    for node in senders:
        sim.broadcast(node, b"here I am")  # so that a tree of each author can be learned
    sim.set_traffic(per_s, senders)
    sim.run(warmup_s)
    cost_meter = CostMeter(sim)
    sim.run(duration_s)
    sim.set_traffic(0)
    sim.run(DELIVERY_WAIT_S)
    measured = cost_meter.read()
    diameter = analyze_topology(sim.adjacency()).diameter or 0
    label = "one" if authors == 1 else "many"
    run.metrics |= {"diameter": diameter, f"redundancy_{label}": round(measured.redundancy, 3)}
    run.metrics |= {f"hops_{label}": measured.hops, f"late_ms_{label}": round(measured.latency_max_ms)}
    if DisseminationMode.from_settings(sim.settings.peer) is DisseminationMode.TREE:
        if measured.redundancy > REDUNDANCY_MAX:
            text = f"{measured.redundancy:.3f} copies too many of each message, at most {REDUNDANCY_MAX:g} are allowed"
            sim.checker.report_violation(4, None, text)
        if measured.hops > DEPTH_RATIO_MAX * diameter:
            sim.checker.report_violation(4, None, f"a tree of depth {measured.hops} in a fabric of diameter {diameter}")


STEPS: dict[str, Callable[..., Any]] = {
    step.__name__: step
    for step in (
        grow, join_storm, traffic, wait, converge, merge, kill, kill_tree_parents, leave, pause, resume, throttle,
        partition, heal, reset_connections, churn, random_faults, quiesce, measure_redundancy, measure_topology,
        measure_dissemination,
    )
}  # fmt: skip
