"""What a scenario can be made of: each step a function of the simulation, its parameters those of the TOML file."""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.fabric.state import State
from weft.sim.spread import Meter, Spread
from weft.wire import Address

if TYPE_CHECKING:
    from weft.sim.node import Node
    from weft.sim.simulation import Simulation

GROW_STEP_S = 0.5
LATE_S = 2.0
"""By then everything that was said has arrived everywhere, if nothing happened to the fabric."""
REDUNDANCY_MAX = 0.2
LIMB_S = 1.5
"""After the death of those that feed others, each message must be with everyone by then."""
DEPTH_MAX = 1.5
"""Of an author's tree, as a multiple of the fabric's diameter."""


class Run:
    """One run of a scenario: the simulation, its size, and the figures that the steps report."""

    def __init__(self, simulation: "Simulation", peers: int) -> None:
        self.simulation = simulation
        self.peers = peers
        self.figures: dict[str, float] = {}
        self.adjacency: dict[int, list[int]] | None = None
        self.victims: list[Node] = []

    def chosen(self, share: float, count: int) -> "list[Node]":
        alive = self.simulation.alive
        return self.simulation.sample(min(count or round(len(alive) * share), len(alive)))

    def staying(self) -> "list[Node]":
        """Connected and awake: those that can be told to go."""
        return [node for node in self.simulation.members if not node.frozen and node.peer.is_present]


def grow(run: Run, peers: int = 0, pace: float = 0.25, within_s: float = 60.0) -> None:
    """Peers arrive, every half second so many (a share of those there), until there are `peers`; then all is quiet."""
    sim = run.simulation
    if not sim.nodes:
        sim.add()
        sim.run_until(lambda: bool(sim.members), within_s)
    while (missing := (peers or run.peers) - len(sim.alive)) > 0:
        for _ in range(min(missing, max(1, int(len(sim.alive) * pace)))):
            sim.add()
        sim.run(GROW_STEP_S)
    run.figures["grown_s"] = sim.settle(within_s)


def storm(run: Run, founded: bool = True, one_host: bool = False, within_s: float = 120.0) -> None:
    """Everyone arrives at the same instant, all through one portal."""
    sim = run.simulation
    portal = Address("h0", 0)
    if founded:
        sim.add(portals=(portal,))
        sim.run_until(lambda: bool(sim.members), within_s)
    while len(sim.alive) < run.peers:
        sim.add(portals=(portal,), host="h0" if one_host else None)
    run.figures["woven_s"] = sim.settle(within_s)


def traffic(run: Run, per_s: float, authors: int = 0) -> None:
    """So many times a second in all, a random member (or one of so many) says something; 0 stops it."""
    run.simulation.traffic(per_s, run.simulation.sample(min(authors, len(run.simulation.alive))) or None)


def wait(run: Run, s: float) -> None:
    """Let time pass."""
    run.simulation.run(s)


def settle(run: Run, within_s: float = 60.0, figure: str = "settled_s", may_be_told: bool = False) -> None:
    """Stop the traffic; one regular fabric and every message everywhere, within so many seconds."""
    run.simulation.traffic(0)
    run.figures[figure] = run.simulation.settle(within_s, may_be_told=may_be_told)


def rejoin(run: Run, within_s: float = 60.0, figure: str = "one_fabric_s") -> None:
    """Traffic goes on; the fabric is one regular graph again within so many seconds."""
    sim = run.simulation
    start = sim.clock.now

    def whole() -> bool:
        problem = sim.unsettled()
        return problem is None or problem[0] not in (4, 5, 6)

    if not sim.run_until(whole, within_s):
        promise, text = sim.unsettled() or (5, "")
        sim.watch.broken(promise, None, f"after {within_s:g} s: {text}")
    run.figures[figure] = sim.clock.now - start


def kill(run: Run, share: float = 0.0, count: int = 0, host: bool = False) -> None:
    """Processes die without a word, all at the same instant; with `host`, not even a reset is sent."""
    run.simulation.kill(run.chosen(share, count), host=host)


def saw(run: Run, share: float = 0.1, host: bool = False, within_s: float = LIMB_S, s: float = 10.0) -> None:
    """Those die that feed the most others along the authors' trees, under traffic; whoever is left has each message of
    the living within so many seconds."""
    sim = run.simulation
    authors = dict.fromkeys(sim.watch.sent_at)
    fed = Counter(
        window.parent.neighbour
        for node in sim.alive
        for author, window in node.peer.stream.authors.items()
        if author in authors and window.parent is not None
    )
    limbs = [node for node in sim.alive if node.peer.me.peer not in authors]
    limbs.sort(key=lambda node: -fed[node.peer.me.peer])
    sim.kill(limbs[: round(len(sim.alive) * share)], host=host)
    meter = Meter(sim)
    sim.run(s)
    late_ms = meter.read().late_ms
    run.figures["late_ms"] = round(late_ms)
    if late_ms > within_s * 1000:
        sim.watch.broken(1, None, f"a message came only after {late_ms:.0f} ms, although the fabric was whole")


def leave(run: Run, share: float = 0.0, count: int = 0) -> None:
    """Peers leave in good order, all at the same instant."""
    run.simulation.leave(run.chosen(share, count))


def freeze(run: Run, share: float = 0.0, count: int = 0) -> None:
    """Processes stop for a while; the network still holds their lines."""
    run.victims = run.chosen(share, count)
    for node in run.victims:
        node.freeze()


def thaw(run: Run) -> None:
    """Frozen processes go on."""
    for node in run.victims:
        if node.alive:
            node.thaw()


def slow(run: Run, share: float = 0.0, count: int = 0, bytes_per_s: float = 0.0, frame_ms: float = 0.0) -> None:
    """Some hosts have little upload, or take long for each frame."""
    for node in run.chosen(share, count):
        node.bytes_per_s = bytes_per_s
        node.frame_cost_s = frame_ms / 1000


def split(run: Run, share: float = 0.5, one_way: bool = False) -> None:
    """The network falls in two; what is under way between the sides is held back."""
    run.simulation.split(share, one_way=one_way)


def heal(run: Run) -> None:
    """The network is whole again."""
    run.simulation.heal()


def break_lines(run: Run, share: float) -> None:
    """A share of all connections is reset."""
    run.simulation.break_lines(share)


def churn(run: Run, share_per_min: float, minutes: float, dying: float = 0.5) -> None:
    """Peers go (some die, some leave) and others come, at the same rate."""
    sim = run.simulation
    end = sim.clock.now + minutes * 60
    while sim.clock.now < end:
        rate = share_per_min * len(sim.alive) / 60
        sim.run(min(sim.random.expovariate(2 * rate), end - sim.clock.now))
        if sim.random.random() < 0.5:
            sim.add()
        elif len(sim.alive) > run.peers // 2:
            goes = sim.sample(1)
            if sim.random.random() < dying or goes[0].peer.state is not State.CONNECTED:
                sim.kill(goes)
            else:
                sim.leave(goes)
    run.figures["arrivals"] = len(sim.nodes) - run.peers


def trouble(run: Run, s: float = 30.0, every_s: float = 1.5) -> None:
    """All faults in random order, often before the last one was dealt with: deaths, leaving, arrivals, connections that
    break, processes that stop, splits both ways and one way. At the end all go on, and the network is whole."""
    sim = run.simulation
    end = sim.clock.now + s
    while sim.clock.now < end:
        sim.run(min(sim.random.expovariate(1 / every_s), end - sim.clock.now))
        goes = run.staying() if len(run.staying()) > run.peers // 2 else []
        match sim.random.choice(_TROUBLES):
            case "kill" if goes:
                sim.kill(sim.random.sample(goes, sim.random.randint(1, max(1, len(goes) // 8))))
            case "leave" if goes:
                sim.leave(sim.random.sample(goes, sim.random.randint(1, 2)))
            case "break":
                sim.break_lines(0.1)
            case "freeze" if not run.victims:
                freeze(run, share=0.1)
            case "thaw":
                thaw(run)
                run.victims = []
            case "split" if not sim.network.is_split:
                split(run, share=sim.random.random() / 2, one_way=sim.random.random() < 0.3)
            case "heal":
                heal(run)
            case _:
                sim.add()
    thaw(run)
    heal(run)
    run.figures["arrivals"] = len(sim.nodes) - run.peers


_TROUBLES = ("kill", "kill", "leave", "add", "add", "break", "freeze", "thaw", "thaw", "split", "heal", "heal")


def rest(run: Run, within_s: float = 120.0) -> None:
    """Wait until nobody has anything left to mend and links stay as they are."""
    run.figures["rested_s"] = run.simulation.rest(within_s)


def copies(run: Run, broadcasts: int = 5) -> None:
    """Every broadcast that floods a fabric at rest takes exactly (r-1)N+1 copies; along a tree, no more than that."""
    sim = run.simulation
    for _ in range(broadcasts):
        before = sim.network.copies
        sim.broadcast(sim.random.choice(sim.members), b"counted")
        sim.settle(30)
        sim.run(1)
        sent = sim.network.copies - before
        count, degree = len(sim.alive), sim.settings.peer.degree
        expected = (degree - 1) * count + 1
        is_tree = Spread.of(sim.settings.peer) is Spread.TREE
        if sent > expected or sent < (count - 1 if is_tree else expected):
            sim.watch.broken(4, None, f"a broadcast to {count} peers took {sent} copies, not {expected}")
        run.figures["copies"] = sent


def measure(run: Run, connectivity_peers_max: int = 0) -> None:
    """Degree, diameter, mean distance and, up to some size, vertex connectivity, beside the paper's bounds."""
    from weft.sim.graph import diameter_bounds, shape_of  # needs numpy, an extra

    sim = run.simulation
    run.adjacency = sim.adjacency()
    shape = shape_of(run.adjacency, with_connectivity=len(run.adjacency) <= connectivity_peers_max)
    low, high = diameter_bounds(shape.peers, sim.settings.peer.degree)
    run.figures |= {"degree_min": min(shape.degrees), "degree_max": max(shape.degrees)}
    run.figures |= {"diameter": shape.diameter or 0, "mean_distance": round(shape.mean_distance or 0, 3)}
    run.figures |= {"bound_low": low, "bound_high": high}
    if shape.diameter is None or shape.diameter > high:
        sim.watch.broken(4, None, f"diameter {shape.diameter}, at most {high} expected for {shape.peers} peers")
    if shape.vertex_connectivity is not None:
        run.figures["connectivity"] = shape.vertex_connectivity
        wanted = min(sim.settings.peer.degree, shape.peers - 1)
        if shape.vertex_connectivity < wanted:
            text = f"{shape.vertex_connectivity} deaths could tear the fabric, {wanted} should be needed"
            sim.watch.broken(4, None, text)


def cost(run: Run, authors: int = 0, per_s: float = 20.0, learning_s: float = 5.0, s: float = 10.0) -> None:
    """What a message costs in steady state, with so many authors (0: all): copies beyond the one that is needed, and
    how far it goes to the last, beside the fabric's diameter. Along trees, bounds are checked."""
    from weft.sim.graph import shape_of  # needs numpy, an extra

    sim = run.simulation
    speakers = sim.sample(min(authors or len(sim.alive), len(sim.alive)))
    for node in speakers:
        sim.broadcast(node, b"here I am")  # so that a tree of each author can be learned
    sim.traffic(per_s, speakers)
    sim.run(learning_s)
    meter = Meter(sim)
    sim.run(s)
    sim.traffic(0)
    sim.run(LATE_S)
    measured = meter.read()
    diameter = shape_of(sim.adjacency()).diameter or 0
    which = "one" if authors == 1 else "many"
    run.figures |= {"diameter": diameter, f"redundancy_{which}": round(measured.redundancy, 3)}
    run.figures |= {f"hops_{which}": measured.hops, f"late_ms_{which}": round(measured.late_ms)}
    if Spread.of(sim.settings.peer) is Spread.TREE:
        if measured.redundancy > REDUNDANCY_MAX:
            text = f"{measured.redundancy:.3f} copies too many of each message, at most {REDUNDANCY_MAX:g} are allowed"
            sim.watch.broken(4, None, text)
        if measured.hops > DEPTH_MAX * diameter:
            sim.watch.broken(4, None, f"a tree of depth {measured.hops} in a fabric of diameter {diameter}")


STEPS: dict[str, Callable[..., Any]] = {
    step.__name__: step
    for step in (
        grow, storm, traffic, wait, settle, rejoin, kill, saw, leave, freeze, thaw, slow,
        split, heal, break_lines, churn, trouble, rest, copies, measure, cost,
    )
}  # fmt: skip
