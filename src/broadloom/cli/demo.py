"""`broadloom demo`: a local cluster, with live pages or without a browser."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from broadloom.cli.exit_codes import SUCCESS, VERDICT_CODES, require_extra
from broadloom.cli.options import option
from broadloom.cli.output import print_json
from broadloom.cli.runner import StopSignal, command, hint

if TYPE_CHECKING:
    from broadloom.apps.delivery.demo_news import NewsDemo
    from broadloom.pipeline.sidecar_client import SidecarClient
    from broadloom.testing.cluster.cluster import LocalCluster
    from broadloom.testing.cluster.demo_run import DemoSummary


def _rate(help: str) -> Any:
    return option(help, "N", rich_help_panel="Traffic, in messages per second")


@command("demo")
async def demo(
    stop: StopSignal,
    peers: Annotated[int, option("Number of peers; up to 24 run in a process of their own.", "N")] = 24,
    headless: Annotated[bool, option("Run once without a browser, audit every delivery and exit.")] = False,
    duration: Annotated[float, option("Traffic duration, with --headless.", "SECONDS")] = 60.0,
    kill: Annotated[int | None, option("Peers to kill, with --headless. Default: one in five.", "N")] = None,
    chat: Annotated[float | None, _rate("Chat messages in groups.")] = None,
    ticks: Annotated[float | None, _rate("Market prices.")] = None,
    identifications: Annotated[float | None, _rate("Identifications of subscribers.")] = None,
    ads: Annotated[float | None, _rate("Ads.")] = None,
    port: Annotated[int, option("Port of the pages.", min=0, max=65535, show_default="8470")] = 0,
    browser: Annotated[bool, option("Open the pages in a browser.", None, "--browser/--no-browser")] = True,
    spark: Annotated[
        bool,
        option("Build tables with Spark. Without it the cluster audits itself.", None, "--spark/--no-spark"),
    ] = True,
    dir: Annotated[Path | None, option("Keep tapes and tables here. Default: delete them at the end.", "DIR")] = None,
    json: Annotated[bool, option("Print the summary of --headless as JSON.", None, "--json", "-j")] = False,
) -> int:
    """Run a local cluster with live pages: kill peers and watch the fabric repair itself.

    Starts real peers that exchange chat messages, prices, identifications and ads, records what they see, builds
    tables with Spark while the tapes grow, and serves the pages on this machine. A small news service runs beside
    them: sign in on the page Topics, and see what it costs. Ctrl-C stops everything. The tables follow half a minute
    later, when Spark has started.

    With --headless there are no pages: the cluster grows, sends, loses peers and repairs itself while other peers
    join and leave. At the end, Spark audits it and bills the readers of the news service. Exit status 0 only if the
    audit found every delivery. Linux only.

    Examples:

    - `broadloom demo`
    - `broadloom demo --peers 100 --ticks 20`
    - `broadloom demo --headless`
    - `broadloom demo --headless --peers 200 --kill 40 --dir results`
    """
    if not headless:
        require_extra("web")
    if spark:
        require_extra("pipeline")
    if dir is not None:
        require_extra("record")
    from broadloom.testing.cluster.demo_run import DemoConfig, run_demo

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
    with config.validated().working_directory() as directory:
        if headless:
            report = (lambda _text: None) if json else hint
            if spark:
                from broadloom.apps.delivery.demo_news import NewsDemo
                from broadloom.pipeline.sidecar_client import require_spark

                require_spark()
                async with NewsDemo(directory / "news") as news:
                    summary = await run_demo(config, directory, report, partial(_audit_with_bill, news))
                if news.problem:
                    report(f"the news service did not run: {news.problem}")
            else:
                summary = await run_demo(config, directory, report)
            _print_summary(summary, json=json)
            return VERDICT_CODES[summary.verdict]
        from broadloom.web.demo import serve_demo

        stop.interrupt_is_success = True
        await serve_demo(config, directory)
        return SUCCESS


@asynccontextmanager
async def _audit_with_bill(
    news: "NewsDemo", cluster: "LocalCluster", directory: Path
) -> "AsyncIterator[_AuditWithBill]":
    from broadloom.pipeline.sidecar_client import start_tape_audit

    async with start_tape_audit(cluster, directory) as client:
        yield _AuditWithBill(client, news)


class _AuditWithBill:
    """The audit of the cluster, and the bill of the news service, computed by one Spark."""

    def __init__(self, client: "SidecarClient", news: "NewsDemo") -> None:
        self._client = client
        self._news = news

    @property
    def ready_s(self) -> float | None:
        return self._client.ready_s

    async def audit(self) -> dict[str, Any]:
        await self._news.stop()
        result = await self._client.audit()
        return result | {"bill": await self._news.bill(self._client)}


def _print_summary(summary: "DemoSummary", *, json: bool) -> None:
    if json:
        print_json(summary.as_dict())
        return
    lines = summary.rows()
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        print(f"{name:<{width}}  {text}")
    for problem in [*summary.problems, *summary.waits_for]:
        print(problem, file=sys.stderr)
    print(f"verdict: {summary.verdict} (audited by {summary.audited_by})", flush=True)
