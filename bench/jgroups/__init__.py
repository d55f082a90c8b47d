"""JGroups: its nodes are Java processes that speak the same lines as `bench/node.py`. Compiled once for each run."""

import asyncio
import atexit
import shutil
import tempfile
from pathlib import Path

from bench.child_process import MeasurementError
from bench.process_config import ProcessConfig
from bench.systems import JGROUPS_JAR

SOURCE = Path(__file__).parent / "Node.java"
COMPILE_S = 120.0

_classes: list[Path] = []


async def command(config: ProcessConfig) -> list[str]:
    """How to start such a node."""
    if not _classes:
        _classes.append(await _compile())
    arguments = {
        "index": config.index,
        "size": config.size_bytes,
        "timed": int(config.timed),
        "paced": int(config.paced),
        "ports": ",".join(map(str, config.ports)),
    }
    return [
        *("java", "-Xmx300m", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true"),
        *("-cp", f"{JGROUPS_JAR}:{_classes[0]}", "Node"),
        *(f"{name}={value}" for name, value in arguments.items()),
    ]


async def _compile() -> Path:
    classes = Path(tempfile.mkdtemp(prefix="broadloom-bench-java-"))
    atexit.register(shutil.rmtree, classes, ignore_errors=True)
    javac = await asyncio.create_subprocess_exec(
        *("javac", "-nowarn", "-cp", str(JGROUPS_JAR), "-d", str(classes), str(SOURCE)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(javac.communicate(), COMPILE_S)
    except TimeoutError:
        javac.kill()
        await javac.wait()
        raise MeasurementError("javac did not end in time") from None
    if javac.returncode:
        raise MeasurementError(f"javac: {output.decode(errors='replace')[-300:]}")
    return classes
