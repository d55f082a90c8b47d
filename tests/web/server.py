"""A server in a process of its own, as a person starts it; and as a program, `python -m tests.web.server`, one with a
lab: it prints the address of its pages and the channel of its lab."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from weft.lab.lab import Lab
from weft.lab.plan import LabPlan, Rates
from weft.web.serve import serve

TOP = Path(__file__).parent.parent.parent
END_S = 20.0


@contextmanager
def running(*words: str, **variables: str) -> Iterator[str]:
    """Start it, and return the first line that it prints."""
    started = subprocess.Popen(
        [sys.executable, *words],
        cwd=TOP,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert started.stdout is not None
        line = started.stdout.readline().strip()
        if not line:
            raise AssertionError(started.communicate(timeout=END_S)[1])
        yield line
    finally:
        started.terminate()
        try:
            told = started.communicate(timeout=END_S)[1]
        except subprocess.TimeoutExpired:
            started.kill()
            told = started.communicate()[1]
            raise AssertionError(f"it did not end: {told}") from None
    assert "Traceback" not in told, told


@contextmanager
def with_lab(peers: int, *, tape: Path | None = None, tables: Path | None = None) -> Iterator[dict[str, Any]]:
    words = json.dumps({"peers": peers, "tape": str(tape or ""), "tables": str(tables or "")})
    with running("-m", "tests.web.server", words) as line:
        yield json.loads(line)


async def main(words: dict[str, Any]) -> None:
    # Few processes and little talk: the machine is shared with other tests.
    plan = LabPlan(peers=words["peers"], processes_max=words.get("processes", 3), rates=Rates(1.0, 2.0))
    async with Lab.start(plan) as lab:
        await lab.grown()

        def ready(url: str) -> None:
            told = {"url": url.rstrip("/"), "channel": lab.channel, "portals": lab.portals()}
            print(json.dumps(told), flush=True)

        tape, tables = (Path(words[name]) if words[name] else None for name in ("tape", "tables"))
        await serve(
            lab=lab,
            tape=tape,
            tables=tables,
            port=0,
            on_ready=ready,
            progress=lambda: "Spark is not part of this test.",
        )


if __name__ == "__main__":
    from weft.commands.ending import run

    async def work(end: Any) -> int:
        end.by_hand_is_fine = True
        await main(json.loads(sys.argv[1]))
        return 0

    sys.exit(run("test", work))
