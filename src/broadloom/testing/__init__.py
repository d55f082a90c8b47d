"""Test tools for applications that use Broadloom: deterministic simulation, local clusters and chaos runs.

- `Simulation`: simulated peers in virtual time; a seed determines everything.
- `LocalCluster`: real peers in processes of this machine; kill, pause and partition them while your program is
  connected. `ChaosRun` runs one scenario of faults and audits every delivery. Both need Linux.
- `DeliveryLog`: check what your own program receives: once, in order, without an unreported gap.

The pytest plugin offers the fixtures `simulation` and `local_cluster`; `docs/simulation.md` shows how to use them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broadloom.testing.chaos.chaos_run import ChaosRun
    from broadloom.testing.chaos.config import ChaosConfig
    from broadloom.testing.checks.delivery_log import DeliveryLog
    from broadloom.testing.cluster.cluster import LocalCluster
    from broadloom.testing.cluster.config import ClusterConfig, TrafficRates
    from broadloom.testing.errors import ClusterError, ConfigError, PeerNotFoundError
    from broadloom.testing.sim.network import SimNetworkSettings
    from broadloom.testing.sim.node import SimNode
    from broadloom.testing.sim.scenario import Scenario
    from broadloom.testing.sim.simulation import Simulation, SimulationSettings
    from broadloom.testing.sim.step_checker import GuaranteeViolation

__all__ = [
    "ChaosConfig",
    "ChaosRun",
    "ClusterConfig",
    "ClusterError",
    "ConfigError",
    "DeliveryLog",
    "GuaranteeViolation",
    "LocalCluster",
    "PeerNotFoundError",
    "Scenario",
    "SimNetworkSettings",
    "SimNode",
    "Simulation",
    "SimulationSettings",
    "TrafficRates",
]

# Loaded at first use: the pytest plugin is imported in every pytest run and must cost nothing.
_MODULE_OF = {
    "ChaosConfig": "chaos.config",
    "ChaosRun": "chaos.chaos_run",
    "ClusterConfig": "cluster.config",
    "ClusterError": "errors",
    "ConfigError": "errors",
    "DeliveryLog": "checks.delivery_log",
    "GuaranteeViolation": "sim.step_checker",
    "LocalCluster": "cluster.cluster",
    "PeerNotFoundError": "errors",
    "Scenario": "sim.scenario",
    "SimNetworkSettings": "sim.network",
    "SimNode": "sim.node",
    "Simulation": "sim.simulation",
    "SimulationSettings": "sim.simulation",
    "TrafficRates": "cluster.config",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
