"""`broadloom bench`, small, with real processes: results add up, failures are reported, no process is left behind."""

import json
import signal
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from broadloom.cli.main import app
from broadloom.protocol.events import Batch, Missed
from broadloom.testing.bench import worker as bench_worker
from broadloom.testing.bench.worker import MeasuredPeer
from broadloom.testing.processes.control_protocol import WorkerConfig
from tests.support import wait_until
from tests.testing.chaos.real_runs import descendants, is_running, run, running

SMALL = {"receivers": 2, "size": 60, "messages": 300, "rate": 200.0, "duration": 0.4}


def script(benchmark: str, before: str = "", **options: Any) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in {**SMALL, **options}.items())
    call = f"raise SystemExit(bench({benchmark!r}, {arguments}))"
    return f"from broadloom.cli.bench import bench\nfrom broadloom.testing.bench import runner\n{before}\n{call}"


def bench(benchmark: str, before: str = "", worker_patch: str = "", **options: Any) -> tuple[int, dict[str, Any]]:
    """Return exit status and report. `before` is code for the coordinator."""
    code, out, err = run(script(benchmark, before, json=True, **options), worker_patch)
    assert out, err
    result: dict[str, Any] = json.loads(out)
    return code, result


def test_results_of_all_benchmarks_add_up() -> None:
    code, result = bench("all")
    assert (code, result["passed"], result["problems"]) == (0, True, [])
    benchmarks = result["benchmarks"]
    assert list(benchmarks) == ["throughput", "latency", "all-to-all", "join"]
    for name in ("throughput", "latency", "all-to-all"):
        each = benchmarks[name]
        assert 0 < each["messages"] <= 300
        assert each["deliveries"] == 2 * each["messages"]
        assert each["deliveries_per_s"] == pytest.approx(each["deliveries"] / each["duration_s"], rel=0.01)
        assert each["cpu_us_per_delivery"] > 0
        assert each["duplicates_per_delivery"] >= 0
        assert each["memory_mb"] > each["own_memory_mb"] > 0
        assert 0 <= each["other_cpu_fraction"] <= 1
    assert benchmarks["throughput"]["messages"] == 300
    latency = benchmarks["latency"]["latency_ms"]
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]
    assert benchmarks["latency"]["messages"] <= 80
    assert len(benchmarks["join"]["connect_ms"]) == 5
    assert min(benchmarks["join"]["connect_ms"]) > 0


def test_table_says_that_loopback_is_shared_when_namespaces_are_not_permitted() -> None:
    before = "def refuse():\n    raise runner.NamespaceError('as a test')\nrunner.NetworkNamespaces = refuse"
    code, out, err = run(script("latency", before, no_tls=True))
    assert (code, err) == (0, "")
    for text in (
        "2 receivers, 60 bytes, plain TCP",
        "p99",
        "shared with other programs",
        "machine's CPU",
        "once and in order",
    ):
        assert text in out
    assert "█" in out


def test_missing_deliveries_fail_the_benchmark() -> None:
    patch = """
from broadloom.channel.channel import Channel
dispatch = Channel._dispatch
def mutant(channel, batch):
    if batch.first_sequence < 50:
        dispatch(channel, batch)
Channel._dispatch = mutant
"""
    before = "runner.STALL_S = 0.5"
    code, result = bench("latency", before, patch, signed=True)
    assert code == 1
    assert not result["passed"]
    assert "deliveries are missing" in result["problems"][0]


def test_blocked_broadcast_fails_the_benchmark() -> None:
    patch = """
import asyncio
from broadloom.channel.channel import Channel
async def broadcast(channel, data): await asyncio.sleep(1000)
Channel.broadcast = broadcast
"""
    before = "from broadloom.testing.bench import benchmarks\nbenchmarks.SEND_GRACE_S = benchmarks.WARMUP_S = 0.5"
    code, result = bench("throughput", before, patch)
    assert code == 1
    assert "still waiting in `broadcast`" in result["problems"][0]


def test_ctrl_c_stops_all_processes() -> None:
    with running(script("throughput", messages=10**9, duration=60.0)) as process:
        wait_until(lambda: len(descendants(process.pid)) > 8)
        started = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err
    wait_until(lambda: not any(is_running(pid) for pid in started))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["speed"], "choose one of throughput, latency, all-to-all, join, or all"),
        (["--no-tls", "--signed"], "exclude each other"),
        (["--size", "3"], "from 24 bytes"),
        (["--rate", "0"], "at least 1 message per second"),
        (["--duration", "-1"], "more than 0 seconds"),
    ],
)
def test_invalid_options_are_a_usage_error(options: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["bench", *options])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


class QuietChannel:
    """The part of a channel that a `MeasuredPeer` needs, without messages of its own."""

    peer_id = 7

    def receive_nowait(self) -> None:
        return None

    def on_message(self, callback: Any) -> None: ...

    on_batch = on_event = on_message

    def status(self) -> Any:
        return SimpleNamespace(counters={"delivered": 0, "duplicates": 0})


def test_measured_peer_detects_wrong_deliveries() -> None:
    violations: list[str] = []
    worker: Any = SimpleNamespace(
        config=WorkerConfig("test", size_bytes=30),
        report_violation=lambda _guarantee, text: violations.append(text.partition(") ")[2]),
    )
    channel: Any = QuietChannel()
    peer = MeasuredPeer(worker, 0, channel, None)
    peer.start_measuring(timed=True)

    def receive(*numbers: int, author: int = 1, previous_ns: int = 0) -> list[str]:
        violations.clear()
        data = [bench_worker._HEADER.pack(number, 1, previous_ns) + bytes(6) for number in numbers]
        peer._on_batch(Batch(author, 1, data, 1))
        return violations

    assert receive(5, 6, 7) == receive(8) == []
    assert receive(8) == ["received message 8 again or late: 9 is next"]
    assert receive(9, 11) == ["received message 11 too early: 10 is next"]
    assert receive(2, author=2, previous_ns=1 << 62) == ["started with message 2, but joined before 1 was sent"]
    peer._on_event(Missed(1, 12, 13))
    assert receive(14, 15) == []
    assert receive(17) == ["received message 17 too early: 16 is next"]
    peer._on_batch(Batch(1, 18, [b"short"], 1))
    assert violations[-1] == "received 5 bytes instead of 30"
    report = peer.report()
    assert (report["deliveries"], report["missed"]) == (12, 2)
