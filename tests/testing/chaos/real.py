"""Real trials for tests: each in an interpreter of its own: they fork, and a test's process may have threads."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TIMEOUT_S = 100


def popen(script: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(script: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a Python script."""
    with popen(script) as process:
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        except BaseException:
            process.kill()  # its children die with it
            raise
    return process.returncode, out, err


def run_chaos(scenario: str, before: str = "", **options: Any) -> tuple[int, dict[str, Any]]:
    """Exit code and result; `before` is done in the same interpreter before anything is forked."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in options.items())
    code, out, err = run(
        f"{before}\nfrom broadloom.cli.chaos import chaos\n"
        f"raise SystemExit(chaos({scenario!r}, json=True, {arguments}))"
    )
    assert out, err
    result: dict[str, Any] = json.loads(out)
    return code, result


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)
