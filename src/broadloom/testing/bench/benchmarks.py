"""The benchmarks: which peers send, how fast, and what else happens meanwhile."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broadloom.channel.fragments import FRAGMENT_BYTES
from broadloom.testing.bench.config import JOINERS
from broadloom.testing.bench.results import BenchResult, compute_result
from broadloom.testing.processes.process_stats import ResourceMeter
from broadloom.transport.addresses import LOOPBACK

if TYPE_CHECKING:
    from broadloom.testing.bench.config import BenchConfig
    from broadloom.testing.bench.runner import BenchRun

WARMUP_MESSAGES = 20
"""Messages per peer before the first benchmark, to warm up links, trees and the interpreter."""
WARMUP_BYTES = 256 << 10
WARMUP_S = 10.0
SEND_GRACE_S = 20.0
"""Time after the end of sending for the report of a sender to arrive."""
JOIN_INTERVAL_S = 0.1
JOIN_TRAFFIC_S = 300.0


@dataclass(frozen=True, slots=True)
class Benchmark:
    description: str
    run: "Callable[[BenchRun, BenchConfig], Awaitable[None]]"
    """Returns when all senders have finished."""
    timed: bool = False
    """Whether the latency of each delivery is measured."""


async def run_benchmark(name: str, bench_run: "BenchRun", config: "BenchConfig", network_pid: int) -> BenchResult:
    """Run one benchmark; the fabric is idle before and after it."""
    benchmark = BENCHMARKS[name]
    await bench_run.request("start_measuring", timed=benchmark.timed)
    before = set(bench_run.peers)
    meter = ResourceMeter([worker.pid for worker in bench_run.pool.responsive], network_pid)
    await benchmark.run(bench_run, config)
    await bench_run.drain()
    cost = meter.read()
    reports = await bench_run.request("report")
    messages = sum(phase.count for phase in bench_run.send_phases.values())
    first_ns = min(phase.first_ns for phase in bench_run.send_phases.values())
    result = compute_result(reports, first_ns, messages, config.size_bytes, cost)
    joiners = [record for number, record in bench_run.peers.items() if number not in before]
    result.connect_ms = [round(record.connect_time_s * 1000, 1) for record in joiners] or None
    for peer in [peer for report in reports for peer in report["peers"] if peer["missed"]]:
        unit = "messages" if config.size_bytes <= FRAGMENT_BYTES else f"fragments of {FRAGMENT_BYTES >> 10} KiB"
        bench_run.problems.append(f"{name}: peer {peer['number']} was too slow and missed {peer['missed']:,} {unit}")
    if not joiners and not bench_run.problems and result.deliveries != messages * (len(before) - 1):
        bench_run.problems.append(f"{name}: {result.deliveries:,} deliveries of {messages:,} messages: not one each")
    return result


async def warm_up(bench_run: "BenchRun", config: "BenchConfig") -> None:
    bench_run.listener.phase("warming up")
    await _all_send(bench_run, max(1, min(WARMUP_MESSAGES, WARMUP_BYTES // config.size_bytes)), WARMUP_S, config)
    await bench_run.drain()


async def _all_send(bench_run: "BenchRun", messages_max: int, duration_s: float, config: "BenchConfig") -> None:
    bench_run.start_sending(list(range(config.peers)), messages_max, duration_s)
    await bench_run.wait_until_sent(duration_s + SEND_GRACE_S)


async def _throughput(bench_run: "BenchRun", config: "BenchConfig") -> None:
    bench_run.start_sending([0], config.messages, config.duration_s)
    await bench_run.wait_until_sent(config.duration_s + SEND_GRACE_S)


async def _latency(bench_run: "BenchRun", config: "BenchConfig") -> None:
    messages_max = max(1, int(config.rate_per_s * config.duration_s))
    bench_run.start_sending([0], messages_max, config.duration_s, config.rate_per_s)
    await bench_run.wait_until_sent(config.duration_s + SEND_GRACE_S)


async def _all_to_all(bench_run: "BenchRun", config: "BenchConfig") -> None:
    await _all_send(bench_run, max(1, config.messages // config.peers), config.duration_s, config)


async def _join(bench_run: "BenchRun", config: "BenchConfig") -> None:
    bench_run.start_sending([0], 1 << 40, JOIN_TRAFFIC_S, config.rate_per_s)
    await bench_run.sleep(JOIN_INTERVAL_S)
    for joiner in range(config.peers, config.peers + JOINERS):
        bench_run.start_peers(bench_run.worker_of(joiner), [joiner], [LOOPBACK])
        await bench_run.wait_until(
            lambda: "a joining peer is not connected yet" if bench_run.starting else None, bench_run.timeout_s
        )
        bench_run.progress.set_fraction((joiner + 1 - config.peers) / JOINERS)
        await bench_run.sleep(JOIN_INTERVAL_S)
    await bench_run.sleep(2 / config.rate_per_s)  # so that the last joiner receives something, too
    bench_run.worker_of(0).send("stop_sending")
    await bench_run.wait_until_sent(SEND_GRACE_S)


BENCHMARKS = {
    "throughput": Benchmark("one peer sends at full speed", _throughput),
    "latency": Benchmark("one peer sends {rate:g} messages per second", _latency, timed=True),
    "all-to-all": Benchmark("all peers send at full speed", _all_to_all),
    "join": Benchmark("peers join while one sends {rate:g} messages per second", _join),
}
