"""The figures for people: what was seen, and what that means, one line each."""

from statistics import median

from rich.table import Table

from broadloom.testing.bench.benchmarks import BENCHMARKS
from broadloom.testing.bench.results import NOISY_FRACTION, BenchReport, BenchResult, machine_info
from broadloom.testing.bench.sparkline import sparkline


def header(report: BenchReport) -> str:
    config, host = report.config, machine_info()
    cores = f"{host['cores']} cores" if host["cores"] > 1 else "one core"
    receivers = f"{config.receivers} receivers" if config.receivers > 1 else "one receiver"
    what = f"{receivers}, {config.size_bytes:,} bytes, {config.security.value}"
    return f"{what}; {cores}, Python {host['python']}, Broadloom {host['broadloom']}"


def result_table(report: BenchReport) -> Table:
    rows = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    rows.add_column(no_wrap=True)
    rows.add_column(no_wrap=True)
    rows.add_column(style="dim")
    for name, result in report.results.items():
        rows.add_row(f"[bold]{name}[/]", "", BENCHMARKS[name].description.format(rate=report.config.rate_per_s))
        for what, figure, meaning in _rows(name, result, report):
            rows.add_row(f"  {what}", figure, meaning)
    return rows


def _rows(name: str, result: BenchResult, report: BenchReport) -> list[tuple[str, str, str]]:
    if result.connect_ms:
        meaning = f"median of {len(result.connect_ms)}, at most {max(result.connect_ms):.0f} ms"
        return [("connected", f"{median(result.connect_ms):.0f} ms", meaning)]
    if result.latency_ms is not None:
        return [*_latency(result), *_cost(result, report)]
    span = f"{result.messages:,} in {result.duration_s:.2f} s, first sending to last delivery"
    memory = f"of one process; {result.own_memory_mb:.0f} MB of it its own"
    data = f"at all receivers together: {result.deliveries_per_s * report.config.size_bytes / 1e6:,.0f} MB/s of data"
    return [
        ("broadcasts", f"{result.broadcasts_per_s:,.0f} /s", span),
        ("deliveries", f"{result.deliveries_per_s:,.0f} /s", data),
        *_cost(result, report),
        ("memory", f"{result.memory_mb:.0f} MB", memory),
    ]


def _latency(result: BenchResult) -> list[tuple[str, str, str]]:
    assert result.latency_ms is not None
    assert result.histogram is not None
    times = {name: f"{time_ms:.2f} ms" for name, time_ms in result.latency_ms.items()}
    return [
        ("p50", times["p50"], f"one way; half of {result.deliveries:,} deliveries were faster"),
        ("p90", times["p90"], "nine of ten were"),
        ("p99", times["p99"], f"99 of 100 were; the slowest took {times['max']}"),
        ("", "how often", sparkline(result.histogram)),
    ]


def _cost(result: BenchResult, report: BenchReport) -> list[tuple[str, str, str]]:
    rows = []
    if result.cpu_us_per_delivery is not None:
        rows.append(("CPU", f"{result.cpu_us_per_delivery:,.1f} µs", "of all processes, for each delivery"))
    if result.wire_bytes_per_payload_byte is not None:
        whose = "" if report.own_network else ", others' too"
        times = f"{result.wire_bytes_per_payload_byte:.2f}"
        rows.append(("wire", times, f"bytes on loopback{whose}, for each byte delivered"))
    if result.duplicates_per_delivery is not None:
        copies = f"{result.duplicates_per_delivery:.2f}"
        rows.append(("copies", copies, "that came over other links and were dropped"))
    return rows


def noise_note(report: BenchReport) -> str:
    """How far the figures can be believed."""
    if not any(each.other_cpu_fraction is not None for each in report.results.values()):
        return ""
    text = f"Other programs took up to {report.noise:.0%} of this machine's CPU meanwhile"
    if report.noise > NOISY_FRACTION:
        return f"{text}: these figures are noisy. Measure again when it is calm."
    return f"{text}: the machine was calm."
