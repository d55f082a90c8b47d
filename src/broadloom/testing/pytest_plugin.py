"""Pytest fixtures for applications that use Broadloom. Registered as a `pytest11` entry point, so nothing to import.

- `simulation`: a `Simulation`, deterministic and in virtual time. A failing test reports its seed and the command that
  replays it; `--broadloom-seeds 1..20` runs every test that uses it with twenty seeds.
- `simulation_settings`: override it to change latency, degree and other settings of `simulation`.
- `local_cluster`: starts a `LocalCluster` of real processes.

Every pytest run imports this module, so everything else is imported in the fixtures.
"""

import shlex
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from broadloom.testing.cluster.cluster import LocalCluster
    from broadloom.testing.sim.simulation import Simulation, SimulationSettings


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("broadloom").addoption(
        "--broadloom-seeds",
        default="1",
        metavar="SEEDS",
        help="Seed or range of seeds for tests that use the fixture `simulation`, as 7 or 1..20 (default: 1).",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "broadloom_seed" in metafunc.fixturenames:
        seeds = _seeds(metafunc.config)
        metafunc.parametrize("broadloom_seed", seeds, indirect=True, ids=[f"seed={seed}" for seed in seeds])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    seed = getattr(item, "funcargs", {}).get("broadloom_seed")
    if report.failed and seed is not None:
        command = f"pytest {shlex.quote(item.nodeid)} --broadloom-seeds {seed}"
        report.sections.append(("Broadloom simulation", f"seed: {seed}\nreplay: {command}"))
    return report


def _seeds(config: pytest.Config) -> list[int]:
    from broadloom.testing.sim.seed_runner import parse_seeds

    try:
        return parse_seeds(config.getoption("--broadloom-seeds"))
    except ValueError as error:
        raise pytest.UsageError(f"--broadloom-seeds: {error}") from None


@pytest.fixture
def broadloom_seed(request: pytest.FixtureRequest) -> int:
    """The seed of the fixture `simulation`."""
    return int(getattr(request, "param", _seeds(request.config)[0]))


@pytest.fixture
def simulation_settings() -> "SimulationSettings | None":
    """Settings of the fixture `simulation`; override it in a module or `conftest.py`. None for the defaults."""
    return None


@pytest.fixture
def simulation(broadloom_seed: int, simulation_settings: "SimulationSettings | None") -> "Simulation":
    """A deterministic channel of simulated peers in virtual time."""
    from broadloom.testing.sim.simulation import Simulation

    return Simulation(broadloom_seed, simulation_settings)


@pytest.fixture
def local_cluster() -> "Callable[..., AbstractAsyncContextManager[LocalCluster]]":
    """Start real peers in processes: `async with local_cluster(peers=4) as cluster`.

    Takes the fields of `ClusterConfig`; without `rates`, the peers send nothing of their own. Join the channel with
    `broadloom.connect(cluster.channel, bootstrap=cluster.bootstrap())`.
    """

    @asynccontextmanager
    async def start(peers: int = 4, **config: Any) -> "AsyncIterator[LocalCluster]":
        from broadloom.testing.cluster.cluster import LocalCluster
        from broadloom.testing.cluster.config import NO_TRAFFIC, ClusterConfig

        async with LocalCluster.start(ClusterConfig(peers=peers, **{"rates": NO_TRAFFIC} | config)) as cluster:
            await cluster.wait_until_grown()
            yield cluster

    return start
