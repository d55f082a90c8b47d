"""`weft demo`: the lab and the pipeline with pages over them, until Ctrl-C."""

import asyncio
import os
import sys
import time
import webbrowser
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path

from weft.demo.analyst import Analyst, NoAnalysis, needs_spark
from weft.demo.options import Options, WrongUse
from weft.lab.lab import Lab

LOOK_S = 0.5


async def show(options: Options, place: Path) -> None:
    """Until it is cancelled."""
    from weft.web.serve import PORT, CannotServe, serve

    began = time.monotonic()
    if find_spec("nicegui") is None:
        raise WrongUse("nicegui is lacking: pip install 'weft[web]', or play it through without a page: --once")
    if options.spark:
        needs_spark()
    tapes = place / "tapes" if options.spark or options.folder is not None else None
    results = place / "results"
    async with AsyncExitStack() as stack:
        lab = await stack.enter_async_context(Lab.start(options.plan(tapes)))
        analysts: list[Analyst] = []
        is_ready = asyncio.Event()

        def ready(url: str) -> None:
            print(f"Weft is here: {url}", flush=True)
            told = f"the first page after {time.monotonic() - began:.1f} s"
            print(f"  {options.peers} peers are coming; {told}. Ctrl-C ends it all.", flush=True)
            if options.folder is not None:
                print(f"  tapes and tables: {place}", flush=True)
            is_ready.set()
            if options.browser and has_browser():
                # In a thread: some browsers are waited for.
                asyncio.get_running_loop().run_in_executor(None, webbrowser.open, url)

        def progress() -> str:
            if not options.spark:
                return "Spark was left out (--no-spark): no tables"
            return analysts[0].progress() if analysts else "Spark is starting"

        async def analyse() -> None:
            """Spark takes a core for a while, so the page comes first."""
            await is_ready.wait()
            if options.spark and tapes is not None:
                analyst = Analyst(lab.channel, tapes, results, place / "spark.log", follow=True)
                analysts.append(await stack.enter_async_context(analyst))
                await _tell(analyst)

        analysing = asyncio.get_running_loop().create_task(analyse())
        try:
            try:
                await serve(lab=lab, tables=results, port=options.port or PORT, on_ready=ready, progress=progress)
            except CannotServe:
                if options.port:
                    raise
                # The usual port is taken, and nobody asked for it: any other will do.
                await serve(lab=lab, tables=results, port=0, on_ready=ready, progress=progress)
        finally:
            analysing.cancel()


async def _tell(analyst: Analyst) -> None:
    """At the terminal, how far Spark is."""
    try:
        await analyst.ready()
    except NoAnalysis as problem:
        print(f"  without tables: {problem}", flush=True)
        return
    print(f"  Spark is there, after {analyst.ready_s:.0f} s", flush=True)
    while analyst.first_tables_s is None and analyst.failed is None:  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)
    if analyst.first_tables_s is not None:
        print(f"  first tables after {analyst.first_tables_s:.0f} s", flush=True)
    while analyst.verdict is None and analyst.failed is None:  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)
    if analyst.verdict is not None:
        verdict = analyst.verdict
        found = "nothing is missing" if verdict["clean"] else "NOT clean, see the page"
        print(f"  first audit: {verdict['owed']:,} deliveries owed, {found}", flush=True)


def has_browser() -> bool:
    """Whether a person would see it: not over a plain connection to another machine."""
    if sys.platform not in ("darwin", "win32") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True
