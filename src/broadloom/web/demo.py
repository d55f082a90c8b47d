"""`broadloom demo`: the lab and the pipeline with pages over them, until Ctrl-C."""

import asyncio
import os
import sys
import time
import webbrowser
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path

from broadloom.pipeline.sidecar_client import SidecarClient, SidecarError, require_spark
from broadloom.testing.cluster.cluster import LocalCluster
from broadloom.testing.cluster.demo_options import DemoConfig, DemoConfigError

POLL_S = 0.5


async def serve_demo(config: DemoConfig, directory: Path) -> None:
    """Until it is cancelled."""
    from broadloom.web.server import PORT, ServeError, serve

    began = time.monotonic()
    if find_spec("nicegui") is None:
        raise DemoConfigError(
            "nicegui is not installed: pip install 'broadloom[web]', or run it without pages: --headless"
        )
    if config.spark:
        require_spark()
    tapes = directory / "tapes" if config.spark or config.directory is not None else None
    results = directory / "results"
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(LocalCluster.start(config.cluster_config(tapes)))
        sidecars: list[SidecarClient] = []
        is_ready = asyncio.Event()

        def ready(url: str) -> None:
            print(f"Broadloom is here: {url}", flush=True)
            told = f"the first page after {time.monotonic() - began:.1f} s"
            print(f"  {config.peers} peers are coming; {told}. Ctrl-C ends it all.", flush=True)
            if config.directory is not None:
                print(f"  tapes and tables: {directory}", flush=True)
            is_ready.set()
            if config.browser and has_browser():
                # In a thread: some browsers are waited for.
                asyncio.get_running_loop().run_in_executor(None, webbrowser.open, url)

        def progress() -> str:
            if not config.spark:
                return "Spark was left out (--no-spark): no tables"
            return sidecars[0].progress() if sidecars else "Spark is starting"

        async def start_sidecar() -> None:
            """Spark takes a core for a while, so the page comes first."""
            await is_ready.wait()
            if config.spark and tapes is not None:
                analyst = SidecarClient(cluster.channel, tapes, results, directory / "spark.log", follow=True)
                sidecars.append(await stack.enter_async_context(analyst))
                await _print_progress(analyst)

        sidecar_task = asyncio.get_running_loop().create_task(start_sidecar())
        try:
            try:
                await serve(
                    cluster=cluster, results_dir=results, port=config.port or PORT, on_ready=ready, progress=progress
                )
            except ServeError:
                if config.port:
                    raise
                # The usual port is taken, and nobody asked for it: any other will do.
                await serve(cluster=cluster, results_dir=results, port=0, on_ready=ready, progress=progress)
        finally:
            sidecar_task.cancel()


async def _print_progress(sidecar: SidecarClient) -> None:
    """At the terminal, how far Spark is."""
    try:
        await sidecar.wait_until_ready()
    except SidecarError as problem:
        print(f"  without tables: {problem}", flush=True)
        return
    print(f"  Spark is there, after {sidecar.ready_s:.0f} s", flush=True)
    while sidecar.first_tables_s is None and sidecar.error is None:  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)
    if sidecar.first_tables_s is not None:
        print(f"  first tables after {sidecar.first_tables_s:.0f} s", flush=True)
    while sidecar.audit_summary is None and sidecar.error is None:  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)
    if sidecar.audit_summary is not None:
        audit = sidecar.audit_summary
        found = "nothing is missing" if audit["clean"] else "NOT clean, see the page"
        print(f"  first audit: {audit['owed']:,} deliveries owed, {found}", flush=True)


def has_browser() -> bool:
    """Whether a person would see it: not over a plain connection to another machine."""
    if sys.platform not in ("darwin", "win32") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True
