"""The words and help of `broadloom demo`: a part of `cli.py`, with no logic either."""

from pathlib import Path
from typing import Annotated

import typer

from broadloom.cli.options import JsonOption

_RATES = "What the peers say, messages a second"


def _rate(help: str) -> object:
    return typer.Option(metavar="PER_SECOND", help=help, rich_help_panel=_RATES, show_default=False)


def demo(
    peers: Annotated[int, typer.Option(help="How many peers; each is a process of its own up to 24.")] = 24,
    once: Annotated[
        bool, typer.Option("--once", help="No page: play it through once, audit every delivery, say what was found.")
    ] = False,
    seconds: Annotated[float, typer.Option(help="With --once: how long they talk.")] = 60.0,
    kill: Annotated[
        int | None, typer.Option(help="With --once: how many are killed at once; else one of five.", show_default=False)
    ] = None,
    chat: Annotated[float | None, _rate("Lines in the conversations of groups.")] = None,
    ticks: Annotated[float | None, _rate("Prices, as of a market.")] = None,
    idents: Annotated[float | None, _rate("Identifications of subscribers.")] = None,
    adverts: Annotated[float | None, _rate("Adverts.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the page.", show_default="8470")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Without Spark there are no tables; --once audits by itself.")
    ] = True,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep tapes and tables here; else they go at the end.", show_default=False),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show it all: a fabric of real peers on this machine, what they say, and a page to watch and disturb it.

    Starts peers, which talk to each other (chat threads, ticks, identifications, adverts), records what they see, lets
    Spark make tables of it while it grows, and serves a page on this machine: kill peers with a click, and see the
    fabric heal. Ctrl-C ends everything. Spark's part comes when it is ready, half a minute later.

    With --once there is no page: the fabric grows, talks, loses peers, repairs itself; others come and leave in good
    order. Ends with 0 only if the audit found every delivery. With --no-spark the lab's own check takes the place of
    the audit. Needs Linux.

    Examples:

    - `broadloom demo`
    - `broadloom demo --peers 100 --ticks 20`
    - `broadloom demo --once`
    - `broadloom demo --once --peers 200 --kill 40 --folder seen`
    """
    from broadloom.cli import demo as command
    from broadloom.testing.cluster.demo_run import DemoConfig

    options = DemoConfig(
        peers=peers,
        chat_per_s=chat,
        ticks_per_s=ticks,
        identifications_per_s=idents,
        ads_per_s=adverts,
        port=port,
        browser=browser,
        spark=spark,
        directory=folder,
        duration_s=seconds,
        kill=kill,
    )
    raise typer.Exit(command.demo(options, is_headless=once, json=json))
