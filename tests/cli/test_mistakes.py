"""A person's mistake: one line that says what is wrong, exit code 2 (or 1 if the channel is at fault), no traceback."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from broadloom.cli.main import app
from tests.cli.running import new_channel, run

CHANNEL = "test/mistakes"


@pytest.mark.parametrize("command", ["join", "send", "listen", "record"])
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("chess",), "a channel is named TYPE/INSTANCE"),
        ((CHANNEL, "--portal", "host:port"), "the port must be from 1"),
        ((CHANNEL, "--portal", "fine,[::1"), "is not an address"),
        ((CHANNEL, "--key", "x", "--plain"), "exclude each other"),
        ((CHANNEL, "--key", "x", "--key-file", "y"), "--key or --key-file"),
        ((CHANNEL, "--key-file", "missing"), "cannot read the key file missing"),
        ((CHANNEL, "--key", " "), "the key is empty"),
        ((CHANNEL, "--ticket", "missing"), "cannot read the ticket missing"),
        ((CHANNEL, "--plain", "--signed"), "signed=True requires a key"),
        ((CHANNEL, "--revoked", "x"), "only with a ticket"),
    ],
)
def test_how_to_join(
    command: str, words: tuple[str, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    more = ("--to", "tape") if command == "record" else ()
    result = CliRunner().invoke(app, [command, *words, *more])
    assert result.exit_code == 2, result.output
    assert told in result.stderr
    assert result.stderr.startswith(f"broadloom {command}: ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("send", CHANNEL, "text", "--file", "x"), "the text or --file"),
        (("send", CHANNEL, "--file", "missing"), "cannot read missing"),
        (("send", CHANNEL, "--file", "."), "cannot read .: Is a directory"),
        (("send", CHANNEL, "text", "--priority", "urgent"), "it is low, normal, high, or a number from 0 to 255"),
        (("send", CHANNEL, "text", "--priority", "256"), "from 0 to 255"),
        (("send", CHANNEL, "text", "--lifetime", "0"), "more than 0 seconds"),
        (("send", CHANNEL, "text", "--lifetime", "nan"), "more than 0 seconds"),
        (("listen", CHANNEL, "--save", "/dev/null/x"), "cannot save files in /dev/null/x"),
        (("listen", CHANNEL, "--port", "70000"), "65535"),
        (("listen", CHANNEL, "--count", "-1"), "--count"),
        (("listen",), "Missing argument"),
        (("record", CHANNEL), "--to"),
        (("tape", "missing"), "there is no tape at missing"),
        (("tape", "."), "no finished file"),
        (("nonsense",), "nonsense"),
    ],
)
def test_other_words(words: tuple[str, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2, result.output
    assert told in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


def test_an_empty_variable_does_not_open_the_channel() -> None:
    result = CliRunner().invoke(app, ["listen", CHANNEL], env={"BROADLOOM_KEY": ""})
    assert result.exit_code == 2
    assert "the key is empty" in result.stderr


def test_portals_of_the_environment_are_read() -> None:
    result = CliRunner().invoke(app, ["listen", CHANNEL], env={"BROADLOOM_BOOTSTRAP": "alpha, beta:0"})
    assert result.exit_code == 2
    assert "'beta:0'" in result.stderr


def test_nobody_answers() -> None:
    code, out, err = run("listen", new_channel(), "--portal", "127.0.0.1:9", "--timeout", "0.3")
    assert (code, out) == (1, "")
    assert "no peer of this channel answered at 127.0.0.1:9" in err
    assert len(err.splitlines()) == 1


def test_a_directory_that_cannot_hold_a_tape(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["record", CHANNEL, "--to", str(tmp_path / "file" / "tape")])
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", [("record", CHANNEL, "--to", "x"), ("tape", "x")])
def test_the_missing_extra_is_named(words: tuple[str, ...], tmp_path: Path) -> None:
    without = "import sys; sys.modules['pyarrow'] = None; from broadloom.cli.main import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", without, *words], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 2
    assert "broadloom[record]" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
