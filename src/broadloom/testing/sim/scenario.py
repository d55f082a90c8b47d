"""Scenarios: TOML files that say what happens to a channel, step by step."""

import inspect
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from broadloom.protocol import Tuning
from broadloom.testing.sim.dissemination import DisseminationMode
from broadloom.testing.sim.network import SimNetworkSettings
from broadloom.testing.sim.simulation import Simulation, SimulationSettings
from broadloom.testing.sim.steps import STEPS, Run


class ScenarioError(ValueError):
    """The file does not describe a scenario; says what to change."""


@dataclass(frozen=True, slots=True)
class ScenarioStep:
    do: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scenario:
    """What happens to how many peers; with a seed, exactly one history."""

    name: str
    description: str
    peers: int
    settings: SimulationSettings
    steps: tuple[ScenarioStep, ...] = field(default=())
    source: str = ""
    """What to say to the command line to get it again."""

    def run(self, seed: int, peers: int = 0, trace: Callable[[str], None] | None = None) -> Run:
        """Play it; PromiseBroken if a promise does not hold."""
        run = Run(Simulation(seed, self.settings, trace), peers or self.peers)
        self.run_steps(run)
        return run

    def run_steps(self, run: Run) -> None:
        for step in self.steps:
            STEPS[step.do](run, **step.parameters)

    def with_degree(self, degree: int) -> "Scenario":
        return replace(self, settings=replace(self.settings, peer=replace(self.settings.peer, degree=degree)))

    def with_dissemination(self, mode: DisseminationMode) -> "Scenario":
        return replace(self, settings=replace(self.settings, peer=mode.apply_to(self.settings.peer)))


def builtin_names() -> list[str]:
    """Names of the scenarios that come with Broadloom."""
    folder = resources.files("broadloom.testing.sim") / "scenarios"
    return sorted(each.name.removesuffix(".toml") for each in folder.iterdir() if each.name.endswith(".toml"))


def load(name: str) -> Scenario:
    """A scenario by name, or by the path of a TOML file."""
    path = Path(name)
    try:
        if path.suffix == ".toml":
            text = path.read_text(encoding="utf-8")
        elif name in builtin_names():
            text = (resources.files("broadloom.testing.sim") / "scenarios" / f"{name}.toml").read_text(encoding="utf-8")
        else:
            raise ScenarioError(f"no scenario {name!r}; there are {', '.join(builtin_names())}, or name a .toml file")
        return replace(parse(path.stem, tomllib.loads(text)), source=name)
    except OSError as problem:
        raise ScenarioError(f"{name} cannot be read: {problem.strerror}") from None
    except tomllib.TOMLDecodeError as problem:
        raise ScenarioError(f"{name} is not TOML: {problem}") from None


def parse(name: str, content: dict[str, Any]) -> Scenario:
    """The scenario that a TOML file describes; every unknown word is an error."""
    known = {"description", "peers", "bootstrap_count", "size_bytes", "peer", "network", "step"}
    if unknown := sorted(content.keys() - known):
        raise ScenarioError(f"{name}: {unknown[0]!r} is unknown; known are {', '.join(sorted(known))}")
    settings = SimulationSettings(
        peer=_parse_settings(name, Tuning, content.get("peer", {})),
        network=_parse_settings(name, SimNetworkSettings, content.get("network", {})),
    )
    for key in ("bootstrap_count", "size_bytes"):
        if key in content:
            settings = replace(settings, **{key: content[key]})
    steps = tuple(_parse_step(name, dict(each)) for each in content.get("step", ()))
    return Scenario(name, content.get("description", ""), content.get("peers", 100), settings, steps)


def _parse_settings(name: str, kind: Any, given: dict[str, Any]) -> Any:
    known = {each.name for each in fields(kind)}
    for key in given:
        if key not in known:
            raise ScenarioError(f"{name}: {key!r} is no setting; known are {', '.join(sorted(known))}")
    try:
        return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in given.items()})
    except ValueError as problem:
        raise ScenarioError(f"{name}: {problem}") from None


def _parse_step(name: str, given: dict[str, Any]) -> ScenarioStep:
    do = given.pop("do", None)
    if do not in STEPS:
        raise ScenarioError(f"{name}: a step must `do` one of {', '.join(sorted(STEPS))}, not {do!r}")
    try:
        inspect.signature(STEPS[do]).bind(None, **given)
    except TypeError as problem:
        raise ScenarioError(f"{name}: step {do}: {problem}") from None
    return ScenarioStep(do, given)
