"""A server in a process of its own, as a person starts it; and as a program, `python -m tests.web.server`, one with a
cluster: it prints the address of its pages and the channel of its cluster."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from broadloom.testing.cluster.cluster import LocalCluster
from broadloom.testing.cluster.config import ClusterConfig, TrafficRates
from broadloom.web.server import serve

TOP = Path(__file__).parent.parent.parent
END_S = 60.0
"""More than the deadlines at the end of a server take together: for its pages, its games, and leaving each channel."""


@contextmanager
def running_server(*args: str, **variables: str) -> Iterator[str]:
    """Start it, and return the first line that it prints."""
    process = subprocess.Popen(
        [sys.executable, *args],
        cwd=TOP,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        if not line:
            raise AssertionError(process.communicate(timeout=END_S)[1])
        yield line
    finally:
        process.terminate()
        try:
            errors = process.communicate(timeout=END_S)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            errors = process.communicate()[1]
            raise AssertionError(f"it did not end: {errors}") from None
    assert "Traceback" not in errors, errors


def page(address: str, path: str) -> str:
    """A page of the server at this address, which has a token."""
    return urlsplit(address)._replace(path=path).geturl()


@contextmanager
def running_cluster(
    peers: int, *, tapes_dir: Path | None = None, results_dir: Path | None = None
) -> Iterator[dict[str, Any]]:
    config = json.dumps({"peers": peers, "tape": str(tapes_dir or ""), "tables": str(results_dir or "")})
    with running_server("-m", "tests.web.server", config) as line:
        yield json.loads(line)


async def main(config: dict[str, Any]) -> None:
    # Few processes and little talk: the machine is shared with other tests.
    plan = ClusterConfig(peers=config["peers"], processes_max=config.get("processes", 3), rates=TrafficRates(1.0, 2.0))
    async with LocalCluster.start(plan) as cluster:
        await cluster.wait_until_grown()

        def ready(url: str) -> None:
            info = {"url": url, "channel": cluster.channel, "bootstrap": cluster.bootstrap()}
            print(json.dumps(info), flush=True)

        tapes_dir, results_dir = (Path(config[name]) if config[name] else None for name in ("tape", "tables"))
        await serve(
            cluster=cluster,
            tapes_dir=tapes_dir,
            results_dir=results_dir,
            port=0,
            on_ready=ready,
            progress=lambda: "Spark is not part of this test.",
        )


if __name__ == "__main__":
    from broadloom.cli.runner import StopSignal, command

    @command("test")
    async def work(stop: StopSignal) -> None:
        stop.interrupt_is_success = True
        await main(json.loads(sys.argv[1]))

    sys.exit(work())
