"""The examples run as a user runs them."""

import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

TOP = Path(__file__).parent.parent
EXAMPLES = sorted((TOP / "examples").glob("*.py"))
LINES_MAX = 50
RUN_S = 60.0
"""Each takes about a second; a busy machine takes longer."""
EXPECTED_OUTPUT = {
    "auction.py": "verified: anna",
    "chat.py": "Good morning! Is that you, Ada?",
    "mailboxes.py": "The sum of the first thousand squares is 332833500",
    "game.py": "At 30, the other player at 30",
    "meeting.py": "Only a scratch.",
    "news_service.py": "sports/nfl/scores, nfl: Tea at half price (ad spring-sale)",
    "newsletter.py": "Ada wrote: Issue 1",
    "nim.py": "Ben sees that player 1 has won",
    "rules.py": "The partner reads: Plan B: ask [redacted]",
    "sensors.py": "missed: 0",
    "tape.py": "0 dropped",
    "task_farm.py": "1438 primes below 12000\n8 portions were given to another worker",
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
def test_example_runs_and_exits(example: Path) -> None:
    result = _run(str(example))
    assert result.returncode == 0, result.stderr
    assert EXPECTED_OUTPUT[example.name] in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_example_is_short_and_has_docstring(example: Path) -> None:
    source = example.read_text(encoding="utf-8")
    assert source.startswith('"""')
    assert len(source.splitlines()) <= LINES_MAX


def test_chat_example_prints_messages_of_others(tmp_path: Path) -> None:
    chat, name = str(TOP / "examples" / "chat.py"), f"chat/{uuid4()}"
    with (tmp_path / "output").open("w+") as output:
        listener = subprocess.Popen(
            [sys.executable, chat, name, "Bob"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert listener.stdin is not None
        try:
            sent = subprocess.run(
                [sys.executable, "-c", SEND_UNTIL_RECEIVED, name, str(tmp_path / "output")],
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
        output.seek(0)
        assert "Ada: Hello!" in output.read()


SEND_UNTIL_RECEIVED = """
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
