"""The pytest plugin: the examples of docs/simulation.md run, and failures report how to replay them."""

import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PLUGIN = "broadloom.testing.pytest_plugin"
TIMEOUT_S = 100.0


def documented_examples() -> list[str]:
    page = (TOP / "docs" / "simulation.md").read_text(encoding="utf-8")
    section = page.partition("## Test your own application\n")[2].partition("\n## ")[0]
    return re.findall(r"^```python\n(.*?)^```$", section, re.M | re.S)


def run_pytest(directory: Path, test: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run a test file with this plugin only, whether or not the installed package registers it."""
    (directory / "test_app.py").write_text(test, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider", *options, "test_app.py"],
        cwd=directory,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_documented_simulation_example_passes_with_several_seeds(tmp_path: Path) -> None:
    ended = run_pytest(tmp_path, documented_examples()[0], "--broadloom-seeds", "1..3")
    assert ended.returncode == 0, ended.stdout
    assert "3 passed" in ended.stdout


def test_documented_cluster_example_passes(tmp_path: Path) -> None:
    options = ("-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=auto")
    ended = run_pytest(
        tmp_path, documented_examples()[1], *options, "-o", "asyncio_default_fixture_loop_scope=function"
    )
    assert ended.returncode == 0, ended.stdout
    assert "1 passed" in ended.stdout


def test_failing_test_reports_seed_and_replay_command(tmp_path: Path) -> None:
    test = """
def test_one_peer_is_enough(simulation):
    simulation.add_peer()
    simulation.run_for(5)
    assert simulation.seed == 6 and len(simulation.members) == 2
"""
    ended = run_pytest(tmp_path, test, "--broadloom-seeds", "6")
    assert ended.returncode == 1
    assert "seed: 6\nreplay: pytest 'test_app.py::test_one_peer_is_enough[seed=6]' --broadloom-seeds 6" in ended.stdout


def test_settings_fixture_changes_simulation(tmp_path: Path) -> None:
    test = """
import pytest
from broadloom import ChannelSettings
from broadloom.testing import SimulationSettings

@pytest.fixture
def simulation_settings():
    return SimulationSettings(peer=ChannelSettings(degree=6))

def test_degree(simulation):
    peers = [simulation.add_peer() for _ in range(9)]
    simulation.check()
    assert {len(peer.peer.links) for peer in peers} == {6}
    peers[0].broadcast(b"hello")
    simulation.check()
    assert [[message.data for message in peer.received] for peer in peers[1:]] == [[b"hello"]] * 8
"""
    ended = run_pytest(tmp_path, test)
    assert ended.returncode == 0, ended.stdout


def test_violated_guarantee_fails_the_test(tmp_path: Path) -> None:
    test = """
def test_partition(simulation):
    for _ in range(8):
        simulation.add_peer()
    simulation.check()
    simulation.partition()
    simulation.run_for(60)
    simulation.check()
"""
    ended = run_pytest(tmp_path, test)
    assert ended.returncode == 1
    assert re.search(r"GuaranteeViolation: guarantee 5, at .*: 2 components, of 4, 4 peers", ended.stdout), ended.stdout


@pytest.mark.parametrize("seeds", ["x", "5..4"])
def test_invalid_seeds_are_a_usage_error(tmp_path: Path, seeds: str) -> None:
    ended = run_pytest(tmp_path, "def test_nothing(simulation): pass", "--broadloom-seeds", seeds)
    assert ended.returncode == pytest.ExitCode.INTERRUPTED
    assert "--broadloom-seeds: " in ended.stdout


def test_plugin_imports_nothing_else() -> None:
    script = (
        f"import pytest, sys; before = set(sys.modules); import {PLUGIN}; print(*sorted(set(sys.modules) - before))"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["broadloom", "broadloom.testing", PLUGIN]


def test_plugin_is_registered_as_entry_point() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert import_module(project["entry-points"]["pytest11"]["broadloom"]).__name__ == PLUGIN
