"""The scenarios that come with Weft: all can be read, say what they are about, and hold when played small."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from weft.sim.scenario import Scenario, ScenarioError, built_in, load, parse
from weft.sim.steps import STEPS

SEEDS = range(3)

SMALL = {"churn": 30, "connectivity": 50, "first": 8, "grow": 50, "kill-most": 60, "long-split": 16, "storm": 60}
"""Peers with which a scenario is played here; the others with `FEW`."""
FEW = 40


def shorter(scenario: Scenario) -> Scenario:
    """Churn for a tenth of the time, at four times the rate."""
    steps = tuple(
        replace(step, parameters={**step.parameters, "minutes": 1, "share_per_min": 0.72})
        if step.do == "churn"
        else step
        for step in scenario.steps
    )
    return replace(scenario, steps=steps)


# -- reading


def test_none_is_forgotten():
    assert {"churn", "first", "kill", "kill-most", "split", "storm"} <= set(built_in())
    assert SMALL.keys() <= set(built_in())


@pytest.mark.parametrize("name", built_in())
def test_a_scenario_says_what_it_is_about(name: str):
    scenario = load(name)
    assert scenario.name == name
    assert scenario.about.endswith((".", "!", "?"))
    assert scenario.peers > 0
    assert scenario.steps


def test_a_scenario_can_be_a_file_of_one_s_own(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'about = "Mine."\npeers = 3\n[peer]\ndegree = 3\n[network]\nlatency_ms = [1, 2]\n[[step]]\ndo = "grow"\n'
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
        ({"step": [{"do": "explode"}]}, r"must `do` one of break_lines, .*, not 'explode'"),
        ({"step": [{"share": 0.5}]}, r"must `do` one of .*, not None"),
        ({"step": [{"do": "kill", "shere": 0.5}]}, r"step kill: .*'shere'"),
        ({"step": [{"do": "wait"}]}, r"step wait: .*'s'"),
        ({"pears": 3}, r"'pears' is unknown; known are about, .*, peers, "),
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
    with pytest.raises(ScenarioError, match=r"no scenario 'kil'; there are churn, .*kill, .* or name a \.toml file"):
        load("kil")


# -- playing


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", built_in())
def test_small(name: str, seed: int):
    run = shorter(load(name)).run(seed, SMALL.get(name, FEW))
    assert run.figures
    assert all(value >= 0 for value in run.figures.values())


@pytest.mark.parametrize("degree", [3, 5, 6, 8])
@pytest.mark.parametrize("name", ["kill", "split"])
def test_any_degree(name: str, degree: int):
    run = load(name).with_degree(degree).run(seed=1, peers=30)
    holes = [degree - len(neighbours) for neighbours in run.simulation.adjacency().values()]
    assert sum(holes) == degree * len(holes) % 2


def test_figures_say_what_was_measured():
    figures = load("connectivity").run(seed=1, peers=50).figures
    assert figures["copies"] == 3 * 50 + 1
    assert figures["connectivity"] == 4
    assert figures["diameter"] <= figures["bound_high"]
