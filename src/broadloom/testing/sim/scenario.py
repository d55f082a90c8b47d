"""Scenarios: TOML files that list what happens to a channel, step by step."""

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

SETTINGS = ("bootstrap_count", "receipt_timeout_s", "roster", "size_bytes")
"""Fields of `SimulationSettings` that a scenario can set."""


class ScenarioError(ValueError):
    """The scenario file is invalid; the message says what to change."""


@dataclass(frozen=True, slots=True)
class ScenarioStep:
    do: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scenario:
    """With a seed, exactly one history."""

    name: str
    description: str
    peers: int
    settings: SimulationSettings
    steps: tuple[ScenarioStep, ...] = field(default=())
    source: str = ""
    """Name or path for the command line."""

    def run(self, seed: int, peers: int = 0, trace: Callable[[str], None] | None = None) -> Run:
        """Run all steps; raise `GuaranteeViolation` if a guarantee does not hold."""
        run = Run(Simulation(seed, self.settings, trace), peers or self.peers)
        self.run_steps(run)
        return run

    def run_steps(self, run: Run) -> None:
        for step in self.steps:
            STEPS[step.do](run, **step.parameters)

    def with_degree(self, degree: int) -> "Scenario":
        return replace(self, settings=replace(self.settings, peer=replace(self.settings.peer, degree=degree)))

    def with_hostile(self, count: int) -> "Scenario":
        """On a signed channel, with this many hostile members."""
        return replace(self, settings=replace(self.settings, signed=True, hostile_count=count))

    def with_roster(self) -> "Scenario":
        """Peers keep a roster, and its guarantees are checked."""
        return replace(self, settings=replace(self.settings, roster=True))

    def with_receipts(self, timeout_s: float) -> "Scenario":
        """Every message waits for a receipt, which is checked."""
        return replace(self, settings=replace(self.settings, roster=True, receipt_timeout_s=timeout_s))

    def with_dissemination(self, mode: DisseminationMode) -> "Scenario":
        return replace(self, settings=replace(self.settings, peer=mode.apply_to(self.settings.peer)))


def builtin_names() -> list[str]:
    """Return the names of the scenarios that come with Broadloom."""
    directory = resources.files("broadloom.testing.sim") / "scenarios"
    return sorted(each.name.removesuffix(".toml") for each in directory.iterdir() if each.name.endswith(".toml"))


def load(name: str) -> Scenario:
    """Load a built-in scenario by name, or a TOML file by path."""
    path = Path(name)
    try:
        if path.suffix == ".toml":
            text = path.read_text(encoding="utf-8")
        elif name in builtin_names():
            text = (resources.files("broadloom.testing.sim") / "scenarios" / f"{name}.toml").read_text(encoding="utf-8")
        else:
            raise ScenarioError(f"unknown scenario {name!r}; use {', '.join(builtin_names())}, or a .toml file")
        return replace(parse(path.stem, tomllib.loads(text)), source=name)
    except OSError as error:
        raise ScenarioError(f"cannot read {name}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{name} is not valid TOML: {error}") from None


def parse(name: str, content: dict[str, Any]) -> Scenario:
    """Build a scenario from the content of a TOML file; unknown keys are errors."""
    known = {"description", "peers", *SETTINGS, "peer", "network", "step"}
    if unknown := sorted(content.keys() - known):
        raise ScenarioError(f"{name}: unknown key {unknown[0]!r}; use {', '.join(sorted(known))}")
    settings = SimulationSettings(
        peer=_parse_settings(name, Tuning, content.get("peer", {})),
        network=_parse_settings(name, SimNetworkSettings, content.get("network", {})),
        keep_received=False,
    )
    for key in SETTINGS:
        if key in content:
            settings = replace(settings, **{key: content[key]})
    steps = tuple(_parse_step(name, dict(each)) for each in content.get("step", ()))
    return Scenario(name, content.get("description", ""), content.get("peers", 100), settings, steps)


def _parse_settings(name: str, kind: Any, given: dict[str, Any]) -> Any:
    known = {each.name for each in fields(kind)}
    for key in given:
        if key not in known:
            raise ScenarioError(f"{name}: unknown setting {key!r}; use {', '.join(sorted(known))}")
    try:
        return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in given.items()})
    except ValueError as error:
        raise ScenarioError(f"{name}: {error}") from None


def _parse_step(name: str, given: dict[str, Any]) -> ScenarioStep:
    do = given.pop("do", None)
    if do not in STEPS:
        raise ScenarioError(f"{name}: unknown step {do!r}; `do` is one of {', '.join(sorted(STEPS))}")
    try:
        inspect.signature(STEPS[do]).bind(None, **given)
    except TypeError as error:
        raise ScenarioError(f"{name}: step {do}: {error}") from None
    return ScenarioStep(do, given)
