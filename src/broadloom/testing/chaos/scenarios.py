"""The scenarios: one function each, with its steps in order. The final audit follows every scenario."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from broadloom.testing.chaos.config import ChaosConfig
from broadloom.testing.errors import ConfigError
from broadloom.transport.addresses import LOOPBACK

if TYPE_CHECKING:
    from broadloom.testing.chaos.chaos_run import ChaosRun
    from broadloom.testing.processes.network_namespaces import NetworkNamespaces

WARMUP_S = 2.0
"""Traffic before the fault."""
COOLDOWN_S = 1.0
"""Traffic after the repair."""
STORM_LEAD_S = 1.5
"""The command has to reach every process before the common moment."""
MEMORY_SAMPLES = 30
"""Memory samples under load; the one after a third of the time is the reference."""
MEMORY_GROWTH_MAX = 1.1
MEMORY_CHECK_MIN_S = 600.0
"""In a shorter run, retention buffers may still grow to their limits."""
KILL_FRACTION = 0.5
"""Share of departures in a churn that are crashes; the others leave gracefully."""


async def _grow_with_traffic(chaos_run: "ChaosRun") -> None:
    await chaos_run.grow()
    chaos_run.listener.phase("traffic")
    chaos_run.set_traffic(chaos_run.config.rate_per_s)
    await chaos_run.sleep(WARMUP_S)


async def kill(chaos_run: "ChaosRun") -> None:
    config = chaos_run.config
    await _grow_with_traffic(chaos_run)
    victims = chaos_run.random.sample(chaos_run.pool.workers, config.affected_processes)
    chaos_run.listener.phase(f"killing {config.affected_peers} peers in {len(victims)} processes")
    killed_ns = chaos_run.kill(victims)
    chaos_run.listener.phase("repairing")
    chaos_run.metrics["regular_again_s"] = await chaos_run.wait_until_converged(killed_ns)
    await chaos_run.sleep(COOLDOWN_S)


async def pause(chaos_run: "ChaosRun") -> None:
    config = chaos_run.config
    await _grow_with_traffic(chaos_run)
    victims = chaos_run.random.sample(chaos_run.pool.workers, config.affected_processes)
    chaos_run.listener.phase(f"pausing {config.affected_peers} peers for {config.duration_s:g} s")
    paused_ns, began = time.monotonic_ns(), time.monotonic()
    chaos_run.pause(victims)
    chaos_run.metrics["regular_without_paused_s"] = await chaos_run.wait_until_converged(paused_ns)
    await chaos_run.sleep(max(0.0, config.duration_s - (time.monotonic() - began)))
    chaos_run.listener.phase("resumed; repairing")
    chaos_run.resume(victims)
    chaos_run.metrics["regular_again_s"] = await chaos_run.wait_until_converged(time.monotonic_ns())
    await chaos_run.sleep(COOLDOWN_S)


async def join_storm(chaos_run: "ChaosRun") -> None:
    config = chaos_run.config
    at_ns = time.monotonic_ns() + int(STORM_LEAD_S * 1e9)
    chaos_run.listener.phase(f"{config.peers} peers start at the same moment")
    for worker in chaos_run.pool.workers:
        first = worker.number * config.peers_per_process
        chaos_run.start_peers(worker, range(first, first + config.peers_per_process), [LOOPBACK], at_ns=at_ns)
    chaos_run.metrics["regular_s"] = await chaos_run.wait_until_converged(at_ns)
    chaos_run.listener.phase("traffic")
    chaos_run.set_traffic(config.rate_per_s)
    await chaos_run.sleep(WARMUP_S)


async def churn(chaos_run: "ChaosRun") -> None:
    config = chaos_run.config
    await chaos_run.grow()
    chaos_run.set_traffic(config.rate_per_s)
    end = time.monotonic() + config.duration_s
    spare = chaos_run.pool.workers[config.peers :]
    arrivals = 0
    while (left_s := end - time.monotonic()) > 0:
        chaos_run.listener.phase(
            f"churn: {arrivals} joined, {chaos_run.left} left, {chaos_run.killed} killed; {left_s:.0f} s remaining"
        )
        await chaos_run.sleep(min(left_s, chaos_run.random.expovariate(2 * config.churn_per_min / 60)))
        peers = chaos_run.active
        if chaos_run.random.random() < 0.5:
            if arrivals < len(spare):
                chaos_run.start_peers(spare[arrivals], [config.peers + arrivals], [LOOPBACK])
                arrivals += 1
        elif len(peers) > max(2, config.peers // 2):
            record = chaos_run.random.choice(peers)
            if chaos_run.random.random() < KILL_FRACTION:
                chaos_run.kill([record.worker])
            else:
                chaos_run.leave(record)
            chaos_run.set_traffic(config.rate_per_s)
    chaos_run.listener.phase("repairing")
    chaos_run.metrics["arrivals"] = arrivals
    chaos_run.metrics["regular_again_s"] = await chaos_run.wait_until_converged(time.monotonic_ns())
    await chaos_run.sleep(COOLDOWN_S)


async def join(chaos_run: "ChaosRun") -> None:
    config = chaos_run.config
    await chaos_run.grow()
    chaos_run.set_traffic(config.rate_per_s)
    for count in range(config.joiners):
        chaos_run.listener.phase(f"joiner {count + 1} of {config.joiners}")
        spare = chaos_run.pool.workers[config.processes + count]
        chaos_run.start_peers(spare, [config.peers + count], [LOOPBACK], timed=True)
        await chaos_run.wait_until_converged(0)
    await chaos_run.sleep(COOLDOWN_S)


async def partition(chaos_run: "ChaosRun", namespaces: "NetworkNamespaces") -> None:
    from broadloom.testing.processes.network_namespaces import HOST_ADDRESSES

    config = chaos_run.config
    await chaos_run.grow(bootstrap=HOST_ADDRESSES[:1])
    chaos_run.listener.phase("traffic")
    chaos_run.set_traffic(config.rate_per_s)
    await chaos_run.sleep(WARMUP_S)
    chaos_run.listener.phase(f"partitioned for {config.duration_s:g} s")
    namespaces.disconnect()
    await chaos_run.sleep(config.duration_s)
    namespaces.reconnect()
    chaos_run.listener.phase("healed; merging")
    healed_ns = time.monotonic_ns()
    chaos_run.metrics["merged_s"] = await chaos_run.wait_until_merged(healed_ns)
    chaos_run.metrics["regular_again_s"] = await chaos_run.wait_until_converged(healed_ns)
    await chaos_run.sleep(COOLDOWN_S)


async def load(chaos_run: "ChaosRun") -> None:
    config = chaos_run.config
    await chaos_run.grow()
    chaos_run.send_at_full_speed()
    began, end = time.monotonic(), time.monotonic() + config.duration_s
    memory_mb: list[float] = []
    while (left_s := end - time.monotonic()) > 0:
        chaos_run.listener.phase(f"all peers send at full speed; {left_s:.0f} s remaining")
        await chaos_run.sleep(min(left_s, config.duration_s / MEMORY_SAMPLES))
        memory_mb.append(await chaos_run.memory_mb())
    await chaos_run.stop_traffic()
    chaos_run.metrics["load_s"] = time.monotonic() - began
    settled, last = memory_mb[len(memory_mb) // 3], memory_mb[-1]
    chaos_run.metrics["memory_settled_mb"], chaos_run.metrics["memory_last_mb"] = settled, last
    if config.duration_s >= MEMORY_CHECK_MIN_S and last > settled * MEMORY_GROWTH_MAX:
        chaos_run.problems.append(
            f"guarantee 7: memory of the largest process grew from {settled:.0f} to {last:.0f} MB"
        )


@dataclass(frozen=True, slots=True)
class ChaosScenario:
    description: str
    run: Callable[..., Awaitable[None]]
    defaults: ChaosConfig
    needs_namespaces: bool = False


SCENARIOS = {
    "kill": ChaosScenario("kill processes at the same moment", kill, ChaosConfig(peers=50, affected_peers=10)),
    "churn": ChaosScenario(
        "peers join, leave and crash for a minute", churn, ChaosConfig(peers=40, duration_s=60, churn_per_min=40)
    ),
    "pause": ChaosScenario(
        "stop processes (SIGSTOP) and resume them later", pause, ChaosConfig(peers=40, affected_peers=8, duration_s=15)
    ),
    "load": ChaosScenario("all peers send at full speed", load, ChaosConfig(peers=8, duration_s=30)),
    "join-storm": ChaosScenario(
        "all peers start at the same moment, with one bootstrap host", join_storm, ChaosConfig(peers=50)
    ),
    "join": ChaosScenario(
        "measure how long joining takes, one peer after another", join, ChaosConfig(peers=50, joiners=20)
    ),
    "partition": ChaosScenario(
        "cut the network between two halves, then heal it (needs root)",
        partition,
        ChaosConfig(peers=40, duration_s=20),
        True,
    ),
}


def spare_processes(name: str, config: ChaosConfig) -> int:
    """Processes for peers that join later; all processes are started at the beginning."""
    if name == "churn":
        if config.processes != config.peers:
            raise ConfigError("churn: peers crash one by one, so each needs a process of its own")
        return round(config.churn_per_min / 60 * config.duration_s * 1.5) + 2
    return config.joiners


def merge_config(defaults: ChaosConfig, given: dict[str, object]) -> ChaosConfig:
    """Return the defaults of a scenario with the given options applied."""
    chosen = {name: value for name, value in given.items() if value not in (0, None, "")}
    return replace(defaults, **chosen).validated()  # type: ignore[arg-type]
