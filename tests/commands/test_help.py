"""Help that teaches: every command says what it is for and shows examples that are right; completion works."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from tests.commands.running import listening, new_channel, run
from weft.cli import app

ROOT = typer.main.get_command(app)


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if words:
        yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, name))


ALL = list(commands(ROOT))


@pytest.mark.parametrize(("words", "command"), ALL, ids=[" ".join(words) for words, _ in ALL])
def test_every_command_teaches(words: tuple[str, ...], command: Any) -> None:
    purpose = command.help.split("\n\n")[0]
    assert purpose.endswith(".")
    assert len(purpose) <= 120
    examples = re.findall(r"`([^`]*weft [^`]*)`", command.help.partition("Example")[2])
    assert examples, "there is no example"
    for example in examples:
        assert f"weft {' '.join(words)}" in example
        called = re.search(r"weft (.*?)\)?( \||$)", example)
        assert called is not None
        _parse(ROOT, shlex.split(called[1]))
    shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert shown.exit_code == 0
    assert purpose.replace("`", "") in " ".join(shown.output.split())
    for parameter in command.params:
        assert parameter.name == "help" or parameter.help, parameter.name


def _parse(command: Any, words: list[str]) -> None:
    """As the command would, without doing it. What is wrong raises."""
    inner = getattr(command, "commands", {})
    if words and words[0] in inner:
        _parse(inner[words[0]], words[1:])
    else:
        command.make_context("weft", words)


def test_exit_codes_are_documented() -> None:
    told = CliRunner().invoke(app, ["--help"]).output
    assert "130" in told


def test_completion() -> None:
    script = run(env={"_WEFT_COMPLETE": "source_bash"})
    assert script.code == 0
    assert "complete " in script.out
    channel = new_channel()
    with listening(channel):
        for words, expected in (("weft ticket i", "issue"), ("weft watch test", channel)):
            surroundings = {
                "_WEFT_COMPLETE": "complete_bash",
                "COMP_WORDS": words,
                "COMP_CWORD": str(len(words.split()) - 1),
            }
            assert run(env=surroundings).out.split() == [expected]


def test_help_needs_little() -> None:
    """What a command needs it imports when it runs."""
    look = "import sys, weft.cli; print([name for name in sys.argv[1:] if name in sys.modules])"
    heavy = ("rich", "pyarrow", "numpy", "weft.commands.ending", "weft.commands.visible", "weft.record", "weft.sim")
    ended = subprocess.run([sys.executable, "-c", look, *heavy], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.strip() == "[]"
