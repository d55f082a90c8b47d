"""Tools to test applications that use Broadloom. Public API.

- `LocalCluster`: real peers in processes of this machine; kill, pause and partition them while your program is
  connected.
- `ChaosRun`: one scenario of faults with an audit of every delivery (`broadloom chaos` on the command line).
- `DeliveryLog`: check what your program receives: once, in order, no unreported gap.

Clusters and chaos runs need Linux.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broadloom.testing.chaos.chaos_run import ChaosRun
    from broadloom.testing.chaos.config import ChaosConfig
    from broadloom.testing.checks.delivery_log import DeliveryLog
    from broadloom.testing.cluster.cluster import LocalCluster
    from broadloom.testing.cluster.config import NO_TRAFFIC, ClusterConfig, TrafficRates
    from broadloom.testing.errors import ClusterError, ConfigError, PeerNotFoundError

__all__ = [
    "NO_TRAFFIC",
    "ChaosConfig",
    "ChaosRun",
    "ClusterConfig",
    "ClusterError",
    "ConfigError",
    "DeliveryLog",
    "LocalCluster",
    "PeerNotFoundError",
    "TrafficRates",
]

_MODULES = {
    "NO_TRAFFIC": "cluster.config",
    "ChaosConfig": "chaos.config",
    "ChaosRun": "chaos.chaos_run",
    "ClusterConfig": "cluster.config",
    "ClusterError": "errors",
    "ConfigError": "errors",
    "DeliveryLog": "checks.delivery_log",
    "LocalCluster": "cluster.cluster",
    "PeerNotFoundError": "errors",
    "TrafficRates": "cluster.config",
}


def __getattr__(name: str) -> Any:
    """Import on first use: the simulator must not load process tools, nor the other way round."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
