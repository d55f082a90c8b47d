"""The examples, run as a newcomer would run them: by themselves, on this machine, to their end."""

import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

TOP = Path(__file__).parent.parent
EXAMPLES = sorted((TOP / "examples").glob("*.py"))
LINES_MAX = 50
RUN_S = 60.0
"""Each takes about a second; a busy machine may take longer."""
SAYS = {
    "chat.py": "Good morning! Is that you, Ada?",
    "game.py": "I stand at 30, and see the other at 30",
    "newsletter.py": "Ada wrote: Issue 1",
    "sensors.py": "missed: 0",
    "tape.py": "0 lost",
}


def _run(*words: str, typed: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", *words],
        input=typed,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
        cwd=TOP,
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_runs_and_ends(example: Path) -> None:
    ended = _run(str(example))
    assert ended.returncode == 0, ended.stderr
    assert SAYS[example.name] in ended.stdout
    assert ended.stderr == ""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_is_small_and_says_what_it_is(example: Path) -> None:
    source = example.read_text(encoding="utf-8")
    assert source.startswith('"""')
    assert len(source.splitlines()) <= LINES_MAX


def test_the_chat_passes_on_what_is_typed(tmp_path: Path) -> None:
    chat, name = str(TOP / "examples" / "chat.py"), f"chat/{uuid4()}"
    with (tmp_path / "heard").open("w+") as heard:
        listener = subprocess.Popen(
            [sys.executable, chat, name, "Bob"],
            stdin=subprocess.PIPE,
            stdout=heard,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert listener.stdin is not None
        try:
            sent = subprocess.run(
                [sys.executable, "-c", SEND_UNTIL_HEARD, name, str(tmp_path / "heard")],
                capture_output=True,
                text=True,
                timeout=RUN_S,
                check=False,
            )
            assert sent.returncode == 0, sent.stderr
            listener.stdin.close()
            assert listener.wait(RUN_S) == 0
        finally:
            listener.kill()
            listener.wait()
        heard.seek(0)
        assert "Ada: Hello!" in heard.read()


SEND_UNTIL_HEARD = """
import asyncio, sys, broadloom
from pathlib import Path
from uuid import uuid4

async def main():
    async with broadloom.connect(sys.argv[1]) as channel, asyncio.timeout(40):
        while "Hello!" not in Path(sys.argv[2]).read_text():
            await channel.broadcast_json({"name": "Ada", "text": "Hello!"})
            await asyncio.sleep(0.1)

asyncio.run(main())
"""
