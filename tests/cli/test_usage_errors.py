"""Usage errors: one line on standard error, no traceback, and the right exit code."""

import builtins
import errno
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from broadloom.cli import exit_codes
from broadloom.cli.exit_codes import NOT_SUPPORTED
from broadloom.cli.main import app
from broadloom.errors import ConnectError, InvalidKeyFileError, StoreCorruptError, StoreLockedError
from tests.cli.harness import COMMAND, new_channel, run
from tests.support import TIMEOUT_S

CHANNEL = "test/mistakes"


@pytest.mark.parametrize("command", ["join", "send", "listen", "record"])
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("chess",), "a channel is named TYPE/INSTANCE"),
        ((CHANNEL, "--bootstrap", "host:port"), "the port must be from 1"),
        ((CHANNEL, "--bootstrap", "fine,[::1"), "is not an address"),
        ((CHANNEL, "--key", "x", "--no-tls"), "--key, --ticket and --no-tls exclude each other"),
        ((CHANNEL, "--key", "x", "--key-file", "y"), "--key or --key-file"),
        ((CHANNEL, "--key-file", "missing"), "cannot read the key file missing"),
        ((CHANNEL, "--key", " "), "the key is empty"),
        ((CHANNEL, "--ticket", "missing"), "cannot read the ticket missing"),
        ((CHANNEL, "--no-tls", "--signed"), "--signed requires a key"),
        ((CHANNEL, "--revocation-list", "x"), "--revocation-list works only with a ticket"),
        ((CHANNEL, "--advertise", "0.0.0.0"), "--advertise '0.0.0.0': peers cannot dial this"),
        ((CHANNEL, "--advertise", "a:5"), "--advertise 'a:5': pass the port separately, as --port 5"),
    ],
)
def test_invalid_join_options_are_reported_in_one_line(
    command: str, args: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    more = ("--out", "tape") if command == "record" else ()
    result = CliRunner().invoke(app, [command, *args, *more])
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert result.stderr.startswith(f"broadloom {command}: ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("send", CHANNEL, "text", "--file", "x"), "TEXT or --file"),
        (("send", CHANNEL, "--file", "missing"), "cannot read missing"),
        (("send", CHANNEL, "--file", "."), "cannot read .: Is a directory"),
        (("send", CHANNEL, "text", "--priority", "urgent"), "must be low, normal, high, or a number from 0 to 255"),
        (("send", CHANNEL, "text", "--priority", "256"), "from 0 to 255"),
        (("send", CHANNEL, "text", "--topic", "a//b"), "--topic: topic 'a//b': a level is empty"),
        (("listen", CHANNEL, "--topic", "a*b"), "--topic: pattern 'a*b': `*` and `**` stand for whole levels"),
        (("send", CHANNEL, "text", "--ttl", "0"), "more than 0 seconds"),
        (("send", CHANNEL, "text", "--ttl", "nan"), "more than 0 seconds"),
        (("listen", CHANNEL, "--save-dir", "/dev/null/x"), "cannot save files in /dev/null/x"),
        (("listen", CHANNEL, "--port", "70000"), "65535"),
        (("listen", CHANNEL, "--count", "-1"), "--count"),
        (("listen",), "Missing argument"),
        (("record", CHANNEL), "--out"),
        (("tape", "info", "missing"), "there is no tape at missing"),
        (("tape", "info", "."), "no complete file"),
        (("demo", "--headless", "--no-spark", "--chat", "-1"), "--chat is -1: use 0 to 10,000 messages per second"),
        (("game", "replay", "missing"), "missing: No such file or directory"),
        (("game", "join", CHANNEL, "board-1", "--as", "Ann", "--program", "missing"), "missing: No such file"),
        (("auction", "verify", "missing"), "missing: No such file or directory"),
        (("nonsense",), "nonsense"),
    ],
)
def test_invalid_arguments_are_reported(
    args: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


def test_empty_key_variable_is_an_error() -> None:
    result = CliRunner().invoke(app, ["listen", CHANNEL], env={"BROADLOOM_KEY": ""})
    assert result.exit_code == 2
    assert "the key is empty" in result.stderr


def test_bootstrap_variable_is_read() -> None:
    result = CliRunner().invoke(app, ["listen", CHANNEL], env={"BROADLOOM_BOOTSTRAP": "alpha, beta:0"})
    assert result.exit_code == 2
    assert "'beta:0'" in result.stderr


def test_unreachable_bootstrap_host_is_reported() -> None:
    code, out, err = run("listen", new_channel(), "--bootstrap", "127.0.0.1:9", "--timeout", "0.3")
    assert (code, out) == (1, "")
    assert "no peer of this channel answered at 127.0.0.1:9" in err
    assert "if one is given: --port …" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("files", [10, 16])
def test_too_few_file_descriptors_are_reported(files: int) -> None:
    command = ["sh", "-c", f'ulimit -n {files}; exec "$0" "$@"', str(COMMAND), "listen", CHANNEL]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (result.returncode, result.stdout) == (2, "")
    assert f"may open only {files} files; raise the limit (ulimit -n)" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_unwritable_tape_directory_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["record", CHANNEL, "--out", str(tmp_path / "file" / "tape")])
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("args", [("record", CHANNEL, "--out", "x"), ("tape", "info", "x")])
def test_missing_extra_is_named(args: tuple[str, ...], tmp_path: Path) -> None:
    without = "import sys; sys.modules['pyarrow'] = None; from broadloom.cli.main import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", without, *args], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == NOT_SUPPORTED
    assert "pip install '.[record]'" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_entry_point_names_cli_extra_when_it_is_not_installed(package: str) -> None:
    without = f"import sys; sys.modules[{package!r}] = None; from broadloom.__main__ import main; main()"
    ended = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == NOT_SUPPORTED
    assert (
        ended.stderr
        == f"broadloom: {package} is not installed; in a checkout of Broadloom, run: pip install '.[cli]'\n"
    )


@pytest.mark.parametrize("extra", ["chat", "pipeline", "record", "sim", "web"])
def test_require_extra_says_what_to_install(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exit_codes.require_extra(extra)
    monkeypatch.setattr(exit_codes, "find_spec", lambda _name: None)
    with pytest.raises(exit_codes.NotSupportedError, match=rf"is not installed; .* pip install '\.\[{extra}\]'"):
        exit_codes.require_extra(extra)


def test_exit_code_table_names_existing_exceptions() -> None:
    source = "\n".join(path.read_text() for path in Path(exit_codes.__file__).parent.parent.rglob("*.py"))
    for name in exit_codes._CODE_BY_NAME:
        assert issubclass(getattr(builtins, name, object), OSError) or f"class {name}(" in source, name


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (exit_codes.UsageError("x"), 2),
        (InvalidKeyFileError("x"), 2),
        (exit_codes.NotSupportedError("x"), 3),
        (ConnectError("x"), 1),
        (FileNotFoundError("x"), 2),
        (OSError(errno.ENOSPC, "No space left on device", "x"), 1),
        (StoreLockedError(Path("x"), "another program has it open"), 2),
        (StoreCorruptError(Path("x"), "a page is wrong"), 1),
        (RuntimeError("x"), None),
    ],
)
def test_exceptions_have_exit_codes(problem: Exception, code: int | None) -> None:
    assert exit_codes.exit_code_for(problem) == code
