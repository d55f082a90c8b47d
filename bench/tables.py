"""What came out, as tables: the same ones in the terminal and as Markdown. Plain systems stand beside plain ones, and
encrypted ones beside encrypted ones."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench.result_row import Row
from bench.store import Result
from bench.summary import BASES, best_first, case_of
from bench.systems import SYSTEMS

ERROR_CHARS_MAX = 160
WIDE = 150


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    cell: Callable[[Row], str]
    is_detail: bool = False
    """Left out where there is little room."""


@dataclass(frozen=True, slots=True)
class Grid:
    title: str
    titles: list[str]
    lines: list[list[str]]
    failures: list[tuple[str, str]]
    """Systems without numbers, and why."""


def number(value: float | None) -> str:
    """Three digits that mean something."""
    if value is None:
        return "–"
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _plain(title: str, name: str, *, is_detail: bool = False) -> Column:
    return Column(title, lambda row: number(row.get(name)), is_detail)


def _ratio(title: str, name: str) -> Column:
    return Column(title, lambda row: f"{row[name]:.2f}×" if name in row else "–")


def _share(title: str, name: str, *, is_detail: bool = False) -> Column:
    return Column(title, lambda row: f"{row[name]:.0%}" if row.get(name) is not None else "–", is_detail)


def _grown(title: str, role: str) -> Column:
    """Memory: before, and at most."""

    def cell(row: Row) -> str:
        if row.get(f"{role}_mib") is None:
            return "–"
        return f"{row[f'{role}_before_mib']:,.0f} → {row[f'{role}_mib']:,.0f}"

    return Column(title, cell)


def _outcome(row: Row) -> str:
    """What became of the frozen one."""
    if not row["lacking"]:
        return f"has all, {row['caught_up_s']:.1f} s after" if row.get("caught_up_s") is not None else "has all"
    if row["missed"] >= row["lacking"]:
        return f"lacks {row['lacking']:,.0f}, told exactly"
    report = "told of a trouble, not what" if row["troubles"] else "told nothing"
    return f"lacks {row['lacking']:,.0f}, {report}"


_COSTS = [
    _plain("CPU µs/delivery", "cpu_us_per_delivery"),
    _plain("wire/payload", "wire_per_payload"),
    _plain("lost", "lost"),
    _plain("dup", "duplicates", is_detail=True),
]
_QUALITY = [
    _share("spread", "spread", is_detail=True),
    _share("foreign", "foreign_share"),
    _plain("n", "measurements", is_detail=True),
]
_RATES = [_plain("messages", "messages", is_detail=True), _plain("broadcasts/s", "broadcasts_per_s", is_detail=True)]
_RATES += [_plain("deliveries/s", "deliveries_per_s")]

_REQUESTS: list[Column | str] = [
    _plain("p50 ms", "p50_ms"),
    _plain("p99 ms", "p99_ms"),
    "ratios",
    _plain("requests/s", "requests_per_s"),
    _plain("CPU µs/request", "cpu_us_per_request"),
    _plain("wire/payload", "wire_per_payload"),
    _plain("failed", "lost"),
    *_QUALITY,
]

COLUMNS: dict[str, list[Column | str]] = {
    "throughput": [*_RATES, "ratios", *_COSTS, *_QUALITY],
    "all-to-all": [*_RATES, "ratios", *_COSTS, *_QUALITY],
    "topics": [*_RATES, "ratios", *_COSTS, *_QUALITY],
    "scale": [*_RATES, *_COSTS, *_QUALITY],
    "latency": [
        _plain("rate/s", "rate_per_s", is_detail=True),
        _plain("p50 ms", "p50_ms"),
        _plain("p99 ms", "p99_ms"),
        _plain("max ms", "max_ms"),
        "ratios",
        *_COSTS,
        *_QUALITY,
    ],
    "request": _REQUESTS,
    "switch": _REQUESTS,
    "mailbox": _REQUESTS,
    "join": [
        _plain("rate/s", "rate_per_s"),
        _plain("median ms", "join_ms"),
        _plain("slowest ms", "join_max_ms"),
        "ratios",
        _plain("gaps after", "gaps"),
        _share("foreign", "foreign_share"),
    ],
    "frozen": [
        _plain("each/s before", "before_per_s"),
        _plain("each/s meanwhile", "during_per_s"),
        _share("kept", "others_kept"),
        _plain("longest stall s", "stall_s"),
        _plain("others lost", "others_lost"),
        Column("the frozen one", _outcome),
        _grown("sender MiB", "sender"),
        _grown("broker MiB", "broker"),
        _grown("another MiB", "others"),
        _share("foreign", "foreign_share"),
    ],
}

LEGEND = """\
- *deliveries/s*: of all receivers together; *broadcasts/s*: messages that all of them have.
- *×*: this system's main number (deliveries/s, p50, median) beside that of the other.
- *CPU µs/delivery*: of all node processes and the broker. *wire/payload*: bytes on loopback, with headers, for each
  byte that must arrive (shared memory is not counted).
- *lost*, *dup*: the worst of all measurements. *spread*: between the best and the worst, as a share of the median.
  *foreign*: the share of the machine that other processes took meanwhile. *n*: measurements in the median.
- *request*, *switch*, *mailbox*: p50 and p99 of single requests with warm connections; requests/s of all clients
  together to one server, to one handler of an operation, and for one value.
- *frozen*: one receiver is stopped under full load. *kept*: the others' rate meanwhile, beside that before.
  Memory: before → at most.
"""


def grids(result: Result, *, details: bool = True) -> Iterator[Grid]:
    """One for each case, plain systems and encrypted ones apart."""
    summaries = result.summaries()
    for case in dict.fromkeys(case_of(row) for row in summaries):
        for encrypted in (False, True):
            rows = [row for row in summaries if case_of(row) == case and row["encrypted"] == encrypted]
            if rows:
                yield _grid(case, encrypted, rows, details)


def _grid(case: tuple[str, int, int], encrypted: bool, rows: list[Row], details: bool) -> Grid:
    workload, receivers, size_bytes = case
    columns: list[Column] = []
    for each in COLUMNS[workload]:
        if isinstance(each, Column):
            columns += [each] if details or not each.is_detail else []
        else:
            columns += [_ratio(f"× {base}", f"to_{base}") for base in BASES[encrypted]]
    good = [row for row in best_first(rows) if "error" not in row]
    nouns = {"all-to-all": "processes", "request": "clients", "switch": "clients", "mailbox": "clients"}
    processes = f"{receivers} {nouns.get(workload, 'receivers')}"
    return Grid(
        title=f"{workload}, {processes}, {size_bytes:,} B, {'encrypted' if encrypted else 'plain'}",
        titles=["system", "kind", *(column.title for column in columns)],
        lines=[[row["system"], row["kind"], *(column.cell(row) for column in columns)] for row in good],
        failures=[(row["system"], " ".join(row["error"].split())[:ERROR_CHARS_MAX]) for row in rows if "error" in row],
    )


def markdown(result: Result) -> str:
    parts = [f"# Broadloom beside others\n\n{result.when}. {result.machine}. Rounds: {result.rounds}.\n"]
    parts.append(LEGEND)
    for grid in grids(result):
        parts.append(f"## {grid.title}\n")
        if grid.lines:
            parts.append(_line(grid.titles))
            parts.append("|---|---|" + "---:|" * (len(grid.titles) - 2))
            parts += [_line(line) for line in grid.lines]
            parts.append("")
        parts += [f"- {system}: no numbers. {reason}" for system, reason in grid.failures]
        parts += [""] if grid.failures else []
    return "\n".join(parts)


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def show(result: Result, console: Console) -> None:
    for grid in grids(result, details=console.width >= WIDE):
        table = Table(title=grid.title, title_justify="left", box=None, pad_edge=False, header_style="bold")
        for place, title in enumerate(grid.titles):
            table.add_column(title, justify="left" if place < 2 else "right", no_wrap=place < 2)
        for line in grid.lines:
            table.add_row(*line, style="bold" if line[0].startswith("broadloom") else None)
        console.print(table)
        for system, reason in grid.failures:
            console.print(f"{system}: no numbers. {reason}", style="yellow", markup=False, highlight=False)
        console.print()


def show_systems(console: Console) -> None:
    table = Table("system", "kind", "how it is set", "limits", "missing", box=None, pad_edge=False)
    for system in SYSTEMS.values():
        table.add_row(system.name, system.kind, system.about, system.limits, system.missing())
    console.print(table)
