"""`weft bench`, small, with real processes: the figures add up, what goes wrong is told, and nothing is left behind."""

import json
import signal
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.trial.real import children, lives, popen, run, wait_until
from weft.cli import app
from weft.fabric.events import Batch, Missed
from weft.trial.bench import reader as reader_module
from weft.trial.bench.reader import Reader
from weft.trial.bench.sparkline import sparkline
from weft.trial.histogram import Histogram

SMALL = {"receivers": 2, "size": 60, "messages": 300, "rate": 200.0, "seconds": 0.4}


def script(measure: str, before: str = "", **options: Any) -> str:
    words = ", ".join(f"{name}={value!r}" for name, value in {**SMALL, **options}.items())
    return f"from weft.trial.bench import command\n{before}\nraise SystemExit(command.bench({measure!r}, {words}))"


def bench(measure: str, before: str = "", **options: Any) -> tuple[int, dict[str, Any]]:
    """Exit code and result; `before` is done in the same interpreter before anything is forked."""
    code, out, err = run(script(measure, before, json=True, **options))
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
        assert each["deliveries_per_s"] == pytest.approx(each["deliveries"] / each["seconds"], rel=0.01)
        assert each["cpu_us_per_delivery"] > 0
        assert each["copies_per_delivery"] >= 0
        assert each["memory_mb"] > each["own_memory_mb"] > 0
        assert 0 <= each["others_cpu_share"] <= 1
    assert measures["throughput"]["messages"] == 300
    latency = measures["latency"]["latency_ms"]
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]
    assert measures["latency"]["messages"] <= 80
    assert len(measures["join"]["connect_ms"]) == 5
    assert min(measures["join"]["connect_ms"]) > 0


def test_a_table_and_a_shared_network() -> None:
    """As for somebody who is not root: loopback is shared with others, and that is said."""
    before = "def refuse():\n    raise command.NotPermitted('as a test')\ncommand.Hosts = refuse"
    code, out, err = run(script("latency", before, plain=True))
    assert (code, err) == (0, "")
    for text in ("2 receivers, 60 bytes, plain TCP", "p99", "others' too", "CPU meanwhile", "once and in order"):
        assert text in out
    assert "█" in out


def test_what_does_not_arrive_is_an_error() -> None:
    before = """
from weft.channel.channel import Channel
from weft.trial.bench import stage
hand_over, stage.STALL_S = Channel._hand_over, 0.5
def handed_over(channel, batch):
    if batch.first < 50:
        hand_over(channel, batch)
Channel._hand_over = handed_over
"""
    code, result = bench("latency", before, signed=True)
    assert code == 1
    assert not result["held"]
    assert "deliveries are lacking" in result["problems"][0]


def test_whoever_waits_for_ever_is_given_up() -> None:
    before = """
import asyncio
from weft.channel.channel import Channel
from weft.trial.bench import measures
measures.LATE_S, measures.WARM_S = 0.5, 0.5
async def broadcast(channel, data): await asyncio.sleep(1000)
Channel.broadcast = broadcast
"""
    code, result = bench("throughput", before)
    assert code == 1
    assert "still waits to broadcast" in result["problems"][0]


def test_ctrl_c_ends_all() -> None:
    with popen(script("throughput", messages=10**9, seconds=60.0)) as process:
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
    wait_until(lambda: not any(lives(pid) for pid in started))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["speed"], "there are throughput, latency, all-to-all, join, and all"),
        (["--plain", "--signed"], "one of them at a time"),
        (["--size", "3"], "from 24 bytes"),
        (["--rate", "0"], "at least one message a second"),
        (["--seconds", "-1"], "more than none"),
    ],
)
def test_wrong_use_is_told_in_a_line(words: list[str], told: str) -> None:
    result = CliRunner().invoke(app, ["bench", *words])
    assert result.exit_code == 2
    assert told in " ".join(result.output.split())


class Silent:
    """As much of a channel as a reader needs that hears nothing by itself."""

    peer = 7

    def acquire(self) -> None:
        return None

    def on_message(self, callback: Any) -> None: ...

    on_batch = on_event = on_message

    def status(self) -> Any:
        return SimpleNamespace(counters={"delivered": 0, "duplicates": 0})


def test_a_reader_sees_what_is_wrong() -> None:
    wrong: list[str] = []
    reader = Reader(0, Silent(), 30, broken=lambda _, text: wrong.append(text), changed=print)  # type: ignore[arg-type]
    reader.begin(timed=True)

    def hear(*numbers: int, author: int = 1, previous_ns: int = 0) -> list[str]:
        wrong.clear()
        data = [reader_module._HEADER.pack(number, 1, previous_ns) + bytes(6) for number in numbers]
        reader._came(Batch(author, 1, data, 1))
        return wrong

    assert hear(5, 6, 7) == hear(8) == []
    assert hear(8) == ["was given message 8 a second time, or late: 9 comes next"]
    assert hear(9, 11) == ["was given message 11 too early: 10 comes next"]
    assert hear(2, author=2, previous_ns=1 << 62) == ["started with message 2, but was a member before 1"]
    reader._happened(Missed(1, 12, 13))
    assert hear(14, 15) == []
    assert hear(17) == ["was given message 17 too early: 16 comes next"]
    reader._came(Batch(1, 18, [b"short"], 1))
    assert wrong[-1] == "was given 5 bytes where 30 were sent"
    report = reader.report()
    assert (report["deliveries"], report["missed"]) == (12, 2)


def test_a_histogram_in_one_line() -> None:
    histogram = Histogram()
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
