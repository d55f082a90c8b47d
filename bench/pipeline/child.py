"""One measurement in a process of its own: `python -m bench.pipeline.child spark|duckdb TAPE OUT ...`.

It tells each step on standard output, a JSON object a line, at the moment it begins; whoever watches reads the clock.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.machine import CORES
from bench.pipeline.ask import answer, opened
from bench.pipeline.questions import QUESTIONS

TABLES = (
    *("messages", "deliveries", "members", "accounts", "audit", "verdict", "clocks", "lives", "links", "fabric"),
    *("repairs", "latency", "redundancy", "slowest"),
)
STARTED, ENDED = "started", "ended"
STEP, ROWS = "step", "rows"


def tell(step: str, **more: object) -> None:
    print(json.dumps({STEP: step, **more}), flush=True)


class Told:
    """The teller of a run."""

    def phase(self, text: str) -> None:
        tell(text)

    def table(self, name: str, number: int, of: int) -> None:
        tell(name)


def by_spark(tape: Path, out: Path, memory: str) -> None:
    """The real job. The session is the one for large tapes whatever the size, so that sizes can be compared."""
    from weft.pipeline import job
    from weft.pipeline.session import session, stop

    spark = session(name="weft bench", memory=memory)
    spark.range(1).count()
    tell(STARTED)
    outcome = job.run(tape, out, only=list(TABLES), teller=Told(), spark=spark)
    tell(ENDED, rows={name: outcome.manifest.tables[name].rows for name in outcome.built})
    stop()


def by_duckdb(tape: Path, out: Path, clocks: list[Path]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    base = opened(tape, clocks, CORES)
    tell(STARTED)
    rows = {}
    for name in QUESTIONS:
        tell(name)
        rows[name] = answer(base, name, out)
    tell(ENDED, rows=rows)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline.child")
    parser.add_argument("engine", choices=["spark", "duckdb"])
    parser.add_argument("tape", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--memory", default="4g")
    parser.add_argument("--clocks", type=Path, nargs="*", default=[])
    given = parser.parse_args(words)
    if given.engine == "spark":
        by_spark(given.tape, given.out, given.memory)
    else:
        by_duckdb(given.tape, given.out, given.clocks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
