"""`broadloom demo`: a local cluster, with live pages or without a browser."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broadloom.cli.exit_codes import FAILURE, SUCCESS, UsageError, require_extra
from broadloom.cli.options import option
from broadloom.cli.output import print_json
from broadloom.cli.runner import StopSignal, hint, run

if TYPE_CHECKING:
    from broadloom.testing.cluster.demo_run import DemoSummary


def _rate(name: str, help: str) -> Any:
    return option(name, metavar="N", help=help, rich_help_panel="Traffic, in messages per second")


def demo(
    peers: Annotated[
        int, typer.Option(metavar="N", help="Number of peers; up to 24 run in a process of their own.")
    ] = 24,
    headless: Annotated[
        bool, typer.Option("--headless", help="Run once without a browser, audit every delivery and exit.")
    ] = False,
    duration: Annotated[
        float, typer.Option("--duration", metavar="SECONDS", help="Traffic duration, with --headless.")
    ] = 60.0,
    kill: Annotated[
        int | None, option("--kill", metavar="N", help="Peers to kill, with --headless. Default: one in five.")
    ] = None,
    chat: Annotated[float | None, _rate("--chat", "Chat messages in groups.")] = None,
    ticks: Annotated[float | None, _rate("--ticks", "Market prices.")] = None,
    identifications: Annotated[float | None, _rate("--identifications", "Identifications of subscribers.")] = None,
    ads: Annotated[float | None, _rate("--ads", "Ads.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the pages.", show_default="8470")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the pages in a browser.")] = True,
    spark: Annotated[
        bool,
        typer.Option("--spark/--no-spark", help="Build tables with Spark. Without it the cluster audits itself."),
    ] = True,
    dir: Annotated[
        Path | None, option("--dir", metavar="DIR", help="Keep tapes and tables here. Default: delete them at the end.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", "-j", help="Print the summary of --headless as JSON.")] = False,
) -> int:
    """Run a local cluster with live pages: kill peers and watch the fabric repair itself.

    Starts real peers that exchange chat messages, prices, identifications and ads, records what they see, builds
    tables with Spark while the tapes grow, and serves the pages on this machine. Ctrl-C stops everything. The tables
    follow half a minute later, when Spark has started.

    With --headless there are no pages: the cluster grows, sends, loses peers and repairs itself while other peers
    join and leave. Exit status 0 only if the audit found every delivery. Linux only.

    Examples:

    - `broadloom demo`
    - `broadloom demo --peers 100 --ticks 20`
    - `broadloom demo --headless`
    - `broadloom demo --headless --peers 200 --kill 40 --dir results`
    """

    async def work(stop: StopSignal) -> int:
        if not headless:
            require_extra("web")
        if spark:
            require_extra("pipeline")
        from broadloom.testing.cluster.demo_run import DemoConfig, run_demo
        from broadloom.testing.errors import ConfigError

        config = DemoConfig(
            peers=peers,
            chat_per_s=chat,
            ticks_per_s=ticks,
            identifications_per_s=identifications,
            ads_per_s=ads,
            port=port,
            browser=browser,
            spark=spark,
            directory=dir,
            duration_s=duration,
            kill=kill,
        )
        try:
            with config.validated().working_directory() as directory:
                if headless:
                    from broadloom.pipeline.sidecar_client import require_spark, start_tape_audit

                    if spark:
                        require_spark()
                    start_audit = start_tape_audit if spark else None
                    summary = await run_demo(config, directory, (lambda _text: None) if json else hint, start_audit)
                    _print_summary(summary, json=json)
                    return SUCCESS if summary.passed else FAILURE
                from broadloom.web.demo import serve_demo

                stop.interrupt_is_success = True
                await serve_demo(config, directory)
                return SUCCESS
        except ConfigError as problem:
            raise UsageError(str(problem)) from None

    return run("demo", work)


def _print_summary(summary: "DemoSummary", *, json: bool) -> None:
    if json:
        print_json(summary.as_dict())
        return
    lines = summary.rows()
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        print(f"{name:<{width}}  {text}")
    for problem in summary.problems:
        print(problem, file=sys.stderr)
    print(f"all guarantees held (audited by {summary.audited_by})" if summary.passed else "FAILED", flush=True)
