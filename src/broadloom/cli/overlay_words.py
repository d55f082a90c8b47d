"""The words and help of `broadloom study`: a part of `cli.py`, with no logic either."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from broadloom.cli.options import JsonOption

study = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Study fabrics of up to ten million peers: how wide, how robust, how best grown.

    Many fabrics are grown and searched at once, as tasks of Spark on this machine or a cluster. No peers run: for that
    there are `broadloom sim` and `broadloom trial`. Needs the extra: `pip install 'broadloom[pipeline]'`.

    Examples:

    - `broadloom study diameter --peers 100,1000,10000`
    - `broadloom study kill --share 0.1..0.9 --peers 100000`
    - `broadloom study pinning --peers 200,1000`
    """,
)

DegreeOption = Annotated[int, typer.Option(help="Links of each peer.")]
PlotOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Draw it too, to a .svg or .png file.", show_default=False)
]
MasterOption = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="Run on this Spark cluster, as spark://host:7077; else on all cores of this machine.",
        show_default=False,
    ),
]
NoSparkOption = Annotated[
    bool, typer.Option("--no-spark", help="In plain processes of this machine: starts sooner, same answers.")
]
WayOption = Annotated[
    str,
    typer.Option(
        metavar="WAY",
        help="How newcomers find their edges: `plain` (any edge), `walk`, `broadloom` (walks, and dense spots refused),"
        " `sparse-k`, `far-k` (best of k), `random` (not grown at all).",
    ),
]


@study.command()
def diameter(
    peers: Annotated[str, typer.Option(metavar="N,N,…", help="Sizes of fabrics.")] = "100,1000,10000,100000,1000000",
    degree: DegreeOption = 4,
    seeds: Annotated[
        str,
        typer.Option(
            metavar="N|N..N",
            help="Which fabrics of each size; unless told, 20 up to 10,000 peers, 4 up to 1,000,000, else 2.",
            show_default=False,
        ),
    ] = "",
    way: WayOption = "plain",
    exact_max: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Search from every peer up to this size. A million peers take an hour or so."
        ),
    ] = 100_000,
    sweeps: Annotated[
        int, typer.Option(min=1, metavar="N", help="In larger ones, search from so many of the most outlying peers.")
    ] = 512,
    distributed: Annotated[
        bool,
        typer.Option(
            "--distributed",
            help="Spread each fabric over many tasks, which search it together: for fabrics larger than a task's "
            "memory, and done unasked above 50,000,000 peers.",
        ),
    ] = False,
    json: JsonOption = False,
    plot: PlotOption = None,
    master: MasterOption = "",
    no_spark: NoSparkOption = False,
) -> None:
    """How wide fabrics are, beside the bounds of the paper.

    Exact where every peer is searched from; in larger fabrics it is the least that it can be, and the table says so.
    `expected` is calculated, from how an average search goes.

    Examples:

    - `broadloom study diameter --peers 100,1000,10000`
    - `broadloom study diameter --peers 200 --seeds 1..1000 --no-spark`
    - `broadloom study diameter --peers 1000000,10000000 --plot diameter.svg`
    - `broadloom study diameter --peers 10000000 --seeds 1 --distributed`
    - `broadloom study diameter --peers 1000 --json | jq '.rows[0].diameter_median'`
    """

    def work() -> int:
        from broadloom.pipeline.overlay_study import command

        return command.diameter(
            peers=peers,
            degree=degree,
            seeds=seeds,
            strategy=way,
            exact_max=exact_max,
            bfs_sources=sweeps,
            distributed=distributed,
            json=json,
            plot=plot,
            master=master or None,
            no_spark=no_spark,
        )

    raise typer.Exit(_run_reporting_errors("study diameter", work))


@study.command()
def kill(
    share: Annotated[
        str, typer.Option(metavar="S|S,S|S..S", help="Which shares of the peers die at once; a range goes by tenths.")
    ] = "0.1..0.9",
    peers: Annotated[str, typer.Option(metavar="N,N,…", help="Sizes of fabrics.")] = "10000",
    degree: DegreeOption = 4,
    seeds: Annotated[str, typer.Option(metavar="N|N..N", help="Which fabrics, and which victims.")] = "1..20",
    way: WayOption = "plain",
    json: JsonOption = False,
    plot: PlotOption = None,
    master: MasterOption = "",
    no_spark: NoSparkOption = False,
) -> None:
    """What hangs together after a share of the peers died at once, before repair, beside theory.

    That is what repair starts from. How it ends is for `broadloom sim kill` and `broadloom trial kill`.

    Examples:

    - `broadloom study kill --share 0.1..0.9 --peers 100000`
    - `broadloom study kill --share 0.2 --peers 200 --seeds 1..1000`
    - `broadloom study kill --share 0.6,0.65,0.7 --peers 1000000 --seeds 1..4 --plot kill.svg`
    """

    def work() -> int:
        from broadloom.pipeline.overlay_study import command

        return command.failures(
            fraction=share,
            peers=peers,
            degree=degree,
            seeds=seeds,
            strategy=way,
            json=json,
            plot=plot,
            master=master or None,
            no_spark=no_spark,
        )

    raise typer.Exit(_run_reporting_errors("study kill", work))


@study.command()
def pinning(
    ways: Annotated[
        str, typer.Option(metavar="WAY,WAY,…", help="As --way of `broadloom study diameter`.")
    ] = "plain,walk,broadloom,sparse-4,far-2,far-4,far-8,random",
    peers: Annotated[str, typer.Option(metavar="N,N,…", help="Sizes of fabrics.")] = "200,1000",
    degree: DegreeOption = 4,
    seeds: Annotated[str, typer.Option(metavar="N|N..N", help="Which fabrics of each.")] = "1..20",
    json: JsonOption = False,
    plot: PlotOption = None,
    master: MasterOption = "",
    no_spark: NoSparkOption = False,
) -> None:
    """Ways for a newcomer to choose its edges, plain against best of k: what they do for the fabric.

    Diameter and mean distance are exact. Connectivity (how many peers must die to tear it) is looked for up to 2,000
    peers.

    Examples:

    - `broadloom study pinning --peers 200,1000`
    - `broadloom study pinning --ways plain,far-2,far-4,far-16 --peers 5000 --seeds 1..5`
    - `broadloom study pinning --ways broadloom,random --peers 100 --seeds 1..500 --json`
    """

    def work() -> int:
        from broadloom.pipeline.overlay_study import command

        return command.join_strategies(
            strategies=ways,
            peers=peers,
            degree=degree,
            seeds=seeds,
            json=json,
            plot=plot,
            master=master or None,
            no_spark=no_spark,
        )

    raise typer.Exit(_run_reporting_errors("study pinning", work))


def _run_reporting_errors(command: str, work: Callable[[], int]) -> int:
    from broadloom.cli.exit_codes import UsageError
    from broadloom.cli.runner import run_reporting_errors

    def act() -> int:
        try:
            from broadloom.pipeline.java import JavaNotFoundError
            from broadloom.pipeline.overlay_study.words import StudyUsageError
            from broadloom.pipeline.spark_session import SparkUnavailableError
        except ModuleNotFoundError as missing:
            raise UsageError(
                f"{missing.name} is not installed; it comes with: pip install 'broadloom[pipeline]'"
            ) from None
        try:
            return work()
        except ModuleNotFoundError as missing:
            raise UsageError(
                f"{missing.name} is not installed; it comes with: pip install 'broadloom[pipeline]'"
            ) from None
        except (StudyUsageError, JavaNotFoundError, SparkUnavailableError) as problem:
            raise UsageError(str(problem)) from None

    return run_reporting_errors(command, act)
