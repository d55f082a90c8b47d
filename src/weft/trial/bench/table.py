"""The figures for people: what was seen, and what that means, one line each."""

from statistics import median

from rich.table import Table

from weft.trial.bench.figures import NOISY_SHARE, Figures, Result, machine
from weft.trial.bench.measures import MEASURES
from weft.trial.bench.sparkline import sparkline


def head(result: Result) -> str:
    setting, here = result.setting, machine()
    cores = f"{here['cores']} cores" if here["cores"] > 1 else "one core"
    receivers = f"{setting.receivers} receivers" if setting.receivers > 1 else "one receiver"
    what = f"{receivers}, {setting.size_bytes:,} bytes, {setting.security.value}"
    return f"{what}; {cores}, Python {here['python']}, Weft {here['weft']}"


def table(result: Result) -> Table:
    rows = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    rows.add_column(no_wrap=True)
    rows.add_column(no_wrap=True)
    rows.add_column(style="dim")
    for name, figures in result.measures.items():
        rows.add_row(f"[bold]{name}[/]", "", MEASURES[name].about.format(rate=result.setting.rate_per_s))
        for what, figure, meaning in _rows(name, figures, result):
            rows.add_row(f"  {what}", figure, meaning)
    return rows


def _rows(name: str, figures: Figures, result: Result) -> list[tuple[str, str, str]]:
    if figures.connect_ms:
        meaning = f"median of {len(figures.connect_ms)}, at most {max(figures.connect_ms):.0f} ms"
        return [("connected", f"{median(figures.connect_ms):.0f} ms", meaning)]
    if figures.latency_ms is not None:
        return [*_latency(figures), *_cost(figures, result)]
    span = f"{figures.messages:,} in {figures.seconds:.2f} s, first sending to last delivery"
    memory = f"of one process; {figures.own_memory_mb:.0f} MB of it its own"
    data = f"at all receivers together: {figures.deliveries_per_s * result.setting.size_bytes / 1e6:,.0f} MB/s of data"
    return [
        ("broadcasts", f"{figures.broadcasts_per_s:,.0f} /s", span),
        ("deliveries", f"{figures.deliveries_per_s:,.0f} /s", data),
        *_cost(figures, result),
        ("memory", f"{figures.memory_mb:.0f} MB", memory),
    ]


def _latency(figures: Figures) -> list[tuple[str, str, str]]:
    assert figures.latency_ms is not None
    assert figures.histogram is not None
    times = {name: f"{time_ms:.2f} ms" for name, time_ms in figures.latency_ms.items()}
    return [
        ("p50", times["p50"], f"one way; half of {figures.deliveries:,} deliveries were faster"),
        ("p90", times["p90"], "nine of ten were"),
        ("p99", times["p99"], f"99 of 100 were; the slowest took {times['max']}"),
        ("", "how often", sparkline(figures.histogram)),
    ]


def _cost(figures: Figures, result: Result) -> list[tuple[str, str, str]]:
    rows = []
    if figures.cpu_us_per_delivery is not None:
        rows.append(("CPU", f"{figures.cpu_us_per_delivery:,.1f} µs", "of all processes, for each delivery"))
    if figures.wire_bytes_per_payload_byte is not None:
        whose = "" if result.own_network else ", others' too"
        times = f"{figures.wire_bytes_per_payload_byte:.2f}"
        rows.append(("wire", times, f"bytes on loopback{whose}, for each byte delivered"))
    if figures.copies_per_delivery is not None:
        copies = f"{figures.copies_per_delivery:.2f}"
        rows.append(("copies", copies, "that came over other links and were dropped"))
    return rows


def noise(result: Result) -> str:
    """How far the figures can be believed."""
    if not any(each.others_cpu_share is not None for each in result.measures.values()):
        return ""
    text = f"Other programs took up to {result.noise:.0%} of this machine's CPU meanwhile"
    if result.noise > NOISY_SHARE:
        return f"{text}: these figures are noisy. Measure again when it is calm."
    return f"{text}: the machine was calm."
