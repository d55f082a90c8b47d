"""`broadloom bench`: throughput, latency and join time on this machine."""

from typing import TYPE_CHECKING, Annotated

from broadloom.cli.chaos import finish, reporting_interrupt
from broadloom.cli.exit_codes import CommandFailedError, UsageError
from broadloom.cli.options import JsonOption, NoTlsOption, argument, option
from broadloom.cli.output import ProgressBar
from broadloom.cli.runner import command

if TYPE_CHECKING:
    from rich.console import Console

    from broadloom.testing.bench.config import SecurityMode
    from broadloom.testing.bench.results import BenchReport

ALL = "all"


def _complete(incomplete: str) -> list[str]:
    names = (ALL, "throughput", "latency", "all-to-all", "join")
    return [name for name in names if name.startswith(incomplete)]


@command("bench")
def bench(
    benchmark: Annotated[
        str,
        argument(
            "What to measure: messages per second of one sender; delivery time; messages per second if every peer "
            "sends; time to join.",
            "throughput|latency|all-to-all|join|all",
            autocompletion=_complete,
        ),
    ] = ALL,
    receivers: Annotated[int, option("Number of receivers.", "N", min=1)] = 8,
    size: Annotated[int, option("Message size in bytes, at least 24.", "BYTES")] = 100,
    messages: Annotated[int, option("Maximum number of messages.", "N", min=1)] = 50_000,
    rate: Annotated[float, option("Messages per second for latency and join.", "N")] = 200.0,
    duration: Annotated[float, option("Maximum time per benchmark.", "SECONDS")] = 3.0,
    no_tls: NoTlsOption = False,
    shared_key: Annotated[bool, option("Use a random shared key instead of one derived from the name.")] = False,
    signed: Annotated[bool, option("Sign every message.")] = False,
    json: JsonOption = False,
) -> int:
    """Benchmark this machine.

    Takes about 15 seconds. Starts one process per peer; they talk over loopback and are not visible to other
    machines. Without --no-tls, --shared-key or --signed the channel has the defaults of `broadloom.connect`: TLS,
    with a key derived from the name.

    Exit status 1 if a message was lost, duplicated or out of order, 3 if this machine does not support it (Linux only).

    Examples:

    - `broadloom bench`
    - `broadloom bench throughput --receivers 16 --size 1000`
    - `broadloom bench latency --rate 1000 --duration 10 --no-tls`
    - `broadloom bench --signed --json | jq .benchmarks.latency.latency_ms`
    """
    from broadloom.testing.bench.benchmarks import BENCHMARKS
    from broadloom.testing.bench.config import BenchConfig
    from broadloom.testing.bench.runner import run_benchmarks

    if benchmark not in (*BENCHMARKS, ALL):
        raise UsageError(f"unknown benchmark {benchmark!r}; choose one of {', '.join(BENCHMARKS)}, or {ALL}")
    names = [*BENCHMARKS] if benchmark == ALL else [benchmark]
    security = _security_mode(no_tls=no_tls, shared_key=shared_key, signed=signed)
    config = BenchConfig(receivers, size, messages, rate, duration, security).validated()
    try:
        with reporting_interrupt("bench"), _BenchProgress("starting", len(names), quiet=json) as progress:
            report = run_benchmarks(names, config, progress)
    except OSError as problem:
        raise CommandFailedError(f"cannot run on this machine: {problem}") from None
    return finish("bench", report, _show, json=json)


def _security_mode(*, no_tls: bool, shared_key: bool, signed: bool) -> "SecurityMode":
    from broadloom.testing.bench.config import SecurityMode

    if no_tls + shared_key + signed > 1:
        raise UsageError("--no-tls, --shared-key and --signed exclude each other")
    if no_tls:
        return SecurityMode.PLAIN
    if shared_key:
        return SecurityMode.SHARED_KEY
    return SecurityMode.SIGNED if signed else SecurityMode.NAME_DERIVED_KEY


class _BenchProgress(ProgressBar):
    _started = 0

    def next_benchmark(self, name: str) -> None:
        self._started += 1
        self.phase(name)
        self.set_fraction(0.0)

    def set_fraction(self, done: float) -> None:
        """How much of the current benchmark is done."""
        self.update(self._started - 1 + done)


def _show(report: "BenchReport", out: "Console") -> None:
    from broadloom.testing.bench.benchmarks import BENCHMARKS
    from broadloom.testing.bench.results import NOISY_FRACTION, header, noise_note, result_table

    out.print(header(report))
    if report.results:
        out.print(result_table(report, {name: each.description for name, each in BENCHMARKS.items()}))
    if text := noise_note(report):
        out.print(text, style="yellow" if report.noise > NOISY_FRACTION else "", highlight=False)
    if report.passed:
        out.print("every message was delivered, exactly once and in order", style="green")
    else:
        out.print("errors occurred: do not use these results", style="red")
