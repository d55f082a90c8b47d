"""`weft study …`: from the words of the command line to jobs, and from figures to tables, JSON and pictures."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from weft.pipeline.session import is_running, session, stop
from weft.pipeline.study import answers, tell, words
from weft.pipeline.study.frontier import TASK_PEERS_MAX, reach_over
from weft.pipeline.study.jobs import KILL, SPREAD, Figures, Kill, Kind, Spread, peak_mb
from weft.pipeline.study.parts import CONNECTIVITY_PEERS_MAX
from weft.pipeline.study.tasks import in_processes, on_spark
from weft.pipeline.study.words import WrongUse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXACT_PEERS_MAX = 100_000
"""Up to this size all peers are searched from, unless told otherwise; the work grows with the square of the peers."""
PART_SOURCES = 25_600
"""Of one fabric, so many sources are searched from in one job."""
SEEDS_BY_PEERS = ((10_000, "1..20"), (1_000_000, "1..4"))
SEEDS_ELSE = "1..2"
FAR_PEERS_MAX = 20_000
"""For the ways that look at the whole fabric for each newcomer."""

err = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Where:
    """Where jobs run, and who watches."""

    spark: "SparkSession | None"
    progress: Progress

    def run(self, what: str, kind: Kind, jobs: Sequence[Any]) -> list[Figures]:
        bar = self.progress.add_task(what, total=len(jobs))

        def tell_done(done: int) -> None:
            self.progress.update(bar, completed=done)

        if self.spark is None:
            return in_processes(kind, jobs, tell_done)
        return on_spark(self.spark, kind, jobs, tell_done)


@contextmanager
def _where(master: str | None, no_spark: bool, cores: int | None = None) -> Iterator[Where]:
    if master and no_spark:
        raise WrongUse("--master and --no-spark exclude each other")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        if no_spark:
            yield Where(None, progress)
            return
        starting = progress.add_task("starting Spark", total=None)
        is_ours = not is_running()
        spark = session(master or None, name="weft study", cores=cores, quick=True)
        progress.remove_task(starting)
        try:
            yield Where(spark, progress)
        finally:
            if is_ours:
                stop()


def diameter(
    *,
    peers: str,
    degree: int,
    seeds: str,
    way: str,
    exact_max: int,
    sweeps: int,
    distributed: bool,
    json: bool,
    plot: Path | None,
    master: str | None,
    no_spark: bool,
) -> int:
    """The whole command; returns the exit code."""
    start_s = time.perf_counter()
    sizes, degree, (chosen, choices) = words.sizes(peers), words.degree(degree), words.way(way)
    picture = words.picture(plot)
    if no_spark and (distributed or max(sizes) > TASK_PEERS_MAX):
        raise WrongUse(f"a fabric over many tasks (--distributed, or more than {TASK_PEERS_MAX:,} peers) needs Spark")
    rows = []
    with _where(master, no_spark) as where:
        local: list[Spread] = []
        for size in sizes:
            for seed in words.seeds(seeds or _seeds_for(size)):
                if distributed or size > TASK_PEERS_MAX:
                    continue
                local += _parts(Spread(size, degree, seed, chosen, choices), exact_max, sweeps)
        figures = where.run("fabrics", SPREAD, local) if local else []
        rows = answers.diameters(local, figures)
        for size in sizes:
            if distributed or size > TASK_PEERS_MAX:
                found = [
                    _distributed(where, Spread(size, degree, seed, chosen, choices))
                    for seed in words.seeds(seeds or _seeds_for(size))
                ]
                rows += answers.diameters([job for job, _ in found], [each for _, each in found])
    rows.sort(key=lambda row: sizes.index(row["peers"]))
    about = {"study": "diameter", "degree": degree, "way": way, "seconds": round(time.perf_counter() - start_s, 1)}
    tell.diameters(about, rows, json=json)
    if picture is not None:
        from weft.pipeline.study import plot as plots

        plots.diameters(rows, degree, picture)
    return 0


def _seeds_for(peers: int) -> str:
    for size, seeds in SEEDS_BY_PEERS:
        if peers <= size:
            return seeds
    return SEEDS_ELSE


def _parts(job: Spread, exact_max: int, sweeps: int) -> list[Spread]:
    """A job of all sources as several, or one of some."""
    if job.peers > exact_max:
        return [replace(job, sweeps=min(sweeps, job.peers))]
    return [
        replace(job, first=first, last=min(first + PART_SOURCES, job.peers))
        for first in range(0, job.peers, PART_SOURCES)
    ]


def _distributed(where: Where, job: Spread) -> tuple[Spread, Figures]:
    assert where.spark is not None
    bar = where.progress.add_task(f"{job.peers:,} peers over tasks, steps", total=None)
    start_s = time.perf_counter()
    reach = reach_over(
        where.spark,
        job.peers,
        job.degree,
        job.seed,
        job.way,
        job.choices,
        lambda _step: where.progress.advance(bar),
    )
    where.progress.remove_task(bar)
    return job, {
        "diameter": reach.eccentricity_max,
        "distance_sum": reach.distance_sum,
        "pairs": reach.sources * (job.peers - 1) - reach.unreached,
        "unreached": reach.unreached,
        "holes": None,
        "dense_links": None,
        "connectivity": None,
        "grow_s": 0.0,
        "search_s": time.perf_counter() - start_s,
        "memory_mb": peak_mb(),
    }


def kill(
    *,
    share: str,
    peers: str,
    degree: int,
    seeds: str,
    way: str,
    json: bool,
    plot: Path | None,
    master: str | None,
    no_spark: bool,
) -> int:
    start_s = time.perf_counter()
    shares, degree, (chosen, choices) = words.shares(share), words.degree(degree), words.way(way)
    sizes, numbers, picture = words.sizes(peers), words.seeds(seeds), words.picture(plot)
    jobs = [
        Kill(size, degree, seed, chosen, choices, tuple(shares), which)
        for size in sizes
        for which in range(len(shares))
        for seed in numbers
    ]
    with _where(master, no_spark) as where:
        rows = answers.kills(jobs, where.run("fabrics", KILL, jobs))
    about = {"study": "kill", "degree": degree, "way": way, "seconds": round(time.perf_counter() - start_s, 1)}
    tell.kills(about, rows, json=json)
    if picture is not None:
        from weft.pipeline.study import plot as plots

        plots.kills(rows, degree, picture)
    return 0


def pinning(
    *,
    ways: str,
    peers: str,
    degree: int,
    seeds: str,
    json: bool,
    plot: Path | None,
    master: str | None,
    no_spark: bool,
) -> int:
    start_s = time.perf_counter()
    chosen, degree = [words.way(each) for each in ways.split(",")], words.degree(degree)
    sizes, numbers, picture = words.sizes(peers), words.seeds(seeds), words.picture(plot)
    for size in sizes:
        if size > FAR_PEERS_MAX and any(way.name == "FAR" for way, _ in chosen):
            raise WrongUse(f"far-k looks at the whole fabric for each newcomer: at most {FAR_PEERS_MAX:,} peers")
        if size > EXACT_PEERS_MAX:
            raise WrongUse(f"--peers: exact distances are wanted here, so at most {EXACT_PEERS_MAX:,}, not {size:,}")
    jobs = [
        Spread(size, degree, seed, way, choices, 0, size, with_connectivity=size <= CONNECTIVITY_PEERS_MAX)
        for size in sizes
        for way, choices in chosen
        for seed in numbers
    ]
    with _where(master, no_spark) as where:
        rows = answers.pinnings(jobs, where.run("fabrics", SPREAD, jobs))
    about = {"study": "pinning", "degree": degree, "seconds": round(time.perf_counter() - start_s, 1)}
    tell.pinnings(about, rows, json=json)
    if picture is not None:
        from weft.pipeline.study import plot as plots

        plots.pinnings(rows, degree, picture)
    return 0
