"""`python -m bench.pipeline.clock`: the commands on a tape of 55,000 events, from the command to its end, by the clock.

Each command runs once to warm up (the first start of Spark writes an archive of classes), then `--repeats` times; the
fastest run counts, because a busy machine only ever adds time. Exit status 1 if a bar is missed.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EVENTS = 55_000
BARS_S = {"all tables": 10.0, "all tables again": 2.0, "audit alone": 7.0}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline.clock", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each command; 3, if not said")
    repeats = parser.parse_args().repeats
    from tools.synthetic.generate import SyntheticConfig, generate

    with tempfile.TemporaryDirectory(prefix="broadloom-clock-") as folder:
        tapes, out = Path(folder) / "tapes", Path(folder) / "out"
        generate(tapes, SyntheticConfig(rows=EVENTS))
        _run("run", "--tapes", tapes, "--out", out)
        best: dict[str, tuple[float, float]] = {}
        for _ in range(repeats):
            shutil.rmtree(out)
            found = {
                "all tables": _run("run", "--tapes", tapes, "--out", out),
                "all tables again": _run("run", "--tapes", tapes, "--out", out),
                "audit alone": _run("audit", "--tapes", tapes),
            }
            best = {name: min(each, best.get(name, each)) for name, each in found.items()}
    print(f"{EVENTS:,} events; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; the fastest of {repeats}")
    print("| what | seconds | bar | CPU seconds |\n|---|---|---|---|")
    for name, (seconds, cpu_s) in best.items():
        print(f"| {name} | {seconds:.1f} | {BARS_S[name]:.0f} | {cpu_s:.1f} |")
    return int(any(best[name][0] > bar for name, bar in BARS_S.items()))


def _run(*words: object) -> tuple[float, float]:
    """Seconds by the clock, and of CPU."""
    program = "from broadloom.cli.main import main; main()"
    before, began = _cpu_s(), time.monotonic()
    subprocess.run([sys.executable, "-c", program, "pipeline", *map(str, words)], check=True, capture_output=True)
    return time.monotonic() - began, _cpu_s() - before


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
