"""Runs chaos scenarios and benchmarks for tests, each in a Python interpreter of its own."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TIMEOUT_S = 100


@contextmanager
def running(script: str, worker_patch: str = "") -> Iterator[subprocess.Popen[str]]:
    """A Python script. `worker_patch` is code that its worker processes run before anything else."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell; children would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as directory:
        if worker_patch:
            Path(directory, "worker_patch.py").write_text(worker_patch)
            script = (
                f"from broadloom.testing.processes.forkserver import PRELOAD\nPRELOAD.append('worker_patch')\n{script}"
            )
        path = os.pathsep.join(filter(None, (directory, os.environ.get("PYTHONPATH"))))
        with subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": path},
        ) as process:
            try:
                yield process
            finally:
                process.kill()  # its workers die with it


def run(script: str, worker_patch: str = "") -> tuple[int, str, str]:
    """Return exit status, output and error output of a script."""
    with running(script, worker_patch) as process:
        out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, err


def run_chaos(scenario: str, before: str = "", worker_patch: str = "", **options: Any) -> tuple[int, dict[str, Any]]:
    """Return exit status and report. `before` is code for the coordinator."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in options.items())
    call = f"raise SystemExit(chaos({scenario!r}, json=True, {arguments}))"
    code, out, err = run(f"{before}\nfrom broadloom.cli.chaos import chaos\n{call}", worker_patch)
    assert out, err
    result: dict[str, Any] = json.loads(out)
    return code, result


def descendants(pid: int) -> list[int]:
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return children + [each for child in children for each in descendants(child)]


def process_state(pid: int) -> str:
    """Return the state letter of a process; empty if it does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def is_running(pid: int) -> bool:
    return process_state(pid) not in ("", "Z")
