"""The measurements: who speaks, how fast, and what else happens meanwhile."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broadloom.channel.fragments import FRAGMENT_BYTES
from broadloom.testing.bench.config import JOINERS
from broadloom.testing.bench.machine import ResourceMeter
from broadloom.testing.bench.results import BenchResult, compute_result

if TYPE_CHECKING:
    from broadloom.testing.bench.config import BenchConfig
    from broadloom.testing.bench.runner import BenchRun

WARMUP_MESSAGES = 20
"""Before anything is measured everybody says so many: links, trees and Python itself are warm then."""
WARMUP_BYTES = 256 << 10
"""But not more than this each."""
WARMUP_S = 10.0
SEND_GRACE_S = 20.0
"""How much longer than it may speak somebody may need to say that it has spoken."""
JOIN_INTERVAL_S = 0.1
"""From one newcomer to the next."""
JOIN_TRAFFIC_S = 300.0
"""The traffic for newcomers ends by then in any case."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    description: str
    run: "Callable[[BenchRun, BenchConfig], None]"
    """Until all have spoken."""
    timed: bool = False
    """Whether the way of each message is timed."""


def run_benchmark(name: str, bench_run: "BenchRun", config: "BenchConfig", network_pid: int) -> BenchResult:
    """One of them, from a fabric at rest to one at rest."""
    benchmark, pool = BENCHMARKS[name], bench_run.pool
    pool.request(pool.responsive, do="begin", timed=benchmark.timed)
    before = set(bench_run.peers)
    cost_meter = ResourceMeter([process.pid for process in pool.responsive], network_pid)
    benchmark.run(bench_run, config)
    bench_run.drain()
    cost = cost_meter.read()
    reports = pool.request(pool.responsive, do="report")
    messages = sum(spoken.count for spoken in bench_run.send_phases.values())
    first_ns = min(spoken.first_ns for spoken in bench_run.send_phases.values())
    result = compute_result(reports, first_ns, messages, config.size_bytes, cost)
    joiners = [known for number, known in bench_run.peers.items() if number not in before]
    result.connect_ms = [round(known.connect_time_s * 1000, 1) for known in joiners] or None
    for peer in [peer for report in reports for peer in report["peers"] if peer["missed"]]:
        parts = "messages" if config.size_bytes <= FRAGMENT_BYTES else f"parts of {FRAGMENT_BYTES >> 10} KiB"
        bench_run.problems.append(
            f"{name}: peer {peer['number']} did not keep up, and was told that it missed {peer['missed']:,} {parts}"
        )
    if not joiners and not bench_run.problems and result.deliveries != messages * (len(before) - 1):
        bench_run.problems.append(f"{name}: {result.deliveries:,} deliveries of {messages:,} messages: not each once")
    return result


def warm_up(bench_run: "BenchRun", config: "BenchConfig") -> None:
    bench_run.listener.phase("warming up")
    _all_send(bench_run, max(1, min(WARMUP_MESSAGES, WARMUP_BYTES // config.size_bytes)), WARMUP_S, config)
    bench_run.drain()


def _all_send(bench_run: "BenchRun", each: int, seconds: float, config: "BenchConfig") -> None:
    bench_run.start_sending(list(range(config.peers)), each, seconds)
    bench_run.wait_until_sent(seconds + SEND_GRACE_S)


def _throughput(bench_run: "BenchRun", config: "BenchConfig") -> None:
    bench_run.start_sending([0], config.messages, config.duration_s)
    bench_run.wait_until_sent(config.duration_s + SEND_GRACE_S)


def _latency(bench_run: "BenchRun", config: "BenchConfig") -> None:
    bench_run.start_sending(
        [0], max(1, int(config.rate_per_s * config.duration_s)), config.duration_s, config.rate_per_s
    )
    bench_run.wait_until_sent(config.duration_s + SEND_GRACE_S)


def _all_to_all(bench_run: "BenchRun", config: "BenchConfig") -> None:
    _all_send(bench_run, max(1, config.messages // config.peers), config.duration_s, config)


def _join(bench_run: "BenchRun", config: "BenchConfig") -> None:
    """One after the other, while one speaks."""
    bench_run.start_sending([0], 1 << 40, JOIN_TRAFFIC_S, config.rate_per_s)
    bench_run.run(JOIN_INTERVAL_S)
    for joiner in range(config.peers, config.peers + JOINERS):
        bench_run.start(bench_run.process_of(joiner), [joiner])
        bench_run.wait_until(
            lambda: "a newcomer is not connected yet" if bench_run.connecting() else None,
            bench_run.config.repair_timeout_s,
        )
        bench_run.progress.set_fraction((joiner + 1 - config.peers) / JOINERS)
        bench_run.run(JOIN_INTERVAL_S)
    bench_run.run(2 / config.rate_per_s)  # the last one, too, shall hear something
    bench_run.pool.send(bench_run.process_of(0), do="hush")
    bench_run.wait_until_sent(SEND_GRACE_S)


BENCHMARKS = {
    "throughput": Benchmark("one speaks as fast as it can", _throughput),
    "latency": Benchmark("one speaks {rate:g} times a second", _latency, timed=True),
    "all-to-all": Benchmark("all speak as fast as they can", _all_to_all),
    "join": Benchmark("newcomers join; one speaks {rate:g} times a second", _join),
}
