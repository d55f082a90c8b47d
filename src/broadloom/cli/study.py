"""`broadloom study`: overlays of up to millions of peers, grown and searched without running peers."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from broadloom.cli.exit_codes import UsageError
from broadloom.cli.options import JsonOption, MasterOption, SeedsOption, command_group, option
from broadloom.cli.output import ProgressBar, print_json
from broadloom.cli.runner import command
from broadloom.cli.study_output import print_study

if TYPE_CHECKING:
    from broadloom.pipeline.overlay_study.run import Executor
    from broadloom.pipeline.overlay_study.summary import Row

study = command_group(
    help="""Study overlays of up to ten million peers: diameter, robustness, growth.

    Many overlays are grown and searched in parallel, as Spark tasks on this machine or on a cluster. No peers run: for
    that, use `broadloom sim` and `broadloom chaos`. Needs the extra `pipeline`.

    Examples:

    - `broadloom study diameter --peers 100,1000,10000`
    - `broadloom study failures --fraction 0.1..0.9 --peers 100000`
    - `broadloom study join-strategies --peers 200,1000`
    """,
)

PeersOption = Annotated[str, option("Number of peers; several as 100,1000.", "N,…")]
StrategyOption = Annotated[
    str,
    option(
        "How joining peers choose their edges: `uniform-edge`, `random-walk`, `broadloom` (random walks that avoid "
        "clustering), `least-clustered-K` or `farthest-K` (best of K), `random-regular` (not grown).",
        "NAME",
    ),
]


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """What all studies have in common."""

    degree: Annotated[int, option("Links per peer.", "N")] = 4
    json: JsonOption = False
    plot: Annotated[Path | None, option("Write a chart, .svg or .png.", "FILE")] = None
    master: MasterOption = ""
    no_spark: Annotated[bool, option("Use local processes instead of Spark: starts faster, same results.")] = False


@command("study diameter", study, extra="pipeline")
def diameter(
    options: StudyOptions,
    peers: PeersOption = "100,1000,10000,100000,1000000",
    seeds: Annotated[
        str,
        option(
            "Seed or range, as 7 or 1..20. Default: 20 seeds up to 10,000 peers, 4 up to 1,000,000, else 2.", "N|N..N"
        ),
    ] = "",
    strategy: StrategyOption = "uniform-edge",
    exact_max: Annotated[
        int, option("Exact up to this size. A million peers take about an hour.", "N", min=0)
    ] = 100_000,
    bfs_sources: Annotated[int, option("Start points of the search in larger overlays.", "N", min=1)] = 512,
    distributed: Annotated[
        bool,
        option(
            "Distribute one overlay over many tasks, for overlays larger than the memory of a task. Always on above "
            "50,000,000 peers."
        ),
    ] = False,
) -> None:
    """Measure the diameter of grown overlays and compare it with theory.

    The diameter is exact up to --exact-max peers; for larger overlays it is a lower bound, and marked as such.

    Examples:

    - `broadloom study diameter --peers 100,1000,10000`
    - `broadloom study diameter --peers 200 --seeds 1..1000 --no-spark`
    - `broadloom study diameter --peers 1000000,10000000 --plot diameter.svg`
    - `broadloom study diameter --peers 10000000 --seeds 1 --distributed`
    - `broadloom study diameter --peers 1000 --json | jq '.rows[0].diameter_median'`
    """
    from broadloom.pipeline.overlay_study import parameters, run
    from broadloom.pipeline.overlay_study.distributed_bfs import TASK_PEERS_MAX

    sizes, chosen = parameters.parse_sizes(peers), parameters.parse_strategy(strategy)
    chosen_seeds = parameters.parse_seeds(seeds) if seeds else []
    if options.no_spark and (distributed or max(sizes) > TASK_PEERS_MAX):
        raise UsageError(f"--distributed, and more than {TASK_PEERS_MAX:,} peers, require Spark")
    limits: dict[str, Any] = {"exact_max": exact_max, "bfs_sources": bfs_sources, "distributed": distributed}
    _run(
        lambda executor: run.diameter(executor, sizes, options.degree, chosen_seeds, chosen, **limits),
        options,
        study="diameter",
        strategy=strategy,
    )


@command("study failures", study, extra="pipeline")
def failures(
    options: StudyOptions,
    fraction: Annotated[
        str,
        option("Fraction of peers that fail; a range has steps of 0.1.", "F|F,…|F..F"),
    ] = "0.1..0.9",
    peers: PeersOption = "10000",
    seeds: SeedsOption = "1..20",
    strategy: StrategyOption = "uniform-edge",
) -> None:
    """Measure connectivity after a fraction of peers fails, before repair.

    This is the state that repair starts from. To see how repair ends, use `broadloom sim` and `broadloom chaos`.

    Examples:

    - `broadloom study failures --fraction 0.1..0.9 --peers 100000`
    - `broadloom study failures --fraction 0.2 --peers 200 --seeds 1..1000`
    - `broadloom study failures --fraction 0.6,0.65,0.7 --peers 1000000 --seeds 1..4 --plot failures.svg`
    """
    from broadloom.pipeline.overlay_study import parameters, run

    fractions, chosen = parameters.parse_fractions(fraction), parameters.parse_strategy(strategy)
    sizes, numbers = parameters.parse_sizes(peers), parameters.parse_seeds(seeds)
    _run(
        lambda executor: run.failures(executor, fractions, sizes, options.degree, numbers, chosen),
        options,
        study="failures",
        strategy=strategy,
    )


@command("study join-strategies", study, extra="pipeline")
def join_strategies(
    options: StudyOptions,
    strategies: Annotated[
        str, option("Strategies, as --strategy of `broadloom study diameter`.", "NAME,…")
    ] = "uniform-edge,random-walk,broadloom,least-clustered-4,farthest-2,farthest-4,farthest-8,random-regular",
    peers: PeersOption = "200,1000",
    seeds: SeedsOption = "1..20",
) -> None:
    """Compare ways for a joining peer to choose its edges.

    Diameter and mean distance are exact. Vertex connectivity is measured up to 2,000 peers.

    Examples:

    - `broadloom study join-strategies --peers 200,1000`
    - `broadloom study join-strategies --strategies uniform-edge,farthest-2,farthest-16 --peers 5000 --seeds 1..5`
    - `broadloom study join-strategies --strategies broadloom,random-regular --peers 100 --seeds 1..500 --json`
    """
    from broadloom.pipeline.overlay_study import parameters, run

    chosen = [parameters.parse_strategy(each) for each in strategies.split(",")]
    sizes, numbers = parameters.parse_sizes(peers), parameters.parse_seeds(seeds)
    parameters.check_exact_sizes(sizes, chosen)
    _run(
        lambda executor: run.join_strategies(executor, chosen, sizes, options.degree, numbers),
        options,
        study="join-strategies",
    )


def _run(measure: "Callable[[Executor], list[Row]]", options: StudyOptions, *, study: str, **about: Any) -> None:
    """Check, measure, report and plot."""
    from broadloom.pipeline.overlay_study import parameters
    from broadloom.pipeline.overlay_study.run import executor

    parameters.check_degree(options.degree)
    parameters.check_image_path(options.plot)
    if options.master and options.no_spark:
        raise UsageError("--master and --no-spark exclude each other")
    began = time.perf_counter()
    with (
        ProgressBar("overlays") as progress,
        executor(progress, master=options.master, no_spark=options.no_spark) as where,
    ):
        rows = measure(where)
    facts = {"study": study, "degree": options.degree, **about, "seconds": round(time.perf_counter() - began, 1)}
    if options.json:
        print_json({**facts, "rows": rows})
    else:
        print_study(facts, rows)
    if options.plot is not None:
        from broadloom.pipeline.overlay_study.plot import PLOTS

        PLOTS[study](rows, options.degree, options.plot)
