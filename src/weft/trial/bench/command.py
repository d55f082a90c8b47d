"""`weft bench`: from the words of the command line to real processes, and from their reports to a table."""

import json as json_module
import os
import secrets
import socket
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from weft.net.loop import run
from weft.security import new_key
from weft.trial.bench.figures import NOISY_SHARE, Result
from weft.trial.bench.measures import MEASURES, measured, warm_up
from weft.trial.bench.plan import NEWCOMERS, BenchTerms, Security, Setting
from weft.trial.bench.stage import Stage
from weft.trial.bench.table import head, noise, table
from weft.trial.bench.worker import BenchWorker
from weft.trial.crew import Expired
from weft.trial.namespaces import Hosts, NotPermitted
from weft.trial.plan import WrongUse
from weft.trial.processes import fork, freeze_heap, why_not_here

ALL = "all"
FAILED = 1
WRONG_USE = 2
NOT_HERE = 3
INTERRUPTED = 130
TOLD_MAX = 10

out = Console()
err = Console(stderr=True)


def bench(
    measure: str,
    *,
    receivers: int,
    size: int,
    messages: int,
    rate: float,
    seconds: float,
    plain: bool = False,
    key: bool = False,
    signed: bool = False,
    json: bool = False,
) -> int:
    """The whole command; returns the exit code. 0 means: everything arrived, once and in order."""
    try:
        if measure not in (*MEASURES, ALL):
            raise WrongUse(f"no measurement {measure!r}; there are {', '.join(MEASURES)}, and {ALL}")
        security = _security(plain=plain, key=key, signed=signed)
        setting = Setting(receivers, size, messages, rate, seconds, security).checked()
        result = play([*MEASURES] if measure == ALL else [measure], setting, quiet=json)
    except WrongUse as problem:
        err.print(f"weft bench: {problem}", style="red", markup=False, highlight=False)
        return WRONG_USE
    except OSError as problem:
        err.print(f"weft bench: not possible here: {problem}", style="red", markup=False, highlight=False)
        return FAILED
    except KeyboardInterrupt:
        err.print("weft bench: interrupted; all processes have ended", markup=False)
        return INTERRUPTED
    if json:
        print(json_module.dumps(result.as_dict()), flush=True)
    else:
        _tell(result)
    return NOT_HERE if result.skipped else FAILED if result.problems else 0


def _security(*, plain: bool, key: bool, signed: bool) -> Security:
    if plain + key + signed > 1:
        raise WrongUse("--plain, --key, --signed: one of them at a time")
    return Security.PLAIN if plain else Security.KEY if key else Security.SIGNED if signed else Security.NAME


def _tell(result: Result) -> None:
    if result.skipped:
        err.print(f"weft bench: {result.skipped}", style="yellow", markup=False, highlight=False)
        return
    for text in result.problems[:TOLD_MAX]:
        err.print(f"weft bench: {text}", style="red", markup=False, highlight=False)
    if len(result.problems) > TOLD_MAX:
        err.print(f"weft bench: … and {len(result.problems) - TOLD_MAX} more (--json tells all)", style="red")
    out.print(head(result), highlight=False)
    if result.measures:
        out.print(table(result))
    if text := noise(result):
        out.print(text, style="yellow" if result.noise > NOISY_SHARE else "", highlight=False)
    if result.problems:
        out.print("something went wrong: do not trust these figures", style="red")
    else:
        out.print("everything arrived, once and in order", style="green")


def play(measures: list[str], setting: Setting, *, quiet: bool = False) -> Result:
    """All of these, one after the other, in one fabric; from the first process to the end of the last."""
    result = Result(setting, skipped=why_not_here() or "")
    if result.skipped:
        return result
    began = time.monotonic()
    hosts: Hosts | None = None
    with _Bar(len(measures), quiet=quiet) as bar:
        stage = Stage(setting.as_trial(), bar)
        try:
            hosts = _own_network()
            result.own_network = hosts is not None
            _fork_all(stage, setting, hosts)
            _measure(measures, stage, setting, hosts.keepers[0].pid if hosts is not None else os.getpid(), result)
            stage.crew.close()
        finally:
            stage.crew.kill_all()
            if hosts is not None:
                hosts.close()
    result.problems = stage.faults + stage.problems
    result.wall_s = time.monotonic() - began
    return result


def _own_network() -> Hosts | None:
    """Where that is permitted, a network that nobody else uses: then every byte on its loopback interface is ours."""
    try:
        return Hosts()
    except (NotPermitted, OSError):
        return None


def _fork_all(stage: Stage, setting: Setting, hosts: Hosts | None) -> None:
    channel = f"bench/{os.getpid()}-{secrets.token_hex(8)}"
    key = new_key() if setting.security is Security.KEY else None
    terms = BenchTerms(channel, key, stage.plan.degree, setting.size_bytes, security=setting.security)
    freeze_heap()
    for number in range(setting.peers + NEWCOMERS):
        main = _main(terms)
        stage.crew.add(fork(number, hosts.inside(0, main) if hosts is not None else main, stage.crew.processes))


def _main(terms: BenchTerms) -> Callable[[socket.socket], None]:
    return lambda end: run(BenchWorker(terms, end).main())


def _measure(measures: list[str], stage: Stage, setting: Setting, network_of: int, result: Result) -> None:
    """Until something goes wrong: what comes after that would mean nothing."""
    name = "starting"
    try:
        stage.grow()
        warm_up(stage, setting)
        for name in measures:
            if stage.problems:
                break
            stage.bar.next(name)
            result.measures[name] = measured(name, stage, setting, network_of)
    except Expired as expired:
        if not stage.faults:
            stage.problems.append(f"{name}: {expired}")


class _Bar:
    """How far it is, on a terminal. It has no thread: it is drawn anew when something is told."""

    def __init__(self, count: int, *, quiet: bool) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        shown = err.is_terminal and not quiet
        self._progress = Progress(*columns, console=err, auto_refresh=False, transient=True, disable=not shown)
        self._task = self._progress.add_task("starting", total=count)
        self._begun = 0

    def __enter__(self) -> "_Bar":
        self._progress.start()
        return self

    def __exit__(self, *_problem: object) -> None:
        self._progress.stop()

    def phase(self, text: str) -> None:
        self._progress.update(self._task, description=text, refresh=True)

    def next(self, name: str) -> None:
        self._begun += 1
        self._progress.update(self._task, description=name, completed=self._begun - 1, refresh=True)

    def share(self, done: float) -> None:
        self._progress.update(self._task, completed=self._begun - 1 + done, refresh=True)
