"""The sweeps of `make soak`: everything that is checked with many seeds.

Each is a function of a seed that returns what went wrong, if anything, with the command that replays one seed. Tests
have fixed cases and the seeds that once failed; a new check with random choices belongs here as well.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import product

from broadloom.testing.sim.dissemination import DisseminationMode
from broadloom.testing.sim.scenario import Scenario, load
from broadloom.testing.sim.seed_runner import SeedResult, replay_command, run_seed
from tests.histories import problem_of
from tools import exhaustive
from tools.seed_pool import Outcome, SeedFunction

HISTORIES = 10_000
"""Target for histories of a layer or an application."""
DEGREES = 3, 5, 6, 8


@dataclass(frozen=True, slots=True)
class Sweep:
    name: str
    description: str
    run: SeedFunction
    target: int
    """Seeds after which it is complete."""
    seed_s: float
    """About what one seed takes on a core of its own. The soak prints what it took."""
    command: str = ""
    """Replays `{seed}`; the default is the soak itself."""
    weight: float = 1.0
    """Share of the time, relative to the others."""

    @property
    def deadline_s(self) -> float:
        """A seed that takes longer hangs, even on a busy machine."""
        return 120.0 + 20.0 * self.seed_s

    def replay(self, seed: int) -> str:
        if isinstance(self.run, ScenarioRun):
            return self.run.replay(seed)
        return (self.command or f"python -m tools.soak --only {self.name} --seeds {{seed}}").format(seed=seed)


@dataclass(frozen=True, slots=True)
class ScenarioRun:
    """A scenario of the simulator, with all its checks."""

    scenario: str
    peers: int
    degree: int = 4
    mode: DisseminationMode = DisseminationMode.MIXED
    roster: bool = False
    hostile: int = 0

    def __call__(self, seed: int) -> Outcome:
        result = run_seed(self._load(), seed, self.peers)
        return Outcome(result.problem or "", result.metrics)

    def replay(self, seed: int) -> str:
        return replay_command(self._load(), SeedResult(self.scenario, self.peers, seed))

    def _load(self) -> Scenario:
        scenario = load(self.scenario).with_degree(self.degree).with_dissemination(self.mode)
        scenario = scenario.with_roster() if self.roster else scenario
        return scenario.with_hostile(self.hostile) if self.hostile else scenario


@dataclass(frozen=True, slots=True)
class FunctionRun:
    """A function that raises an error if something does not hold; its last argument is the seed.

    By name, since most are in modules of tests, and not every process needs them all.
    """

    module: str
    function: str = "run_seed"
    arguments: tuple[object, ...] = ()

    def __call__(self, seed: int) -> Outcome:
        return Outcome(problem_of(partial(self.load(), *self.arguments), seed))

    def load(self) -> Callable[..., object]:
        function: Callable[..., object] = getattr(import_module(self.module), self.function)
        return function


def _in_all_modes(name: str, description: str, run: ScenarioRun, target: int, seed_s: float) -> Iterator[Sweep]:
    """The same with flooding only and with trees only, on fewer seeds."""
    sweep = Sweep(name, description, run, target, seed_s, weight=max(1.0, seed_s / 40))
    yield sweep
    for mode in (DisseminationMode.FLOOD, DisseminationMode.TREE):
        yield replace(
            sweep,
            name=f"{name}-{mode.value}",
            description=f"{description}; {mode.value}",
            run=replace(run, mode=mode),
            target=max(target // 5, min(target, 4)),
            weight=max(0.5, seed_s / 40),
        )


def _scenario_sweeps() -> Iterator[Sweep]:
    for name, description, run, target, seed_s in (
        ("kill", "40 of 200 killed at once under traffic", ScenarioRun("kill", 200), 100, 6),
        ("kill-half", "half of 1,000 killed at once", ScenarioRun("kill-half", 1000), 20, 35),
        ("kill-most", "nine of ten of 1,000 killed at once", ScenarioRun("kill-most", 1000), 20, 20),
        ("kill-hosts", "40 of 200 hosts crash without a reset", ScenarioRun("kill-hosts", 200), 20, 6),
        ("partition", "200 partitioned in halves for 20 s under traffic", ScenarioRun("partition", 200), 20, 10),
        ("asymmetric-partition", "one-way partition for 20 s", ScenarioRun("asymmetric-partition", 200), 20, 10),
        ("pause", "processes paused for 20 s", ScenarioRun("pause", 200), 20, 10),
        ("degraded-network", "resets and slow hosts under traffic", ScenarioRun("degraded-network", 100), 20, 5),
        ("long-partition", "partitioned for longer than retention", ScenarioRun("long-partition", 60), 20, 4),
        ("random-faults", "all faults in random order", ScenarioRun("random-faults", 24), 100, 1.2),
        ("requests", "direct requests under all faults", ScenarioRun("requests", 24), 100, 2),
        ("requests-few", "direct requests among a few members", ScenarioRun("requests", 12), 200, 1),
        ("roster", "the roster under all faults", ScenarioRun("random-faults", 12, roster=True), 1000, 1),
        ("receipts", "receipts under all faults", ScenarioRun("receipts", 12), 1000, 2),
        ("state", "state for late joiners under all faults", ScenarioRun("state", 12), 1000, 2),
        ("order-available", "agreed order, available, under all faults", ScenarioRun("order-available", 6), 1000, 0.5),
        ("order-safe", "agreed order, safe, under all faults", ScenarioRun("order-safe", 6), 1000, 0.5),
        ("kill-tree-parents", "tree parents with most children killed", ScenarioRun("kill-tree-parents", 60), 20, 1.5),
        ("kill-tree-hosts", "hosts of tree parents crash", ScenarioRun("kill-tree-hosts", 60), 20, 1.5),
        ("cold-start", "8 start at once on an empty channel", ScenarioRun("cold-start", 8), 200, 0.05),
        ("join-storm", "1,000 join at once through one bootstrap host", ScenarioRun("join-storm", 1000), 5, 12),
        ("churn", "18 % churn per minute for ten minutes", ScenarioRun("churn", 500), 2, 250),
    ):
        yield from _in_all_modes(name, description, run, target, seed_s)
    for peers, mode in product((32, 100, 400), DisseminationMode):
        run = ScenarioRun("dissemination-cost", peers, mode=mode)
        yield Sweep(f"cost-{peers}-{mode.value}", f"cost of a message; {mode.value}", run, 4, peers / 25, weight=0.5)
    for peers, target in ((50, 100), (100, 50), (200, 50)):
        run = ScenarioRun("connectivity", peers)
        yield Sweep(f"connectivity-{peers}", "vertex connectivity of grown fabrics", run, target, peers / 150)
    for peers, target in ((100, 20), (200, 20), (450, 20), (1000, 20), (10_000, 2)):
        weight = max(0.5, peers / 2500)
        yield Sweep(f"grow-{peers}", "growing", ScenarioRun("grow", peers), target, peers / 100, weight=weight)
    for degree in DEGREES:
        kill, partition = ScenarioRun("kill", 100, degree), ScenarioRun("partition", 60, degree)
        yield Sweep(
            f"kill-degree-{degree}", f"degree {degree}: 20 % killed at once", kill, 20, 0.7 * degree, weight=0.5
        )
        yield Sweep(f"partition-degree-{degree}", f"degree {degree}: halves", partition, 20, 0.7 * degree, weight=0.5)
    for name in ("kill", "partition", "random-faults", "long-partition", "pause"):
        run = ScenarioRun(name, 24, hostile=2)
        yield Sweep(f"hostile-{name}", f"{name} with two hostile members of 24", run, 100, 2.5, weight=0.5)
    few = FunctionRun("tests.testing.sim.test_scenarios", "run_seed")
    yield Sweep("few-peers", "every scenario in every mode, with few peers", few, 690, 2, weight=2)


def _function_sweeps() -> Iterator[Sweep]:
    """Not scenarios: histories of layers and applications, and checks of their own."""
    for name, module, description, seed_s in (
        ("mailboxes", "tests.mailboxes.histories", "acknowledged values survive kills, partitions and joins", 0.3),
        ("switch", "tests.switch.history", "one handler and one end for each request, under all faults", 0.2),
        ("conference", "tests.apps.conference.histories", "one leader in each partition, equal items", 0.1),
        ("game", "tests.apps.game.histories", "equal states at rest, and one stand-in for each role", 0.1),
        ("auction", "tests.apps.auction.histories", "one winner, and no bid with a receipt is lost", 0.2),
        ("delivery", "tests.apps.delivery.histories", "billed time is true time, for 40 subscribers", 2),
        ("rules", "tests.rules.fuzz", "random rules neither crash nor hang", 0.2),
    ):
        command = f"python -m {module} {{seed}}"
        yield Sweep(name, description, FunctionRun(module), HISTORIES, seed_s, command, weight=2)
    sim = "tests.testing.sim"
    for name, run, description, target, seed_s in (
        ("roster-members", FunctionRun(f"{sim}.test_roster"), "rosters of 8 to 15, some with a liar", 1000, 0.2),
        ("owner", FunctionRun(f"{sim}.test_owner", "faulty_run"), "cards, revocations and quotas hold", 1000, 0.5),
        ("offender", FunctionRun(f"{sim}.test_owner", "offender_run"), "author over its quota is cut", 100, 2),
        ("groups", FunctionRun("tests.groups.test_churn"), "equal trees after churn and a partition", 100, 6),
        (
            "groups-hostile",
            FunctionRun("tests.groups.test_hostile_member", "run_with_hostile_member"),
            "equal trees although a member lies",
            100,
            5,
        ),
        (
            "game-tapes",
            FunctionRun("tests.apps.game.test_tapes", "run_taped_seed"),
            "the tape of each member gives the same state",
            1000,
            0.3,
        ),
        (
            "auction-tapes",
            FunctionRun("tests.apps.auction.test_tapes", "run_taped_seed"),
            "the tape of each member names the same winner",
            1000,
            0.3,
        ),
        ("planted-faults", FunctionRun("tests.pipeline.planted_faults"), "the audit finds each fault", 1000, 2),
        ("orders-random", FunctionRun(f"{sim}.test_exhaustive"), "14 joins and leaves, all degrees", 1000, 0.2),
        (
            "orders",
            FunctionRun("tools.exhaustive"),
            "1 to 8 peers, every order of 8 joins, leaves and crashes, in each mode",
            exhaustive.case_count(),
            0.03,
        ),
    ):
        yield Sweep(name, description, run, target, seed_s)
    for scenario, seed_s in (("kill", 0.4), ("partition", 0.7), ("pause", 1.1), ("churn", 6.0)):
        run = FunctionRun(f"{sim}.test_receipts", "run_with_receipts", (scenario,))
        yield Sweep(f"receipts-{scenario}", f"receipts are true: {scenario}", run, 200, seed_s, weight=0.5)
    for scenario in ("kill", "partition"):
        run = FunctionRun(f"{sim}.test_receipts", "run_with_hostile_members", (scenario,))
        yield Sweep(f"receipts-hostile-{scenario}", f"receipts among liars: {scenario}", run, 200, 2, weight=0.5)


SWEEPS = (*_scenario_sweeps(), *_function_sweeps())
