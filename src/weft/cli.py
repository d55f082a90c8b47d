"""The command `weft`: arguments in, results out, no logic of its own."""

from typing import Annotated

import typer

from weft import __version__

app = typer.Typer(
    no_args_is_help=True,
    help="Shared channels without a server: every message, once, in order, to everyone who is there.",
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"weft {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version and end.")
    ] = False,
) -> None:
    pass


@app.command()
def sim(
    scenario: Annotated[str, typer.Argument(help="Name of a scenario, or a TOML file. `list` shows what there is.")],
    peers: Annotated[str, typer.Option(help="How many peers; several sizes as 100,200,1000.")] = "",
    seeds: Annotated[str, typer.Option(help="Which histories: 7, or 1..20.")] = "1..3",
    jobs: Annotated[int, typer.Option(min=1, help="Histories played at the same time.")] = 2,
    degree: Annotated[int, typer.Option(help="Links per peer, if not as the scenario says.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per history, for programs.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Tell everything that happens (one seed).")] = False,
    draw: Annotated[str, typer.Option(help="Draw the fabric at its end to a .svg or .png file (one seed).")] = "",
) -> None:
    """Play a scenario in the simulator and check every promise.

    The same code that runs on sockets runs here on a virtual network and clock; a seed decides everything that
    happens. Ends with 1 if a promise was broken, and says how to replay that history.

    Examples: `weft sim list`, `weft sim kill --peers 200 --seeds 1..100`, `weft sim grow --peers 100,1000 --draw g.svg`
    """
    from weft.sim import command

    raise typer.Exit(
        command.sim(scenario, peers=peers, seeds=seeds, jobs=jobs, degree=degree, json=json, trace=trace, draw=draw)
    )


def main() -> None:
    """Entry point of the command."""
    app()
