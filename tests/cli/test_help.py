"""Help: every command states its purpose and shows valid examples. Shell completion. Imports."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from broadloom.cli.exit_codes import MEANINGS
from broadloom.cli.main import app
from tests.cli.harness import listening, new_channel, run

ROOT = typer.main.get_command(app)


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if path:
        yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


ALL = list(commands(ROOT))


@pytest.mark.parametrize(("words", "command"), ALL, ids=[" ".join(words) for words, _ in ALL])
def test_help_of_every_command_has_purpose_and_valid_examples(words: tuple[str, ...], command: Any) -> None:
    purpose = command.help.split("\n\n")[0]
    assert purpose.endswith(".")
    assert len(purpose) <= 120
    examples = re.findall(r"`([^`]*broadloom [^`]*)`", command.help.partition("Example")[2])
    assert examples, "there is no example"
    for example in examples:
        assert f"broadloom {' '.join(words)}" in example
        called = re.search(r"broadloom (.*?)\)?( \||$)", example)
        assert called is not None
        _parse(ROOT, shlex.split(called[1]))
    shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert shown.exit_code == 0
    assert purpose.replace("`", "") in " ".join(shown.output.split())
    for parameter in command.params:
        assert parameter.name == "help" or parameter.help, parameter.name


def _parse(command: Any, args: list[str]) -> None:
    """Parse without running; raises on errors."""
    inner = getattr(command, "commands", {})
    if args and args[0] in inner:
        _parse(inner[args[0]], args[1:])
    else:
        command.make_context("broadloom", args)


def test_help_lists_exit_codes() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    assert all(str(code) in shown for code in MEANINGS)


def test_shell_completion_completes_commands_and_channels() -> None:
    script = run(env={"_BROADLOOM_COMPLETE": "source_bash"})
    assert script.code == 0
    assert "complete " in script.out
    channel = new_channel()
    with listening(channel):
        for words, expected in (("broadloom ticket i", "issue"), ("broadloom top test", channel)):
            environment = {
                "_BROADLOOM_COMPLETE": "complete_bash",
                "COMP_WORDS": words,
                "COMP_CWORD": str(len(words.split()) - 1),
            }
            assert run(env=environment).out.split() == [expected]


def test_commands_are_imported_only_when_used() -> None:
    look = "import sys, broadloom.cli.main; print([name for name in sys.argv[1:] if name in sys.modules])"
    heavy = (
        "rich",
        "pyarrow",
        "numpy",
        "broadloom.cli.runner",
        "broadloom.channel.status_socket",
        "broadloom.record",
        "broadloom.testing.sim",
    )
    ended = subprocess.run([sys.executable, "-c", look, *heavy], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.strip() == "[]"


def test_every_command_has_a_json_option() -> None:
    interactive, always_json = {("chat", "join")}, {("pipeline", "contracts")}
    without = [
        words
        for words, command in ALL
        if not getattr(command, "commands", {}) and not any("--json" in each.opts for each in command.params)
    ]
    assert set(without) == interactive | always_json


def test_help_does_not_import_optional_packages() -> None:
    script = "import sys; from broadloom.cli.main import app; app(['--help'], standalone_mode=False); "
    look = script + "print([name for name in sys.argv[1:] if name in sys.modules])"
    heavy = ("nicegui", "numpy", "polars", "pyarrow", "pyspark", "textual", "broadloom.testing.sim")
    ended = subprocess.run([sys.executable, "-c", look, *heavy], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.splitlines()[-1] == "[]"
