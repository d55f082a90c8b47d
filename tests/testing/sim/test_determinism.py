"""A scenario and a seed decide everything: a failing seed replays exactly, in any process."""

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from broadloom.protocol import Tuning
from broadloom.testing.sim.scenario import Scenario, parse
from tools import exhaustive

_GROWN = [{"do": "grow"}, {"do": "traffic", "per_s": 20}, {"do": "wait", "duration_s": 2}]
_CONVERGE = {"do": "converge", "timeout_s": 60}

SCENARIOS: dict[str, dict[str, Any]] = {
    "kill": {
        "peers": 24,
        "step": [*_GROWN, {"do": "kill", "fraction": 0.3}, {"do": "wait", "duration_s": 2}, _CONVERGE],
    },
    "partition": {
        "peers": 16,
        "step": [*_GROWN, {"do": "partition"}, {"do": "wait", "duration_s": 10}, {"do": "heal"}, _CONVERGE],
    },
    "churn": {"peers": 16, "step": [*_GROWN, {"do": "churn", "fraction_per_min": 2, "minutes": 0.2}, _CONVERGE]},
    "tree": {
        "peers": 24,
        "peer": {"flood_bytes_max": 0},
        "step": [*_GROWN, {"do": "kill", "fraction": 0.3}, {"do": "wait", "duration_s": 2}, _CONVERGE],
    },
    "faults": {
        "peers": 16,
        "step": [
            *_GROWN,
            {"do": "throttle", "count": 2, "bytes_per_s": 20_000, "frame_cost_ms": 1},
            {"do": "pause", "count": 2},
            {"do": "reset_connections", "fraction": 0.1},
            {"do": "wait", "duration_s": 3},
            {"do": "resume"},
            _CONVERGE,
        ],
    },
}

TRACE_SCRIPT = """
import sys
from tests.testing.sim.test_determinism import scenario, trace_of
sys.stdout.write(trace_of(scenario(sys.argv[1]), int(sys.argv[2])))
"""


def scenario(name: str) -> Scenario:
    return parse(name, SCENARIOS[name])


def trace_of(scenario: Scenario, seed: int) -> str:
    lines: list[str] = []
    scenario.run(seed, trace=lines.append)
    return "\n".join(lines)


def trace_in_subprocess(name: str, seed: int, hash_seed: int) -> str:
    """Trace in a separate process with another hash seed, so that sets iterate in another order."""
    command = [sys.executable, "-c", TRACE_SCRIPT, name, str(seed)]
    environment = os.environ | {"PYTHONHASHSEED": str(hash_seed)}
    return subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout


@pytest.mark.parametrize("name", SCENARIOS)
def test_same_seed_gives_same_history(name: str):
    first = trace_of(scenario(name), seed=1)
    assert first.count("\n") > 1000
    assert trace_of(scenario(name), seed=1) == first


@pytest.mark.parametrize("name", SCENARIOS)
def test_different_seed_gives_different_history(name: str):
    assert trace_of(scenario(name), seed=1) != trace_of(scenario(name), seed=2)


@pytest.mark.parametrize(
    "name", [each if each in ("kill", "tree") else pytest.param(each, marks=pytest.mark.long) for each in SCENARIOS]
)
def test_history_is_the_same_in_every_process(name: str):
    here = trace_of(scenario(name), seed=3)
    assert trace_in_subprocess(name, 3, hash_seed=1) == here
    assert trace_in_subprocess(name, 3, hash_seed=2) == here


@pytest.mark.parametrize(
    "fast", [*map(scenario, SCENARIOS), scenario("tree").with_hostile(1)], ids=[*SCENARIOS, "signed"]
)
def test_fast_path_does_not_change_history(fast: Scenario):
    slow = replace(fast, settings=replace(fast.settings, peer=replace(Tuning.of(fast.settings.peer), fast_path=False)))
    assert trace_of(fast, seed=5) == trace_of(slow, seed=5)


def test_tracing_does_not_change_history():
    traced, untraced = scenario("kill").run(4, trace=lambda _line: None), scenario("kill").run(4)
    assert traced.simulation.events == untraced.simulation.events
    assert traced.simulation.adjacency() == untraced.simulation.adjacency()


def test_sequence_and_seed_give_one_history():
    first, second = (
        exhaustive.run_order(exhaustive.parse_order("jjjldj"), 5, converge_between=False) for _ in range(2)
    )
    assert first.events == second.events
    assert first.adjacency() == second.adjacency()
