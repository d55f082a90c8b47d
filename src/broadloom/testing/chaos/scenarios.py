"""What happens to the peers of a trial: one function a scenario, each told in the order in which it happens.

All begin with peers that find each other, and end with the audit of `closing.py`, which is not repeated here.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from broadloom.testing.chaos.config import ChaosConfig, ConfigError

if TYPE_CHECKING:
    from broadloom.testing.chaos.chaos_run import ChaosRun
    from broadloom.testing.processes.network_namespaces import NetworkNamespaces

WARMUP_S = 2.0
"""Traffic before anything happens."""
COOLDOWN_S = 1.0
"""Traffic after all is well again."""
STORM_LEAD_S = 1.5
"""Everyone must have heard the word before the moment comes."""
MEMORY_SAMPLES = 30
"""So often memory is looked at under load; what it was after a third of the time is what it may stay at."""
MEMORY_GROWTH_MAX = 1.1
MEMORY_CHECK_MIN_S = 600.0
"""In a shorter time, what is retained may still grow to its limit."""
KILL_FRACTION = 0.5
"""Of those who go in a churn: killed; the others leave in good order."""


def _grow_with_traffic(chaos_run: "ChaosRun") -> None:
    """What comes before the trouble."""
    chaos_run.grow()
    chaos_run.listener.phase("traffic")
    chaos_run.set_traffic(chaos_run.config.rate_per_s)
    chaos_run.run(WARMUP_S)


def kill(chaos_run: "ChaosRun") -> None:
    config = chaos_run.config
    _grow_with_traffic(chaos_run)
    victims = chaos_run.random.sample(chaos_run.pool.processes, config.affected_processes)
    chaos_run.listener.phase(f"killing {config.affected_peers} peers in {len(victims)} processes")
    killed_ns = chaos_run.kill(victims)
    chaos_run.listener.phase("repairing")
    chaos_run.metrics["whole_again_s"] = chaos_run.wait_until_converged(killed_ns)
    chaos_run.run(COOLDOWN_S)


def pause(chaos_run: "ChaosRun") -> None:
    config = chaos_run.config
    _grow_with_traffic(chaos_run)
    victims = chaos_run.random.sample(chaos_run.pool.processes, config.affected_processes)
    chaos_run.listener.phase(f"freezing {config.affected_peers} peers for {config.duration_s:g} s")
    paused_ns, began = time.monotonic_ns(), time.monotonic()
    chaos_run.pause(victims)
    chaos_run.metrics["whole_without_s"] = chaos_run.wait_until_converged(paused_ns)
    chaos_run.run(max(0.0, config.duration_s - (time.monotonic() - began)))
    chaos_run.listener.phase("they go on; repairing")
    chaos_run.resume(victims)
    chaos_run.metrics["whole_again_s"] = chaos_run.wait_until_converged(time.monotonic_ns())
    chaos_run.run(COOLDOWN_S)


def join_storm(chaos_run: "ChaosRun") -> None:
    config = chaos_run.config
    at_ns = time.monotonic_ns() + int(STORM_LEAD_S * 1e9)
    chaos_run.listener.phase(f"{config.peers} peers start at the same instant")
    for process in chaos_run.pool.processes:
        first = process.number * config.peers_per_process
        chaos_run.start(process, list(range(first, first + config.peers_per_process)), at_ns=at_ns)
    chaos_run.metrics["woven_s"] = chaos_run.wait_until_converged(at_ns)
    chaos_run.listener.phase("traffic")
    chaos_run.set_traffic(config.rate_per_s)
    chaos_run.run(WARMUP_S)


def churn(chaos_run: "ChaosRun") -> None:
    config = chaos_run.config
    chaos_run.grow()
    chaos_run.set_traffic(config.rate_per_s)
    end = time.monotonic() + config.duration_s
    spare = chaos_run.pool.processes[config.peers :]
    arrivals = 0
    while (left_s := end - time.monotonic()) > 0:
        chaos_run.listener.phase(
            f"churn: {arrivals} came, {chaos_run.left} left, {chaos_run.killed} died; {left_s:.0f} s to go"
        )
        chaos_run.run(min(left_s, chaos_run.random.expovariate(2 * config.churn_per_min / 60)))
        peers = list(chaos_run.members)
        if chaos_run.random.random() < 0.5:
            if arrivals < len(spare):
                chaos_run.start(spare[arrivals], [config.peers + arrivals])
                arrivals += 1
        elif len(peers) > max(2, config.peers // 2):
            number = chaos_run.random.choice(peers)
            if chaos_run.random.random() < KILL_FRACTION:
                chaos_run.kill([chaos_run.peers[number].process])
            else:
                chaos_run.leave(number)
            chaos_run.set_traffic(config.rate_per_s)
    chaos_run.listener.phase("repairing")
    chaos_run.metrics["arrivals"] = arrivals
    chaos_run.metrics["whole_again_s"] = chaos_run.wait_until_converged(time.monotonic_ns())
    chaos_run.run(COOLDOWN_S)


def join(chaos_run: "ChaosRun") -> None:
    config = chaos_run.config
    chaos_run.grow()
    chaos_run.set_traffic(config.rate_per_s)
    for count in range(config.joiners):
        chaos_run.listener.phase(f"newcomer {count + 1} of {config.joiners}")
        chaos_run.start(chaos_run.pool.processes[config.processes + count], [config.peers + count], timed=True)
        chaos_run.wait_until_converged(0)
    chaos_run.run(COOLDOWN_S)


def partition(chaos_run: "ChaosRun", namespaces: "NetworkNamespaces") -> None:
    from broadloom.testing.processes.network_namespaces import HOST_ADDRESSES

    config = chaos_run.config
    chaos_run.grow(bootstrap=HOST_ADDRESSES[:1])
    chaos_run.listener.phase("traffic")
    chaos_run.set_traffic(config.rate_per_s)
    chaos_run.run(WARMUP_S)
    chaos_run.listener.phase(f"no connection between the halves for {config.duration_s:g} s")
    namespaces.disconnect()
    chaos_run.run(config.duration_s)
    namespaces.reconnect()
    chaos_run.listener.phase("connected again; merging")
    healed_ns = time.monotonic_ns()
    chaos_run.metrics["one_fabric_s"] = chaos_run.wait_until_merged(healed_ns)
    chaos_run.metrics["whole_again_s"] = chaos_run.wait_until_converged(healed_ns)
    chaos_run.run(COOLDOWN_S)


def load(chaos_run: "ChaosRun") -> None:
    config = chaos_run.config
    chaos_run.grow()
    chaos_run.send_at_full_speed()
    began, end = time.monotonic(), time.monotonic() + config.duration_s
    memory_mb: list[float] = []
    while (left_s := end - time.monotonic()) > 0:
        chaos_run.listener.phase(f"everyone sends as fast as it can; {left_s:.0f} s to go")
        chaos_run.run(min(left_s, config.duration_s / MEMORY_SAMPLES))
        memory_mb.append(chaos_run.memory_mb())
    chaos_run.stop_traffic()
    chaos_run.metrics["load_s"] = time.monotonic() - began
    settled, last = memory_mb[len(memory_mb) // 3], memory_mb[-1]
    chaos_run.metrics["memory_settled_mb"], chaos_run.metrics["memory_last_mb"] = settled, last
    if config.duration_s >= MEMORY_CHECK_MIN_S and last > settled * MEMORY_GROWTH_MAX:
        chaos_run.problems.append(f"promise 7: memory grew from {settled:.0f} to {last:.0f} MB in the largest process")


@dataclass(frozen=True, slots=True)
class ChaosScenario:
    description: str
    run: Callable[..., None]
    defaults: ChaosConfig
    needs_namespaces: bool = False


SCENARIOS = {
    "kill": ChaosScenario(
        "processes are killed without warning, all at once", kill, ChaosConfig(peers=50, affected_peers=10)
    ),
    "churn": ChaosScenario(
        "peers come, leave and die for a minute", churn, ChaosConfig(peers=40, duration_s=60, churn_per_min=40)
    ),
    "pause": ChaosScenario(
        "processes stand still, and go on later", pause, ChaosConfig(peers=40, affected_peers=8, duration_s=15)
    ),
    "load": ChaosScenario("everyone sends as fast as it can", load, ChaosConfig(peers=8, duration_s=30)),
    "join-storm": ChaosScenario("all start at the same instant, through one portal", join_storm, ChaosConfig(peers=50)),
    "join": ChaosScenario("how long newcomers take, one after the other", join, ChaosConfig(peers=50, joiners=20)),
    "partition": ChaosScenario(
        "two halves cannot reach each other for a while (root only)",
        partition,
        ChaosConfig(peers=40, duration_s=20),
        True,
    ),
}


def spare_processes(name: str, config: ChaosConfig) -> int:
    """Those for peers that come later: all processes are made at the start."""
    if name == "churn":
        if config.processes != config.peers:
            raise ConfigError("churn: peers die one by one, so each needs a process of its own")
        return round(config.churn_per_min / 60 * config.duration_s * 1.5) + 2
    return config.joiners


def merge_config(defaults: ChaosConfig, given: dict[str, object]) -> ChaosConfig:
    """A scenario's own numbers, where nothing else was asked for."""
    chosen = {name: value for name, value in given.items() if value not in (0, None, "")}
    return replace(defaults, **chosen).validated()  # type: ignore[arg-type]
