"""The built-in scenarios load and pass with few peers; scenario errors are helpful."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broadloom.cli.sim import run as sim
from broadloom.protocol.broadcast.gap_repair import GapRepair
from broadloom.protocol.broadcast.plumtree import Plumtree
from broadloom.testing.sim.dissemination import BURST_BYTES_MAX, LARGE_BYTES, DisseminationMode, random_payloads
from broadloom.testing.sim.scenario import Scenario, ScenarioError, builtin_names, load, parse
from broadloom.testing.sim.seed_runner import SeedResult, replay_command
from broadloom.testing.sim.simulation import Simulation
from broadloom.testing.sim.step_checker import GuaranteeViolation
from broadloom.testing.sim.steps import STEPS, Run
from broadloom.wire.framing import FRAME_BYTES_MAX
from tests.histories import HistoryError

SEEDS = {DisseminationMode.MIXED: 0, DisseminationMode.FLOOD: 1, DisseminationMode.TREE: 0}
FLOODED = ("churn", "kill", "partition", "random-faults")
"""Scenarios in which everything is flooded; the others in the long tests. The mixed mode floods small messages too."""

SMALL = {
    "churn": 30,
    "connectivity": 50,
    "dissemination-cost": 32,
    "cold-start": 8,
    "grow": 50,
    "kill-most": 60,
    "long-partition": 16,
    "order-available": 6,
    "order-safe": 6,
    "join-storm": 60,
    "random-faults": 16,
    "requests": 12,
}
"""Number of peers by scenario; `DEFAULT_PEERS` for the others."""
DEFAULT_PEERS = 28


def shorter(scenario: Scenario) -> Scenario:
    """Shorten churn to a tenth of the time at four times the rate."""
    steps = tuple(
        replace(step, parameters={**step.parameters, "minutes": 1, "fraction_per_min": 0.72})
        if step.do == "churn"
        else step
        for step in scenario.steps
    )
    return replace(scenario, steps=steps)


# -- loading


def test_builtin_scenarios_are_listed():
    assert {"churn", "cold-start", "join-storm", "kill", "kill-most", "partition"} <= set(builtin_names())
    assert SMALL.keys() <= set(builtin_names())


@pytest.mark.parametrize("name", builtin_names())
def test_scenario_has_description_and_steps(name: str):
    scenario = load(name)
    assert scenario.name == name
    assert scenario.description.endswith((".", "!", "?"))
    assert scenario.peers > 0
    assert scenario.steps


def test_scenario_is_loaded_from_file(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'description = "Mine."\npeers = 3\n[peer]\ndegree = 3\n[network]\nlatency_ms = [1, 2]\n[[step]]\ndo = "grow"\n'
    )
    scenario = load(str(path))
    assert (scenario.name, scenario.peers, scenario.settings.peer.degree) == ("mine", 3, 3)
    assert scenario.settings.network.latency_ms == (1, 2)
    assert len(scenario.run(seed=1).simulation.alive) == 3


@pytest.mark.parametrize("step", sorted(STEPS))
def test_step_has_description(step: str):
    assert (STEPS[step].__doc__ or "").endswith(".")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"step": [{"do": "explode"}]}, r"unknown step 'explode'; `do` is one of churn, "),
        ({"step": [{"fraction": 0.5}]}, r"unknown step None; `do` is one of "),
        ({"step": [{"do": "kill", "shere": 0.5}]}, r"step kill: .*'shere'"),
        ({"step": [{"do": "wait"}]}, r"step wait: .*'duration_s'"),
        ({"pears": 3}, r"unknown key 'pears'; use bootstrap_count, .*, peers, "),
        ({"peer": {"degre": 5}}, r"unknown setting 'degre'; use .*degree, "),
        ({"network": {"latency": 5}}, r"unknown setting 'latency'; use .*latency_ms"),
        ({"peer": {"degree": 2}}, r"degree must be between 3 and 32, not 2"),
        ({"peer": {"degree": 33}}, r"degree must be between 3 and 32, not 33"),
    ],
)
def test_invalid_scenario_raises_helpful_error(content: dict[str, Any], text: str):
    with pytest.raises(ScenarioError, match=f"^mine: .*{text}"):
        parse("mine", content)


def test_invalid_toml_raises_scenario_error(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text("peers: 3\n")
    with pytest.raises(ScenarioError, match=r"mine\.toml is not valid TOML: .*line 1"):
        load(str(path))


def test_missing_file_raises_scenario_error(tmp_path: Path):
    with pytest.raises(ScenarioError, match=r"cannot read .*mine\.toml: No such file"):
        load(str(tmp_path / "mine.toml"))


def test_unknown_scenario_raises_error_with_known_names():
    with pytest.raises(
        ScenarioError,
        match=r"unknown scenario 'kil'; use asymmetric-partition, churn, .*kill, .* or a \.toml file",
    ):
        load("kil")


# -- running


def cases() -> list[Any]:
    every = [(name, mode) for name in builtin_names() for mode in DisseminationMode]
    is_long = [mode is DisseminationMode.FLOOD and name not in FLOODED for name, mode in every]
    marks = {True: [pytest.mark.long], False: []}
    return [pytest.param(*each, SEEDS[each[1]], marks=marks[long]) for each, long in zip(every, is_long, strict=True)]


def run_with_few_peers(name: str, mode: DisseminationMode, seed: int) -> None:
    run = shorter(load(name)).with_dissemination(mode).run(seed, SMALL.get(name, DEFAULT_PEERS))
    assert run.metrics
    assert all(value >= 0 for value in run.metrics.values())


def run_seed(seed: int) -> None:
    """One scenario in one mode: successive seeds run them all."""
    every = list(product(builtin_names(), DisseminationMode))
    name, mode = every[seed % len(every)]
    try:
        run_with_few_peers(name, mode, seed)
    except AssertionError as problem:
        raise HistoryError(f"seed {seed}: {name}, {mode.value}: {problem}") from problem


@pytest.mark.parametrize(("name", "mode", "seed"), cases())
def test_scenario_passes_with_few_peers(name: str, mode: DisseminationMode, seed: int):
    run_with_few_peers(name, mode, seed)


@pytest.mark.parametrize(
    "degree", [3, pytest.param(5, marks=pytest.mark.long), pytest.param(6, marks=pytest.mark.long), 8]
)
@pytest.mark.parametrize("name", ["kill", "partition"])
def test_scenario_passes_with_other_degrees(name: str, degree: int):
    run = load(name).with_degree(degree).run(seed=1, peers=30)
    free_slots = [degree - len(neighbors) for neighbors in run.simulation.adjacency().values()]
    assert sum(free_slots) == degree * len(free_slots) % 2


def test_connectivity_scenario_reports_metrics():
    metrics = load("connectivity").run(seed=1, peers=50).metrics
    assert metrics["copies"] == 3 * 50 + 1
    assert metrics["connectivity"] == 4
    assert metrics["diameter"] <= metrics["bound_high"]


# -- dissemination modes


@pytest.mark.parametrize("mode", DisseminationMode)
def test_dissemination_mode_round_trips_through_settings(mode: DisseminationMode):
    scenario = load("kill").with_degree(5).with_dissemination(mode)
    assert DisseminationMode.from_settings(scenario.settings.peer) is mode
    assert scenario.settings.peer.degree == 5
    assert scenario.with_dissemination(DisseminationMode.MIXED).settings == load("kill").with_degree(5).settings


def test_traffic_has_messages_of_every_size():
    random = Random(1)
    payloads = [random_payloads(random, 32) for _ in range(1000)]
    singles = [len(each[0]) for each in payloads if len(each) == 1]
    flooded = load("kill").settings.peer.flood_bytes_max
    assert min(singles) == 32
    assert flooded <= LARGE_BYTES[0] < max(singles) <= LARGE_BYTES[1] < FRAME_BYTES_MAX
    bursts = [sum(map(len, each)) for each in payloads if len(each) > 1]
    assert min(bursts) < flooded < max(bursts)
    assert max(len(data) for each in payloads if len(each) > 1 for data in each) <= BURST_BYTES_MAX


@pytest.mark.parametrize("peers", [32, pytest.param(100, marks=pytest.mark.long)])
def test_trees_have_few_duplicates_and_short_paths(peers: int):
    """The step itself checks its bounds."""
    metrics = load("dissemination-cost").with_dissemination(DisseminationMode.TREE).run(2, peers).metrics
    for authors in ("one", "many"):
        assert metrics[f"redundancy_{authors}"] < 0.1
        assert 1 <= metrics[f"hops_{authors}"] <= 1.5 * metrics["diameter"]
        assert metrics[f"latency_max_ms_{authors}"] < 300


def test_flood_redundancy_follows_degree():
    metrics = load("dissemination-cost").with_dissemination(DisseminationMode.FLOOD).run(2, 32).metrics
    for authors in ("one", "many"):
        assert metrics[f"redundancy_{authors}"] == pytest.approx(2, abs=0.2)  # degree - 2


def test_mixed_mode_saves_copies_of_large_messages():
    metrics = load("dissemination-cost").run(2, 32).metrics
    assert 0.5 < metrics["redundancy_many"] < 1.8


@pytest.mark.parametrize("mutant", ["never pruned", "too deep"])
def test_poor_tree_is_detected(mutant: str, monkeypatch: pytest.MonkeyPatch):
    if mutant == "never pruned":
        monkeypatch.setattr(Plumtree, "_prune", lambda *_: None)
        text = "duplicates per delivery"
    else:
        monkeypatch.setattr("broadloom.testing.sim.steps.DEPTH_RATIO_MAX", 0.5)
        text = "a tree of depth"
    with pytest.raises(GuaranteeViolation, match=text):
        load("dissemination-cost").with_dissemination(DisseminationMode.TREE).run(1, 32)


def test_late_delivery_after_crash_of_tree_parents_is_detected(monkeypatch: pytest.MonkeyPatch):
    """No peer requests missing messages, and none looks for another parent."""
    monkeypatch.setattr(Plumtree, "on_link_lost", lambda *_: None)
    monkeypatch.setattr(GapRepair, "_request", lambda *_: None)
    with pytest.raises(GuaranteeViolation, match=r"delivered only after|has not received"):
        load("kill-tree-parents").with_dissemination(DisseminationMode.TREE).run(1, 40)


def test_unknown_dissemination_mode_is_a_usage_error(capsys: pytest.CaptureFixture[str]):
    assert sim("kill", dissemination="gossip") == 2
    assert "--dissemination must be one of flood, tree, mixed, not 'gossip'" in capsys.readouterr().err


def test_dissemination_option_applies_to_run(capsys: pytest.CaptureFixture[str]):
    assert sim("kill-tree-parents", peers="12", seeds="1", jobs=1, dissemination="tree", json=True) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["latency_max_ms"] > 0


def test_replay_command_contains_dissemination_mode():
    scenario = load("kill").with_dissemination(DisseminationMode.TREE)
    assert "--dissemination tree " in replay_command(scenario, SeedResult("kill", 20, 7))
    assert "--dissemination" not in replay_command(load("kill"), SeedResult("kill", 20, 7))


def test_replay_command_contains_the_roster(capsys: pytest.CaptureFixture[str]):
    assert " --roster " in replay_command(load("kill").with_roster(), SeedResult("kill", 20, 7))
    assert sim("kill", peers="8", seeds="1", roster=True, json=True) == 0
    assert json.loads(capsys.readouterr().out)["problem"] is None


def test_traffic_is_limited_to_authors():
    run = Run(Simulation(1), 8)
    STEPS["grow"](run)
    STEPS["traffic"](run, per_s=50, authors=2)
    run.simulation.run_for(2)
    STEPS["converge"](run)
    assert len(run.simulation.checker.sent_at) == 2
