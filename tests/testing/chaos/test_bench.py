"""`broadloom bench`, small, with real processes: the figures add up, what goes wrong is told, and nothing is left
behind."""

import json
import signal
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from broadloom.cli.main import app
from broadloom.protocol.events import Batch, Missed
from broadloom.testing.bench import measured_peer as reader_module
from broadloom.testing.bench.histogram import LatencyHistogram
from broadloom.testing.bench.measured_peer import MeasuredPeer
from broadloom.testing.bench.sparkline import sparkline
from tests.testing.chaos.real import children, is_running, popen, run, wait_until

SMALL = {"receivers": 2, "size": 60, "messages": 300, "rate": 200.0, "duration": 0.4}


def script(benchmark: str, before: str = "", **options: Any) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in {**SMALL, **options}.items())
    call = f"raise SystemExit(bench({benchmark!r}, {arguments}))"
    return f"from broadloom.cli.bench import bench\nfrom broadloom.testing.bench import command\n{before}\n{call}"


def bench(benchmark: str, before: str = "", **options: Any) -> tuple[int, dict[str, Any]]:
    """Exit code and result; `before` is done in the same interpreter before anything is forked."""
    code, out, err = run(script(benchmark, before, json=True, **options))
    assert out, err
    result: dict[str, Any] = json.loads(out)
    return code, result


def test_all() -> None:
    code, result = bench("all")
    assert (code, result["held"], result["problems"]) == (0, True, [])
    measures = result["measures"]
    assert list(measures) == ["throughput", "latency", "all-to-all", "join"]
    for name in ("throughput", "latency", "all-to-all"):
        each = measures[name]
        assert 0 < each["messages"] <= 300
        assert each["deliveries"] == 2 * each["messages"]
        assert each["deliveries_per_s"] == pytest.approx(each["deliveries"] / each["duration_s"], rel=0.01)
        assert each["cpu_us_per_delivery"] > 0
        assert each["duplicates_per_delivery"] >= 0
        assert each["memory_mb"] > each["own_memory_mb"] > 0
        assert 0 <= each["other_cpu_fraction"] <= 1
    assert measures["throughput"]["messages"] == 300
    latency = measures["latency"]["latency_ms"]
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]
    assert measures["latency"]["messages"] <= 80
    assert len(measures["join"]["connect_ms"]) == 5
    assert min(measures["join"]["connect_ms"]) > 0


def test_a_table_and_a_shared_network() -> None:
    """As for somebody who is not root: loopback is shared with others, and that is said."""
    before = "def refuse():\n    raise command.NamespaceError('as a test')\ncommand.NetworkNamespaces = refuse"
    code, out, err = run(script("latency", before, no_tls=True))
    assert (code, err) == (0, "")
    for text in (
        "2 receivers, 60 bytes, plain TCP",
        "p99",
        "others' too",
        "CPU meanwhile",
        "exactly once and in order",
    ):
        assert text in out
    assert "█" in out


def test_what_does_not_arrive_is_an_error() -> None:
    before = """
from broadloom.channel.channel import Channel
from broadloom.testing.bench import runner
hand_over, runner.STALL_S = Channel._dispatch, 0.5
def handed_over(channel, batch):
    if batch.first_sequence < 50:
        hand_over(channel, batch)
Channel._dispatch = handed_over
"""
    code, result = bench("latency", before, signed=True)
    assert code == 1
    assert not result["held"]
    assert "deliveries are lacking" in result["problems"][0]


def test_whoever_waits_for_ever_is_given_up() -> None:
    before = """
import asyncio
from broadloom.channel.channel import Channel
from broadloom.testing.bench import benchmarks
benchmarks.SEND_GRACE_S, benchmarks.WARMUP_S = 0.5, 0.5
async def broadcast(channel, data): await asyncio.sleep(1000)
Channel.broadcast = broadcast
"""
    code, result = bench("throughput", before)
    assert code == 1
    assert "still waits to broadcast" in result["problems"][0]


def test_ctrl_c_ends_all() -> None:
    with popen(script("throughput", messages=10**9, duration=60.0)) as process:
        try:
            wait_until(lambda: len(children(process.pid)) >= 8)
            started = children(process.pid)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err
    wait_until(lambda: not any(is_running(pid) for pid in started))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["speed"], "choose one of throughput, latency, all-to-all, join, or all"),
        (["--no-tls", "--signed"], "exclude each other"),
        (["--size", "3"], "from 24 bytes"),
        (["--rate", "0"], "at least one message a second"),
        (["--seconds", "-1"], "more than none"),
    ],
)
def test_wrong_use_is_told_in_a_line(words: list[str], told: str) -> None:
    result = CliRunner().invoke(app, ["bench", *words])
    assert result.exit_code == 2
    assert told in " ".join(result.output.split())


class QuietChannel:
    """As much of a channel as a reader needs that hears nothing by itself."""

    peer_id = 7

    def receive_nowait(self) -> None:
        return None

    def on_message(self, callback: Any) -> None: ...

    on_batch = on_event = on_message

    def status(self) -> Any:
        return SimpleNamespace(counters={"delivered": 0, "duplicates": 0})


def test_a_reader_sees_what_is_wrong() -> None:
    wrong: list[str] = []
    reader = MeasuredPeer(0, QuietChannel(), 30, on_violation=lambda _, text: wrong.append(text), on_change=print)  # type: ignore[arg-type]
    reader.start_measuring(timed=True)

    def hear(*numbers: int, author: int = 1, previous_ns: int = 0) -> list[str]:
        wrong.clear()
        data = [reader_module._HEADER.pack(number, 1, previous_ns) + bytes(6) for number in numbers]
        reader._on_batch(Batch(author, 1, data, 1))
        return wrong

    assert hear(5, 6, 7) == hear(8) == []
    assert hear(8) == ["was given message 8 a second time, or late: 9 comes next"]
    assert hear(9, 11) == ["was given message 11 too early: 10 comes next"]
    assert hear(2, author=2, previous_ns=1 << 62) == ["started with message 2, but was a member before 1"]
    reader._on_event(Missed(1, 12, 13))
    assert hear(14, 15) == []
    assert hear(17) == ["was given message 17 too early: 16 comes next"]
    reader._on_batch(Batch(1, 18, [b"short"], 1))
    assert wrong[-1] == "was given 5 bytes where 30 were sent"
    report = reader.report()
    assert (report["deliveries"], report["missed"]) == (12, 2)


def test_a_histogram_in_one_line() -> None:
    histogram = LatencyHistogram()
    assert sparkline(histogram) == ""
    for time_ns, count in ((1_000_000, 1), (1_100_000, 9), (4_000_000, 3)):
        for _ in range(count):
            histogram.add(time_ns)
    line = sparkline(histogram)
    assert line.startswith("0.92 ms ▁█")
    assert line.endswith("▃ 4 ms")
    histogram.add(10_000)
    histogram.add(60_000_000_000)
    assert len(sparkline(histogram)) < 50
