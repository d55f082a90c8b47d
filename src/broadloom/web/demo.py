"""`broadloom demo`: web pages over a local cluster and the pipeline, until Ctrl-C."""

import asyncio
import os
import sys
import time
import webbrowser
from contextlib import AsyncExitStack
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path

from broadloom.apps.delivery.demo_news import NewsDemo
from broadloom.extras import missing_package
from broadloom.pipeline.sidecar_client import SidecarClient, SidecarError, require_spark
from broadloom.testing.cluster.cluster import LocalCluster
from broadloom.testing.cluster.demo_run import DemoConfig
from broadloom.testing.errors import ConfigError

POLL_S = 0.5
BILLS_INTERVAL_S = 30.0
"""Pause between two builds of the bills."""


async def serve_demo(config: DemoConfig, directory: Path) -> None:
    """Serve until canceled."""
    from broadloom.web.delivery_site import DeliverySite
    from broadloom.web.server import PORT, ServeError, serve

    began = time.monotonic()
    if find_spec("nicegui") is None:
        raise ConfigError(f"{missing_package('nicegui')}; or run without pages: --headless")
    if config.spark:
        require_spark()
    tapes = directory / "tapes" if config.spark or config.directory is not None else None
    results = directory / "results"
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(LocalCluster.start(config.cluster_config(tapes)))
        sidecars: list[SidecarClient] = []
        billing: list[asyncio.Task[None]] = []
        news = await stack.enter_async_context(NewsDemo(directory / "news"))
        site = DeliverySite(news.name, tickets=news.tickets(), bills_dir=news.results)
        is_ready = asyncio.Event()

        def on_ready(url: str) -> None:
            print(f"Broadloom is ready: {url}", flush=True)
            print(f"  first page after {time.monotonic() - began:.1f} s; starting {config.peers} peers", flush=True)
            if config.directory is not None:
                print(f"  tapes and tables: {directory}", flush=True)
            print("  press Ctrl-C to stop", flush=True)
            is_ready.set()
            if config.browser and has_browser():
                # Some browsers block until they are closed.
                asyncio.get_running_loop().run_in_executor(None, webbrowser.open, url)

        def progress() -> str:
            if not config.spark:
                return "Spark is disabled (--no-spark): no tables"
            return sidecars[0].progress() if sidecars else "Spark is starting"

        async def start_sidecar() -> None:
            """Spark keeps a core busy while it starts, so the first page comes first."""
            await is_ready.wait()
            if config.spark and tapes is not None:
                client = SidecarClient(cluster.channel, tapes, results, directory / "spark.log", follow=True)
                sidecars.append(await stack.enter_async_context(client))
                billing.append(asyncio.get_running_loop().create_task(_bill(client, news)))
                await _print_progress(client)

        sidecar_task = asyncio.get_running_loop().create_task(start_sidecar())
        try:
            try:
                await serve(
                    cluster=cluster,
                    results_dir=results,
                    port=config.port or PORT,
                    on_ready=on_ready,
                    progress=progress,
                    delivery=site,
                )
            except ServeError:
                if config.port:
                    raise
                # The default port is taken.
                await serve(
                    cluster=cluster, results_dir=results, port=0, on_ready=on_ready, progress=progress, delivery=site
                )
        finally:
            for task in (sidecar_task, *billing):
                task.cancel()


async def _bill(sidecar: SidecarClient, news: NewsDemo) -> None:
    """Bills of the news service, after the first audit and then regularly."""
    while sidecar.audit_summary is None and sidecar.error is None:  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)
    is_first = True
    while sidecar.error is None:
        news.write_billing_file()
        try:
            bill = await news.bill(sidecar)
        except SidecarError as error:
            print(f"  no bills: {error}", flush=True)
            return
        if is_first and bill:
            total = sum(Decimal(row["amount"]) for row in bill)
            print(f"  first bills: {len(bill)}, {total} {bill[0]['currency']} so far", flush=True)
            is_first = False
        await asyncio.sleep(BILLS_INTERVAL_S)


async def _print_progress(sidecar: SidecarClient) -> None:
    try:
        await sidecar.wait_until_ready()
    except SidecarError as error:
        print(f"  no tables: {error}", flush=True)
        return
    print(f"  Spark started after {sidecar.ready_s:.0f} s", flush=True)
    while sidecar.first_tables_s is None and sidecar.error is None:  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)
    if sidecar.first_tables_s is not None:
        print(f"  first tables after {sidecar.first_tables_s:.0f} s", flush=True)
    while sidecar.audit_summary is None and sidecar.error is None:  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)
    if sidecar.audit_summary is not None:
        audit = sidecar.audit_summary
        waits_for = f": {audit['waits_for']}" if audit["waits_for"] else ""
        print(f"  first audit: {audit['due_count']:,} deliveries due, {audit['verdict']}{waits_for}", flush=True)


def has_browser() -> bool:
    """Whether a browser would open on the user's screen, not on a remote host without a display."""
    if sys.platform not in ("darwin", "win32") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True
