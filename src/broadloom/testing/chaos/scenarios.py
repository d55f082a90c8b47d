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


async def _grow_with_traffic(run: "ChaosRun") -> None:
    await run.grow()
    run.listener.phase("traffic")
    run.set_traffic(run.config.rate_per_s)
    await run.sleep(WARMUP_S)


async def kill(run: "ChaosRun") -> None:
    config = run.config
    await _grow_with_traffic(run)
    victims = run.random.sample(run.pool.workers, config.affected_processes)
    run.listener.phase(f"killing {config.affected_peers} peers in {len(victims)} processes")
    killed_ns = run.kill(victims)
    run.listener.phase("repairing")
    run.metrics["regular_again_s"] = await run.wait_until_converged(killed_ns)
    await run.sleep(COOLDOWN_S)


async def pause(run: "ChaosRun") -> None:
    config = run.config
    await _grow_with_traffic(run)
    victims = run.random.sample(run.pool.workers, config.affected_processes)
    run.listener.phase(f"pausing {config.affected_peers} peers for {config.duration_s:g} s")
    paused_ns, began = time.monotonic_ns(), time.monotonic()
    run.pause(victims)
    run.metrics["regular_without_paused_s"] = await run.wait_until_converged(paused_ns)
    await run.sleep(max(0.0, config.duration_s - (time.monotonic() - began)))
    run.listener.phase("resumed; repairing")
    run.resume(victims)
    run.metrics["regular_again_s"] = await run.wait_until_converged(time.monotonic_ns())
    await run.sleep(COOLDOWN_S)


async def join_storm(run: "ChaosRun") -> None:
    config = run.config
    at_ns = time.monotonic_ns() + int(STORM_LEAD_S * 1e9)
    run.listener.phase(f"{config.peers} peers start at the same moment")
    for worker in run.pool.workers:
        first = worker.number * config.peers_per_process
        run.start_peers(worker, range(first, first + config.peers_per_process), [LOOPBACK], at_ns=at_ns)
    run.metrics["regular_s"] = await run.wait_until_converged(at_ns)
    run.listener.phase("traffic")
    run.set_traffic(config.rate_per_s)
    await run.sleep(WARMUP_S)


async def churn(run: "ChaosRun") -> None:
    config = run.config
    await run.grow()
    run.set_traffic(config.rate_per_s)
    end = time.monotonic() + config.duration_s
    spare = run.pool.workers[config.peers :]
    arrivals = 0
    while (left_s := end - time.monotonic()) > 0:
        run.listener.phase(f"churn: {arrivals} joined, {run.left} left, {run.killed} killed; {left_s:.0f} s remaining")
        await run.sleep(min(left_s, run.random.expovariate(2 * config.churn_per_min / 60)))
        peers = run.active
        if run.random.random() < 0.5:
            if arrivals < len(spare):
                run.start_peers(spare[arrivals], [config.peers + arrivals], [LOOPBACK])
                arrivals += 1
        elif len(peers) > max(2, config.peers // 2):
            record = run.random.choice(peers)
            if run.random.random() < KILL_FRACTION:
                run.kill([record.worker])
            else:
                run.leave(record)
            run.set_traffic(config.rate_per_s)
    run.listener.phase("repairing")
    run.metrics["arrivals"] = arrivals
    run.metrics["regular_again_s"] = await run.wait_until_converged(time.monotonic_ns())
    await run.sleep(COOLDOWN_S)


async def join(run: "ChaosRun") -> None:
    config = run.config
    await run.grow()
    run.set_traffic(config.rate_per_s)
    for count in range(config.joiners):
        run.listener.phase(f"joiner {count + 1} of {config.joiners}")
        spare = run.pool.workers[config.processes + count]
        run.start_peers(spare, [config.peers + count], [LOOPBACK], timed=True)
        await run.wait_until_converged(0)
    await run.sleep(COOLDOWN_S)


async def partition(run: "ChaosRun", namespaces: "NetworkNamespaces") -> None:
    from broadloom.testing.processes.network_namespaces import HOST_ADDRESSES

    config = run.config
    await run.grow(bootstrap=HOST_ADDRESSES[:1])
    run.listener.phase("traffic")
    run.set_traffic(config.rate_per_s)
    await run.sleep(WARMUP_S)
    run.listener.phase(f"partitioned for {config.duration_s:g} s")
    namespaces.disconnect()
    await run.sleep(config.duration_s)
    namespaces.reconnect()
    run.listener.phase("healed; merging")
    healed_ns = time.monotonic_ns()
    run.metrics["merged_s"] = await run.wait_until_merged(healed_ns)
    run.metrics["regular_again_s"] = await run.wait_until_converged(healed_ns)
    await run.sleep(COOLDOWN_S)


async def load(run: "ChaosRun") -> None:
    config = run.config
    await run.grow()
    run.send_at_full_speed()
    began, end = time.monotonic(), time.monotonic() + config.duration_s
    memory_mb: list[float] = []
    while (left_s := end - time.monotonic()) > 0:
        run.listener.phase(f"all peers send at full speed; {left_s:.0f} s remaining")
        await run.sleep(min(left_s, config.duration_s / MEMORY_SAMPLES))
        memory_mb.append(await run.memory_mb())
    await run.stop_traffic()
    run.metrics["load_s"] = time.monotonic() - began
    settled, last = memory_mb[len(memory_mb) // 3], memory_mb[-1]
    run.metrics["memory_settled_mb"], run.metrics["memory_last_mb"] = settled, last
    if config.duration_s >= MEMORY_CHECK_MIN_S and last > settled * MEMORY_GROWTH_MAX:
        run.problems.append(f"guarantee 7: memory of the largest process grew from {settled:.0f} to {last:.0f} MB")


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
