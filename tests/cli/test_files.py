"""`broadloom send --file` and `broadloom listen --save-dir`."""

import json
import os
import pty
import signal
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from broadloom.cli import listen
from broadloom.cli.exit_codes import UsageError
from broadloom.cli.listen import NAME_BYTES_MAX, prepare_directory, safe_name, save_file
from tests.cli.harness import COMMAND, listening, member, new_channel, run, send_damaged

LARGE = bytes(range(256)) * 20_000


def lines(out: str) -> list[str]:
    return [line for line in out.splitlines() if not line.startswith(("+", "-", "joined"))]


def test_received_files_are_saved_without_overwriting(tmp_path: Path) -> None:
    channel, here, there = new_channel(), tmp_path / "here", tmp_path / "new" / "there"
    here.mkdir()
    large, small = here / "large.bin", here / "notes.txt"
    large.write_bytes(LARGE)
    small.write_text("first")
    there.mkdir(parents=True)
    (there / "large.bin").write_text("precious")
    with listening(channel, "--count", "4", "--save-dir", str(there)) as listener:
        assert run("send", channel, "--file", str(large), "--file", str(small)) == (0, "", "")
        small.write_text("second")
        assert run("send", channel, "--file", str(small)) == (0, "", "")
        assert run("send", channel, "good bye") == (0, "", "")
        code, out, err = listener.wait()
    assert (code, err) == (0, "")
    assert [line.partition(": ")[2] for line in lines(out)] == [
        f"(file large.bin, {len(LARGE):,} bytes, saved as {there}/large-2.bin)",
        f"(file notes.txt, 5 bytes, saved as {there}/notes.txt)",
        f"(file notes.txt, 6 bytes, saved as {there}/notes-2.txt)",
        "good bye",
    ]
    assert {path.name: path.read_bytes() for path in there.iterdir()} == {
        "large.bin": b"precious",
        "large-2.bin": LARGE,
        "notes.txt": b"first",
        "notes-2.txt": b"second",
    }


def test_saved_file_is_reported_as_json(tmp_path: Path) -> None:
    channel, path, there = new_channel(), tmp_path / "notes.txt", tmp_path / "there"
    path.write_text("a note")
    with listening(channel, "--json", "--count", "1", "--save-dir", str(there)) as listener:
        assert run("send", channel, "--file", str(path)) == (0, "", "")
        out = listener.wait().out
    (message,) = (each for each in map(json.loads, out.splitlines()) if "event" not in each)
    assert message["file"] == {
        "name": "notes.txt",
        "size": 6,
        "sha256": sha256(b"a note").hexdigest(),
        "saved": f"{there}/notes.txt",
    }
    assert "a note" not in out


@pytest.mark.parametrize("form", ["text", "json"])
def test_corrupt_file_fails_command_but_does_not_stop_it(form: str, tmp_path: Path) -> None:
    channel, path = new_channel(), tmp_path / "good.txt"
    path.write_text("good")
    words = ("--json",) if form == "json" else ()
    there = tmp_path / "there"
    with member(channel) as other, listening(channel, "--count", "2", "--save-dir", str(there), *words) as listener:
        other.wait_for_peer()
        send_damaged(other.channel, "report.txt")
        other.channel.broadcast_file(path)
        code, out, err = listener.wait()
        me = f"{other.channel.peer_id:016x}"[:8]
    assert code == 1
    why = "the file 'report.txt' is damaged: its content does not match its hash"
    assert err == f"broadloom listen: a file from {me} was not saved: {why}\n"
    assert [each.name for each in there.iterdir()] == ["good.txt"]
    assert "Traceback" not in out
    if form == "json":
        first, _ = (each for each in map(json.loads, out.splitlines()) if "event" not in each)
        assert first["file"] == {"error": why}
    else:
        assert lines(out)[0] == f"{me}: ({why})"


def test_unwritable_save_dir_fails_command_but_does_not_stop_it(tmp_path: Path) -> None:
    channel, path, there = new_channel(), tmp_path / "notes.txt", tmp_path / "there"
    path.write_text("a note")
    with listening(channel, "--count", "2", "--save-dir", str(there)) as listener:
        there.rmdir()
        assert run("send", channel, "--file", str(path)) == (0, "", "")
        listener.wait_for_output("(file notes.txt, 6 bytes)\n")
        there.mkdir()
        assert run("send", channel, "--file", str(path)) == (0, "", "")
        code, _, err = listener.wait()
    assert code == 1
    assert f"was not saved: cannot save {there}/notes.txt: No such file or directory" in err
    assert len(err.splitlines()) == 1
    assert (there / "notes.txt").read_text() == "a note"


def test_listen_with_save_dir_exits_with_success_on_ctrl_c(tmp_path: Path) -> None:
    with listening(new_channel(), "--save-dir", str(tmp_path / "there")) as listener:
        listener.signal(signal.SIGINT)
        code, _, err = listener.wait()
    assert (code, err) == (0, "")
    assert (tmp_path / "there").is_dir()


def test_sending_a_file_shows_progress_at_a_terminal(tmp_path: Path) -> None:
    channel, path = new_channel(), tmp_path / "large.bin"
    path.write_bytes(LARGE)
    terminal, inner = pty.openpty()
    with listening(channel, "--count", "1"):
        environment = {**os.environ, "COLUMNS": "100", "TERM": "xterm"}
        with subprocess.Popen([COMMAND, "send", channel, "--file", path], stderr=inner, env=environment) as sender:
            os.close(inner)
            seen = b""
            try:
                while data := os.read(terminal, 1 << 16):
                    seen += data
            except OSError:  # the terminal is closed
                pass
            assert sender.wait(30) == 0
    os.close(terminal)
    assert b"large.bin" in seen
    assert b"5.1/5.1 MB" in seen


def test_too_large_file_is_rejected_with_number_of_sent_files(tmp_path: Path) -> None:
    channel, good, large = new_channel(), tmp_path / "good", tmp_path / "large"
    good.write_text("good")
    with large.open("wb") as file:
        file.truncate((64 << 20) + 1)
    with member(channel) as other:
        code, _, err = run("send", channel, "--file", str(good), "--file", str(large))
        message = other.channel.receive(30)
        assert message is not None
        assert message.file is not None
    assert code == 1
    assert "message 2 was not sent" in err
    assert "at most 67,108,864 are allowed" in err
    assert "1 sent before it" in err


def test_message_carries_priority_and_ttl(tmp_path: Path) -> None:
    channel, path = new_channel(), tmp_path / "notes.txt"
    path.write_text("a note")
    with member(channel) as other:
        for words in (("text",), ("--file", str(path))):
            assert run("send", channel, *words, "--priority", "high", "--ttl", "20").code == 0
            assert run("send", channel, *words, "--priority", "7").code == 0
        for _ in range(4):
            assert other.channel.receive(30) is not None
        retention = other.channel._wrapped._node.peer.broadcaster.retention
        assert [(each.priority, each.ttl_ms) for each in retention.before(retention.end)] == [(2, 20_000), (7, 0)] * 2


def test_too_large_file_is_rejected_without_python_names(tmp_path: Path) -> None:
    channel, path = new_channel(), tmp_path / "large"
    with path.open("wb") as file:
        file.truncate((64 << 20) + 1)
    with member(channel):
        code, _, err = run("send", channel, "--file", str(path))
    assert code == 1
    assert err.endswith("message of 67,108,865 bytes: at most 67,108,864 are allowed\n")


# -- saving


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("report.txt", "report.txt"),
        ("süß.txt", "süß.txt"),
        (".bashrc", "_.bashrc"),
        ("..", "_.."),
        ("", "_"),
        ("a/b\\c:d", "a_b_c_d"),
        ("steer\x1b[31m\n\0.txt", "steer_[31m__.txt"),
        ("x" * 300 + ".txt", "x" * (NAME_BYTES_MAX - 4) + ".txt"),
        ("x." + "y" * 300, "x." + "y" * (NAME_BYTES_MAX - 2)),
        ("ü" * 150, "ü" * (NAME_BYTES_MAX // 2)),
    ],
)
def test_saved_file_gets_safe_name(name: str, safe: str, tmp_path: Path) -> None:
    assert safe_name(name) == safe
    assert len(safe_name(name).encode()) <= NAME_BYTES_MAX
    for number in (1, 2, 3):
        path = save_file(tmp_path, name, b"%d" % number)
        assert path.parent == tmp_path
        assert path.read_bytes() == b"%d" % number
    assert len(list(tmp_path.iterdir())) == 3


def test_saving_does_not_follow_symlinks(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "notes.txt").symlink_to(tmp_path / "elsewhere")
    assert save_file(tmp_path / "there", "notes.txt", b"x").name == "notes-2.txt"
    assert not (tmp_path / "elsewhere").exists()


def test_saving_reports_why_it_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match=r"No such file or directory"):
        save_file(tmp_path / "missing", "x", b"x")
    if Path("/dev/full").exists():

        class Full(type(tmp_path)):  # type: ignore[misc]
            def open(self, _mode: str) -> object:
                super().open("xb").close()
                return Path("/dev/full").open("wb")

        with pytest.raises(OSError, match="No space left on device"):
            save_file(Full(tmp_path), "x", b"x" * 100_000)
        assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(listen, "NUMBERS_MAX", 3)
    for _ in range(2):
        save_file(tmp_path, "x", b"x")
    with pytest.raises(FileExistsError, match="3 files named x"):
        save_file(tmp_path, "x", b"x")
    with pytest.raises(UsageError, match="cannot save files in"):
        prepare_directory(tmp_path / "x")
    prepare_directory(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
