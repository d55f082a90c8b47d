"""`weft trial`: from the words of the command line to real processes, and from their reports to a table."""

import json as json_module
import os
import secrets
import socket
import time
from collections.abc import Callable

from rich.console import Console
from rich.status import Status
from rich.table import Table

from weft.net.loop import run
from weft.security import new_key
from weft.trial.closing import close
from weft.trial.crew import Expired
from weft.trial.namespaces import Hosts, NotPermitted
from weft.trial.orders import Terms
from weft.trial.plan import Plan, WrongUse
from weft.trial.processes import fork, freeze_heap, why_not_here
from weft.trial.result import Result, fill, table
from weft.trial.scenarios import SCENARIOS, Scenario, merged, spare_processes
from weft.trial.trial import Trial
from weft.trial.worker import Worker

FAILED = 1
WRONG_USE = 2
NOT_HERE = 3
INTERRUPTED = 130
TOLD_MAX = 10

out = Console()
err = Console(stderr=True)


def trial(
    scenario: str,
    *,
    peers: int = 0,
    processes: int = 0,
    kill: int = 0,
    freeze: int = 0,
    newcomers: int = 0,
    per_min: float = 0.0,
    seconds: float = 0.0,
    rate: float = 0.0,
    size: int = 0,
    degree: int = 0,
    within: float = 0.0,
    plain: bool = False,
    json: bool = False,
    tape: str = "",
) -> int:
    """The whole command; returns the exit code. 0 means: as the scenario has it."""
    if scenario == "list":
        _list()
        return 0
    try:
        if scenario not in SCENARIOS:
            raise WrongUse(f"no scenario {scenario!r}; there are {', '.join(SCENARIOS)}")
        if kill and scenario != "kill":
            raise WrongUse(f"{scenario}: nobody is killed by number; --kill is for the scenario kill")
        if freeze and scenario != "freeze":
            raise WrongUse(f"{scenario}: nobody is frozen; --freeze is for the scenario freeze")
        given: dict[str, object] = {"peers": peers, "processes": processes, "hit": kill or freeze}
        given |= {"newcomers": newcomers, "per_min": per_min, "seconds": seconds}
        given |= {"rate_per_s": rate, "size_bytes": size}
        given |= {"degree": degree, "within_s": within, "plain": plain or None, "tape": tape}
        plan = merged(SCENARIOS[scenario].default, given)
        result = play(scenario, plan, quiet=json)
    except WrongUse as problem:
        err.print(f"weft trial: {problem}", style="red", markup=False, highlight=False)
        return WRONG_USE
    except KeyboardInterrupt:
        err.print("weft trial: interrupted; all processes have ended", markup=False)
        return INTERRUPTED
    _tell(result, json=json)
    return NOT_HERE if result.skipped else 0 if result.held else FAILED


def _list() -> None:
    rows = Table("scenario", "peers", "what happens", box=None, pad_edge=False)
    for name, scenario in SCENARIOS.items():
        rows.add_row(name, str(scenario.default.peers), scenario.about)
    out.print(rows)


def _tell(result: Result, *, json: bool) -> None:
    if json:
        print(json_module.dumps(result.as_dict()), flush=True)
        return
    if result.skipped:
        err.print(f"skipped: {result.skipped}", style="yellow", markup=False, highlight=False)
        return
    wrong = result.faults + result.problems
    for text in wrong[:TOLD_MAX]:
        err.print(text, style="red", markup=False, highlight=False)
    if len(wrong) > TOLD_MAX:
        err.print(f"… and {len(wrong) - TOLD_MAX} more (--json tells all)", style="red", markup=False, highlight=False)
    out.print(table(result))
    out.print("[green]all promises held[/]" if result.held else "[red]broken[/]")


def play(name: str, plan: Plan, *, quiet: bool = False) -> Result:
    """One trial, from the first process to the end of the last."""
    scenario = SCENARIOS[name]
    spare = spare_processes(name, plan)
    security = "plain" if plan.plain else "TLS"
    result = Result(name, plan.peers, plan.processes, security)
    result.skipped = why_not_here() or ""
    if result.skipped:
        return result
    hosts: Hosts | None = None
    began = time.monotonic()
    with _Progress(quiet=quiet) as progress:
        under_way = Trial(plan, progress)
        try:
            try:
                hosts = Hosts() if scenario.namespaces else None
            except NotPermitted as problem:
                result.skipped = str(problem)
                return result
            _fork_all(under_way, spare, hosts)
            progress.begin()
            _play(scenario, under_way, hosts, result)
        finally:
            under_way.crew.kill_all()
            if hosts is not None:
                hosts.close()
    result.wall_s = time.monotonic() - began
    result.cpu_s = sum(process.cpu_s for process in under_way.crew.processes)
    return result


def _fork_all(under_way: Trial, spare: int, hosts: Hosts | None) -> None:
    """Before there is any thread or event loop in this process."""
    plan = under_way.plan
    channel = f"trial/{os.getpid()}-{secrets.token_hex(8)}"
    key = None if plan.plain else new_key()
    terms = Terms(channel, key, plan.degree, plan.size_bytes, plan.within_s, plan.tape)
    if plan.tape:
        import weft.record  # noqa: F401  (loaded once, for all)
    freeze_heap()
    for number in range(plan.processes + spare):
        main = _main(terms) if hosts is None else hosts.inside(number % 2, _main(terms))
        under_way.crew.add(fork(number, main, under_way.crew.processes))


def _main(terms: Terms) -> Callable[[socket.socket], None]:
    return lambda end: run(Worker(terms, end).main())


def _play(scenario: Scenario, under_way: Trial, hosts: Hosts | None, result: Result) -> None:
    try:
        if hosts is None:
            scenario.play(under_way)
        else:
            scenario.play(under_way, hosts)
    except Expired as expired:
        if not under_way.faults:
            under_way.problems.append(f"promise {6 if 'parts' in str(expired) else 5}: {expired}")
    try:
        audit = close(under_way)
        fill(result, under_way, audit)
    except Expired as expired:
        if not under_way.faults:
            under_way.problems.append(str(expired))
    under_way.crew.close()
    if not (under_way.problems or under_way.faults or result.deliveries):
        under_way.problems.append("nothing was delivered, so nothing is proved")
    result.problems, result.faults = under_way.problems, under_way.faults
    result.held = not (result.problems or result.faults)


class _Progress:
    """How far it is, on a terminal. Starts its thread only when told to: nothing may be forked after that."""

    def __init__(self, *, quiet: bool) -> None:
        self._status = Status("…", console=err) if err.is_terminal and not quiet else None

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *_problem: object) -> None:
        if self._status is not None:
            self._status.stop()

    def begin(self) -> None:
        if self._status is not None:
            self._status.start()

    def phase(self, text: str) -> None:
        if self._status is not None:
            self._status.update(text)
