"""The scenarios that come with Broadloom: all can be read, say what they are about, and hold when played small."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broadloom.cli.simulate import run as sim
from broadloom.protocol.broadcast.gap_repair import GapRepair
from broadloom.protocol.broadcast.plumtree import Plumtree
from broadloom.testing.sim.dissemination import BURST_BYTES_MAX, LARGE_BYTES, DisseminationMode, random_payloads
from broadloom.testing.sim.report import replay_command
from broadloom.testing.sim.scenario import Scenario, ScenarioError, builtin_names, load, parse
from broadloom.testing.sim.seed_runner import SeedResult
from broadloom.testing.sim.simulation import Simulation
from broadloom.testing.sim.step_checker import GuaranteeViolation
from broadloom.testing.sim.steps import STEPS, Run
from broadloom.wire.framing import FRAME_BYTES_MAX

SEEDS = {DisseminationMode.MIXED: (0,), DisseminationMode.FLOOD: (1,), DisseminationMode.TREE: (0,)}
"""Of each way of spreading: what goes wrong goes wrong in all of them."""
FURTHER_SEEDS = (2, 3)
"""Along trees, if there is time."""

SMALL = {
    "churn": 30,
    "connectivity": 50,
    "dissemination-cost": 32,
    "cold-start": 8,
    "grow": 50,
    "kill-most": 60,
    "long-partition": 16,
    "join-storm": 60,
    "random-faults": 16,
}
"""Peers with which a scenario is played here; the others with `FEW`."""
DEFAULT_PEERS = 40


def shorter(scenario: Scenario) -> Scenario:
    """Churn for a tenth of the time, at four times the rate."""
    steps = tuple(
        replace(step, parameters={**step.parameters, "minutes": 1, "fraction_per_min": 0.72})
        if step.do == "churn"
        else step
        for step in scenario.steps
    )
    return replace(scenario, steps=steps)


# -- reading


def test_none_is_forgotten():
    assert {"churn", "cold-start", "join-storm", "kill", "kill-most", "partition"} <= set(builtin_names())
    assert SMALL.keys() <= set(builtin_names())


@pytest.mark.parametrize("name", builtin_names())
def test_a_scenario_says_what_it_is_about(name: str):
    scenario = load(name)
    assert scenario.name == name
    assert scenario.description.endswith((".", "!", "?"))
    assert scenario.peers > 0
    assert scenario.steps


def test_a_scenario_can_be_a_file_of_one_s_own(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'description = "Mine."\npeers = 3\n[peer]\ndegree = 3\n[network]\nlatency_ms = [1, 2]\n[[step]]\ndo = "grow"\n'
    )
    scenario = load(str(path))
    assert (scenario.name, scenario.peers, scenario.settings.peer.degree) == ("mine", 3, 3)
    assert scenario.settings.network.latency_ms == (1, 2)
    assert len(scenario.run(seed=1).simulation.alive) == 3


@pytest.mark.parametrize("step", sorted(STEPS))
def test_every_step_says_what_it_does(step: str):
    assert (STEPS[step].__doc__ or "").endswith(".")


@pytest.mark.parametrize(
    ("content", "helpful"),
    [
        ({"step": [{"do": "explode"}]}, r"must `do` one of churn, .*, not 'explode'"),
        ({"step": [{"fraction": 0.5}]}, r"must `do` one of .*, not None"),
        ({"step": [{"do": "kill", "shere": 0.5}]}, r"step kill: .*'shere'"),
        ({"step": [{"do": "wait"}]}, r"step wait: .*'duration_s'"),
        ({"pears": 3}, r"'pears' is unknown; known are bootstrap_count, .*, peers, "),
        ({"peer": {"degre": 5}}, r"'degre' is no setting; known are .*degree, "),
        ({"network": {"latency": 5}}, r"'latency' is no setting; known are .*latency_ms"),
        ({"peer": {"degree": 2}}, r"degree 2: a peer keeps 3 to 32 links"),
        ({"peer": {"degree": 33}}, r"degree 33: a peer keeps 3 to 32 links"),
    ],
)
def test_what_is_wrong_with_a_scenario_is_said(content: dict[str, Any], helpful: str):
    with pytest.raises(ScenarioError, match=f"^mine: .*{helpful}"):
        parse("mine", content)


def test_a_file_that_is_not_toml(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text("peers: 3\n")
    with pytest.raises(ScenarioError, match=r"mine\.toml is not TOML: .*line 1"):
        load(str(path))


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(ScenarioError, match=r"mine\.toml cannot be read: No such file"):
        load(str(tmp_path / "mine.toml"))


def test_a_name_that_does_not_exist():
    with pytest.raises(
        ScenarioError,
        match=r"no scenario 'kil'; there are asymmetric-partition, churn, .*kill, .* or name a \.toml file",
    ):
        load("kil")


# -- playing


@pytest.mark.parametrize(("spread", "seed"), [(spread, seed) for spread, seeds in SEEDS.items() for seed in seeds])
@pytest.mark.parametrize("name", builtin_names())
def test_small(name: str, spread: DisseminationMode, seed: int):
    run = shorter(load(name)).with_dissemination(spread).run(seed, SMALL.get(name, DEFAULT_PEERS))
    assert run.metrics
    assert all(value >= 0 for value in run.metrics.values())


@pytest.mark.long
@pytest.mark.parametrize("seed", FURTHER_SEEDS)
@pytest.mark.parametrize("name", builtin_names())
def test_small_along_trees(name: str, seed: int):
    test_small(name, DisseminationMode.TREE, seed)


@pytest.mark.parametrize("degree", [3, 5, 6, 8])
@pytest.mark.parametrize("name", ["kill", "partition"])
def test_any_degree(name: str, degree: int):
    run = load(name).with_degree(degree).run(seed=1, peers=30)
    holes = [degree - len(neighbours) for neighbours in run.simulation.adjacency().values()]
    assert sum(holes) == degree * len(holes) % 2


def test_figures_say_what_was_measured():
    figures = load("connectivity").run(seed=1, peers=50).metrics
    assert figures["copies"] == 3 * 50 + 1
    assert figures["connectivity"] == 4
    assert figures["diameter"] <= figures["bound_high"]


# -- ways of spreading


@pytest.mark.parametrize("spread", DisseminationMode)
def test_a_way_of_spreading_is_a_threshold(spread: DisseminationMode):
    scenario = load("kill").with_degree(5).with_dissemination(spread)
    assert DisseminationMode.from_settings(scenario.settings.peer) is spread
    assert scenario.settings.peer.degree == 5
    assert scenario.with_dissemination(DisseminationMode.MIXED).settings == load("kill").with_degree(5).settings


def test_the_traffic_has_messages_of_every_size():
    random = Random(1)
    said = [random_payloads(random, 32) for _ in range(1000)]
    alone = [len(each[0]) for each in said if len(each) == 1]
    flooded = load("kill").settings.peer.flood_bytes_max
    assert min(alone) == 32
    assert flooded <= LARGE_BYTES[0] < max(alone) <= LARGE_BYTES[1] < FRAME_BYTES_MAX
    bursts = [sum(map(len, each)) for each in said if len(each) > 1]
    assert min(bursts) < flooded < max(bursts)
    assert max(len(data) for each in said if len(each) > 1 for data in each) <= BURST_BYTES_MAX


@pytest.mark.parametrize("peers", [32, 100])
def test_along_trees_hardly_a_copy_is_needless_and_the_way_is_short(peers: int):
    """Much is checked by the step itself."""
    figures = load("dissemination-cost").with_dissemination(DisseminationMode.TREE).run(2, peers).metrics
    for which in ("one", "many"):
        assert figures[f"redundancy_{which}"] < 0.1
        assert 1 <= figures[f"hops_{which}"] <= 1.5 * figures["diameter"]
        assert figures[f"late_ms_{which}"] < 300


def test_a_flood_takes_as_many_copies_as_there_are_links():
    figures = load("dissemination-cost").with_dissemination(DisseminationMode.FLOOD).run(2, 32).metrics
    for which in ("one", "many"):
        assert figures[f"redundancy_{which}"] == pytest.approx(2, abs=0.2)  # degree - 2, and a little for the author


def test_what_is_large_takes_few_copies_in_the_mixed_way_too():
    figures = load("dissemination-cost").run(2, 32).metrics
    assert 0.5 < figures["redundancy_many"] < 1.8


@pytest.mark.parametrize("mutant", ["a tree that is never pruned", "a tree that grows long"])
def test_a_tree_that_is_no_good_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch):
    if mutant == "a tree that is never pruned":
        monkeypatch.setattr(Plumtree, "_prune", lambda *_: None)
        text = "copies too many of each message"
    else:
        monkeypatch.setattr("broadloom.testing.sim.steps.DEPTH_RATIO_MAX", 0.5)
        text = "a tree of depth"
    with pytest.raises(GuaranteeViolation, match=text):
        load("dissemination-cost").with_dissemination(DisseminationMode.TREE).run(1, 32)


def test_who_waits_long_for_what_the_living_say_is_found(monkeypatch: pytest.MonkeyPatch):
    """Nobody pulls what it hears of, and nobody looks for another branch."""
    monkeypatch.setattr(Plumtree, "on_link_lost", lambda *_: None)
    monkeypatch.setattr(GapRepair, "_request", lambda *_: None)
    with pytest.raises(GuaranteeViolation, match=r"came only after|has not got"):
        load("kill-tree-parents").with_dissemination(DisseminationMode.TREE).run(1, 40)


def test_a_way_that_there_is_not(capsys: pytest.CaptureFixture[str]):
    assert sim("kill", dissemination="gossip") == 2
    assert "--dissemination must be one of flood, tree, mixed, not 'gossip'" in " ".join(capsys.readouterr().err.split())


def test_a_way_given_on_the_command_line(capsys: pytest.CaptureFixture[str]):
    assert sim("kill-tree-parents", peers="12", seeds="1", jobs=1, dissemination="tree", json=True) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["late_ms"] > 0


def test_the_way_is_part_of_the_command_that_replays_a_history():
    scenario = load("kill").with_dissemination(DisseminationMode.TREE)
    assert "--dissemination tree " in replay_command(scenario, SeedResult("kill", 20, 7))
    assert "--dissemination" not in replay_command(load("kill"), SeedResult("kill", 20, 7))


def test_traffic_of_few_authors():
    run = Run(Simulation(1), 8)
    STEPS["grow"](run)
    STEPS["traffic"](run, per_s=50, authors=2)
    run.simulation.run(2)
    STEPS["converge"](run)
    assert len(run.simulation.checker.sent_at) == 2
