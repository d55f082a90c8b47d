"""JGroups: its nodes are Java processes that speak the same lines as `bench/node.py`. Compiled once for each run."""

import asyncio
import atexit
import shutil
import tempfile
from pathlib import Path

from bench.child import Failed
from bench.part import Part
from bench.systems import JGROUPS_JAR

SOURCE = Path(__file__).parent / "Node.java"
COMPILE_S = 120.0

_classes: list[Path] = []


async def command(part: Part) -> list[str]:
    """How to start such a node."""
    if not _classes:
        _classes.append(await _compiled())
    words = {
        "index": part.index,
        "size": part.size_bytes,
        "timed": int(part.timed),
        "paced": int(part.paced),
        "ports": ",".join(map(str, part.ports)),
    }
    return [
        *("java", "-Xmx300m", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true"),
        *("-cp", f"{JGROUPS_JAR}:{_classes[0]}", "Node"),
        *(f"{name}={value}" for name, value in words.items()),
    ]


async def _compiled() -> Path:
    classes = Path(tempfile.mkdtemp(prefix="weft-bench-java-"))
    atexit.register(shutil.rmtree, classes, ignore_errors=True)
    javac = await asyncio.create_subprocess_exec(
        *("javac", "-nowarn", "-cp", str(JGROUPS_JAR), "-d", str(classes), str(SOURCE)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        said, _ = await asyncio.wait_for(javac.communicate(), COMPILE_S)
    except TimeoutError:
        javac.kill()
        await javac.wait()
        raise Failed("javac did not end in time") from None
    if javac.returncode:
        raise Failed(f"javac: {said.decode(errors='replace')[-300:]}")
    return classes
