"""The words and help of `broadloom pipeline …`: a part of `cli.py`, with no logic either."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from broadloom.cli.options import JsonOption

pipeline = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""From tapes to tables: what was delivered, how fast, to whom, and what is owed for it.

    Runs on Spark, on this machine or on a cluster. Needs the extra: `pip install 'broadloom[pipeline]'`.

    Examples:

    - `broadloom pipeline run --tapes tapes --out results`
    - `broadloom pipeline show audit_summary --out results`
    - `broadloom pipeline audit --tapes tapes`
    """,
)

TapesOption = Annotated[Path, typer.Option(metavar="DIR", help="Folder of tapes, as of `broadloom record --to`.")]
OutOption = Annotated[Path, typer.Option(metavar="DIR", help="Folder of results.")]
MasterOption = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="Run on this Spark cluster, as spark://host:7077; else on all cores of this machine.",
        show_default=False,
    ),
]
MemoryOption = Annotated[
    str, typer.Option(metavar="SIZE", help="Memory of Spark on this machine, as 6g.", show_default="4g")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of a table, as settle_s=30; may be repeated. `broadloom pipeline tables --json` lists them.",
        show_default=False,
    ),
]


@pipeline.command()
def run(
    tapes: TapesOption,
    out: OutOption,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="TABLE", help="Only this table, and what it needs; may be repeated.", show_default=False
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on until Ctrl-C: live tables of what is added, in DIR/live.")
    ] = False,
    settings: SetOption = None,
    master: MasterOption = "",
    memory: MemoryOption = "",
    json: JsonOption = False,
) -> None:
    """Build tables from tapes, as Parquet.

    What has not changed since the last run into the same folder is not built again. Files that cannot be used are set
    aside, with the reason, in the table quarantine.

    With `--follow` rates, latency, sessions and fabric are kept up to date while tapes grow, for a dashboard. It can be
    stopped and started again at any time: nothing is lost and nothing counted twice.

    Examples:

    - `broadloom pipeline run --tapes tapes --out results`
    - `broadloom pipeline run --tapes tapes --out results --only latency`
    - `broadloom pipeline run --tapes tapes --out results --follow`
    - `broadloom pipeline run --tapes tapes --out results --master spark://10.0.0.5:7077`
    """
    from broadloom.pipeline import command

    _run_and_exit(
        "run",
        lambda: command.run(
            tapes, out, only=only or [], follow=follow, settings=settings or [], master=master, memory=memory, json=json
        ),
    )


@pipeline.command()
def show(
    table: Annotated[str, typer.Argument(help="Its name; `broadloom pipeline tables` lists them.")],
    out: OutOption,
    limit: Annotated[int, typer.Option(min=0, help="At most so many rows; 0 for all.")] = 20,
    where: Annotated[str, typer.Option(metavar="SQL", help="Only rows for which this holds.", show_default=False)] = "",
    columns: Annotated[str, typer.Option(metavar="NAME,NAME", help="Only these columns.", show_default=False)] = "",
    json: Annotated[bool, typer.Option("--json", help="One JSON object a row, for programs.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="As CSV, for spreadsheets.")] = False,
) -> None:
    """Show a table of the results. Starts no Spark.

    Examples:

    - `broadloom pipeline show audit_summary --out results`
    - `broadloom pipeline show audit --out results --where "finding = 'missing'"`
    - `broadloom pipeline show messages --out results --limit 0 --csv`
    """
    from broadloom.pipeline import command

    _run_and_exit(
        "show",
        lambda: command.show(table, out, limit=limit or None, where=where, columns=columns, json=json, csv=csv),
    )


@pipeline.command()
def plot(
    out: OutOption,
    to: Annotated[Path, typer.Option(metavar="FILE", help="The picture, .svg or .png.")] = Path("channel.svg"),
    channel: Annotated[
        str, typer.Option(metavar="DIGITS", help="Which channel, if there are several.", show_default=False)
    ] = "",
) -> None:
    """Draw what happened: peers, repairs, delays, links travelled. Starts no Spark.

    Examples:

    - `broadloom pipeline plot --out results`
    - `broadloom pipeline plot --out results --to week.png --channel 9bae618a73998c1e`
    """
    from broadloom.pipeline import command

    _run_and_exit("plot", lambda: command.plot(out, to, channel=channel))


@pipeline.command()
def tables(
    json: Annotated[bool, typer.Option("--json", help="With columns and settings, one object a table.")] = False,
) -> None:
    """List the tables, each with the question that it answers.

    Examples:

    - `broadloom pipeline tables`
    - `broadloom pipeline tables --json | jq .columns`
    """
    from broadloom.pipeline import command

    _run_and_exit("tables", lambda: command.tables(json=json))


@pipeline.command()
def audit(
    tapes: TapesOption,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the tables here.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=0, help="At most so many guilty rows.")] = 20,
    settings: SetOption = None,
    master: MasterOption = "",
    memory: MemoryOption = "",
    json: JsonOption = False,
) -> None:
    """Judge whether every message was delivered to every member, once, in order.

    Ends with 0 only if every promise held, with 1 and the guilty deliveries if not, with 2 for wrong use.

    Examples:

    - `broadloom pipeline audit --tapes tapes`
    - `broadloom pipeline audit --tapes tapes --out results --json | jq .clean`
    """
    from broadloom.pipeline import command

    _run_and_exit(
        "audit",
        lambda: command.audit(
            tapes, out, settings=settings or [], master=master, memory=memory, limit=limit, json=json
        ),
    )


def _run_and_exit(subcommand: str, act: Callable[[], int]) -> None:
    from broadloom.cli.runner import run_reporting_errors

    raise typer.Exit(run_reporting_errors(f"pipeline {subcommand}", lambda: _translate_errors(act)))


def _translate_errors(act: Callable[[], int]) -> int:
    """What is wrong with words, files or installed parts is told as such; a table that failed is a failure."""
    from broadloom.cli.exit_codes import CommandFailed, UsageError
    from broadloom.errors import BroadloomError

    try:
        return act()
    except ImportError as problem:
        raise UsageError(f"{problem}; it comes with: pip install 'broadloom[pipeline]'") from problem
    except BroadloomError as problem:
        if type(problem).__name__ in ("BuildError", "FollowError"):
            raise CommandFailed(str(problem)) from problem
        raise UsageError(str(problem)) from problem
