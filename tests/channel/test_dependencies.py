"""The messaging library needs only `cryptography`: everything else is an extra."""

import subprocess
import sys
from uuid import uuid4

PROGRAM = """
import sys

for name in ("typer", "rich", "click", "uvloop", "pyarrow", "numpy"):
    sys.modules[name] = None  # importing it raises ModuleNotFoundError

import asyncio
import broadloom, broadloom.groups, broadloom.groups.sync, broadloom.sync

for name in broadloom.__all__:
    getattr(broadloom, name)


async def main(name):
    async with broadloom.connect(name) as author, broadloom.connect(name) as reader:
        await author.broadcast_text("hello")
        print((await reader.receive(20)).text)


asyncio.run(main("test/{name}"))
with broadloom.sync.connect("test/{name}") as author, broadloom.sync.connect("test/{name}") as reader:
    author.broadcast_text("hello again")
    print(reader.receive(20).text)
"""


def test_two_peers_broadcast_without_any_extra_installed() -> None:
    program = PROGRAM.replace("{name}", uuid4().hex)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "hello\nhello again\n", "")
