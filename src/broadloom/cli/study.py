"""`broadloom study`: overlays of up to millions of peers, grown and searched without running peers."""

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer

from broadloom.cli.exit_codes import SUCCESS, UsageError, require_extra
from broadloom.cli.options import JsonOption, command_group, option
from broadloom.cli.output import ProgressBar
from broadloom.cli.runner import run_reporting_errors

if TYPE_CHECKING:
    from broadloom.pipeline.overlay_study.run import Executor
    from broadloom.pipeline.overlay_study.summary import Row

P = ParamSpec("P")

study = command_group(
    help="""Study overlays of up to ten million peers: diameter, robustness, growth.

    Many overlays are grown and searched in parallel, as Spark tasks on this machine or on a cluster. No peers run: for
    that, use `broadloom sim` and `broadloom chaos`. Needs the extra: `pip install 'broadloom[pipeline]'`.

    Examples:

    - `broadloom study diameter --peers 100,1000,10000`
    - `broadloom study failures --fraction 0.1..0.9 --peers 100000`
    - `broadloom study join-strategies --peers 200,1000`
    """,
)

PeersOption = Annotated[str, typer.Option("--peers", metavar="N,…", help="Number of peers; several as 100,1000.")]
DegreeOption = Annotated[int, typer.Option("--degree", metavar="N", help="Links per peer.")]
SeedsOption = Annotated[str, typer.Option("--seeds", metavar="N|N..N", help="Seed or range, as 7 or 1..20.")]
StrategyOption = Annotated[
    str,
    typer.Option(
        "--strategy",
        metavar="NAME",
        help="How joining peers choose their edges: `uniform-edge`, `random-walk`, `broadloom` (random walks that "
        "avoid clustering), `least-clustered-K` or `farthest-K` (best of K), `random-regular` (not grown).",
    ),
]
PlotOption = Annotated[Path | None, option("--plot", metavar="FILE", help="Write a chart, .svg or .png.")]
MasterOption = Annotated[
    str, option("--master", metavar="URL", help="Spark master URL. Default: all cores of this machine.")
]
NoSparkOption = Annotated[
    bool, typer.Option("--no-spark", help="Use local processes instead of Spark: starts faster, same results.")
]


def _reports_errors(command: str) -> Callable[[Callable[P, int]], Callable[P, int]]:
    """As `runner.reports_errors`, with the errors of studies as usage errors."""

    def decorate(function: Callable[P, int]) -> Callable[P, int]:
        @functools.wraps(function)
        def reporting(*args: P.args, **kwargs: P.kwargs) -> int:
            def act() -> int:
                require_extra("pipeline")
                from broadloom.pipeline.java import JavaNotFoundError
                from broadloom.pipeline.overlay_study.parameters import StudyUsageError
                from broadloom.pipeline.spark_session import SparkUnavailableError

                try:
                    return function(*args, **kwargs)
                except (StudyUsageError, JavaNotFoundError, SparkUnavailableError) as problem:
                    raise UsageError(str(problem)) from None

            return run_reporting_errors(f"study {command}", act)

        return reporting

    return decorate


@study.command()
@_reports_errors("diameter")
def diameter(
    peers: PeersOption = "100,1000,10000,100000,1000000",
    degree: DegreeOption = 4,
    seeds: Annotated[
        str,
        option(
            "--seeds",
            metavar="N|N..N",
            help="Seed or range, as 7 or 1..20. Default: 20 seeds up to 10,000 peers, 4 up to 1,000,000, else 2.",
        ),
    ] = "",
    strategy: StrategyOption = "uniform-edge",
    exact_max: Annotated[
        int, typer.Option(min=0, metavar="N", help="Exact up to this size. A million peers take about an hour.")
    ] = 100_000,
    bfs_sources: Annotated[
        int, typer.Option(min=1, metavar="N", help="Start points of the search in larger overlays.")
    ] = 512,
    distributed: Annotated[
        bool,
        typer.Option(
            "--distributed",
            help="Distribute one overlay over many tasks, for overlays larger than the memory of a task. Always on "
            "above 50,000,000 peers.",
        ),
    ] = False,
    json: JsonOption = False,
    plot: PlotOption = None,
    master: MasterOption = "",
    no_spark: NoSparkOption = False,
) -> int:
    """Measure the diameter of grown overlays and compare it with theory.

    The diameter is exact up to --exact-max peers; for larger overlays it is a lower bound, and marked as such.

    Examples:

    - `broadloom study diameter --peers 100,1000,10000`
    - `broadloom study diameter --peers 200 --seeds 1..1000 --no-spark`
    - `broadloom study diameter --peers 1000000,10000000 --plot diameter.svg`
    - `broadloom study diameter --peers 10000000 --seeds 1 --distributed`
    - `broadloom study diameter --peers 1000 --json | jq '.rows[0].diameter_median'`
    """
    from broadloom.pipeline.overlay_study import parameters, report, run
    from broadloom.pipeline.overlay_study.distributed_bfs import TASK_PEERS_MAX

    sizes, chosen = parameters.parse_sizes(peers), parameters.parse_strategy(strategy)
    chosen_seeds = parameters.parse_seeds(seeds) if seeds else []
    image = parameters.check_image_path(plot)
    about = {"study": "diameter", "degree": parameters.check_degree(degree), "strategy": strategy}
    if no_spark and (distributed or max(sizes) > TASK_PEERS_MAX):
        raise UsageError(f"--distributed, and more than {TASK_PEERS_MAX:,} peers, require Spark")

    def measure(executor: "Executor") -> "list[Row]":
        limits: dict[str, Any] = {"exact_max": exact_max, "bfs_sources": bfs_sources, "distributed": distributed}
        return run.diameter(executor, sizes, degree, chosen_seeds, chosen, **limits)

    rows = _run(measure, about, master, no_spark)
    report.diameters(about, rows, json=json)
    if image is not None:
        from broadloom.pipeline.overlay_study import plot as plots

        plots.diameters(rows, degree, image)
    return SUCCESS


@study.command()
@_reports_errors("failures")
def failures(
    fraction: Annotated[
        str,
        typer.Option("--fraction", metavar="F|F,…|F..F", help="Fraction of peers that fail; a range has steps of 0.1."),
    ] = "0.1..0.9",
    peers: PeersOption = "10000",
    degree: DegreeOption = 4,
    seeds: SeedsOption = "1..20",
    strategy: StrategyOption = "uniform-edge",
    json: JsonOption = False,
    plot: PlotOption = None,
    master: MasterOption = "",
    no_spark: NoSparkOption = False,
) -> int:
    """Measure connectivity after a fraction of peers fails, before repair.

    This is the state that repair starts from. To see how repair ends, use `broadloom sim` and `broadloom chaos`.

    Examples:

    - `broadloom study failures --fraction 0.1..0.9 --peers 100000`
    - `broadloom study failures --fraction 0.2 --peers 200 --seeds 1..1000`
    - `broadloom study failures --fraction 0.6,0.65,0.7 --peers 1000000 --seeds 1..4 --plot failures.svg`
    """
    from broadloom.pipeline.overlay_study import parameters, report, run

    fractions, chosen = parameters.parse_fractions(fraction), parameters.parse_strategy(strategy)
    sizes, numbers = parameters.parse_sizes(peers), parameters.parse_seeds(seeds)
    image = parameters.check_image_path(plot)
    about = {"study": "failures", "degree": parameters.check_degree(degree), "strategy": strategy}
    rows = _run(
        lambda executor: run.failures(executor, fractions, sizes, degree, numbers, chosen), about, master, no_spark
    )
    report.failures(about, rows, json=json)
    if image is not None:
        from broadloom.pipeline.overlay_study import plot as plots

        plots.failures(rows, degree, image)
    return SUCCESS


@study.command()
@_reports_errors("join-strategies")
def join_strategies(
    strategies: Annotated[
        str, typer.Option(metavar="NAME,…", help="Strategies, as --strategy of `broadloom study diameter`.")
    ] = "uniform-edge,random-walk,broadloom,least-clustered-4,farthest-2,farthest-4,farthest-8,random-regular",
    peers: PeersOption = "200,1000",
    degree: DegreeOption = 4,
    seeds: SeedsOption = "1..20",
    json: JsonOption = False,
    plot: PlotOption = None,
    master: MasterOption = "",
    no_spark: NoSparkOption = False,
) -> int:
    """Compare ways for a joining peer to choose its edges.

    Diameter and mean distance are exact. Vertex connectivity is measured up to 2,000 peers.

    Examples:

    - `broadloom study join-strategies --peers 200,1000`
    - `broadloom study join-strategies --strategies uniform-edge,farthest-2,farthest-16 --peers 5000 --seeds 1..5`
    - `broadloom study join-strategies --strategies broadloom,random-regular --peers 100 --seeds 1..500 --json`
    """
    from broadloom.pipeline.overlay_study import parameters, report, run

    chosen = [parameters.parse_strategy(each) for each in strategies.split(",")]
    sizes, numbers = parameters.parse_sizes(peers), parameters.parse_seeds(seeds)
    image = parameters.check_image_path(plot)
    about = {"study": "join-strategies", "degree": parameters.check_degree(degree)}
    parameters.check_exact_sizes(sizes, chosen)
    rows = _run(lambda executor: run.join_strategies(executor, chosen, sizes, degree, numbers), about, master, no_spark)
    report.join_strategies(about, rows, json=json)
    if image is not None:
        from broadloom.pipeline.overlay_study import plot as plots

        plots.join_strategies(rows, degree, image)
    return SUCCESS


def _run(measure: "Callable[[Executor], list[Row]]", about: dict[str, Any], master: str, no_spark: bool) -> "list[Row]":
    """Measure, and add the elapsed time to `about`."""
    from broadloom.pipeline.overlay_study.run import executor

    if master and no_spark:
        raise UsageError("--master and --no-spark exclude each other")
    began = time.perf_counter()
    with ProgressBar("overlays") as progress, executor(progress, master=master, no_spark=no_spark) as where:
        rows = measure(where)
    about["seconds"] = round(time.perf_counter() - began, 1)
    return rows
