"""`broadloom status` and `broadloom top`, and the status sockets."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import broadloom
from broadloom.channel.status_socket import (
    InsecureDirectoryError,
    LocalPeersError,
    expose_status,
    find_local_peers,
    private_directory,
    require_local_peers,
    runtime_directory,
)
from broadloom.cli.formatting import to_json
from broadloom.transport.event_loop import run as run_loop
from tests.cli.harness import CommandProcess, listening, new_channel, run, running_command


@pytest.fixture
def pair() -> Iterator[tuple[str, CommandProcess]]:
    """Two listeners on one channel."""
    channel = new_channel()
    with listening(channel) as first, listening(channel):
        first.wait_for_output("connected, at")
        yield channel, first


def test_status_and_top_show_local_peers(pair: tuple[str, CommandProcess]) -> None:
    channel, first = pair
    code, out, err = run("status")
    assert (code, err) == (0, "")
    assert out.count(channel) == 2
    assert "connected" in out
    assert "1 of 4" in out
    assert "broadloom listen" in out

    code, out, _ = run("status", channel, "--json")
    statuses = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert {each["pid"] for each in statuses} >= {first.process.pid}
    assert [each["neighbors"][0]["peer_id"] for each in statuses] == [each["peer_id"] for each in reversed(statuses)]
    assert all(each["security"] == "tls" and each["counters"]["sent"] == 0 for each in statuses)

    code, out, err = run("top")
    assert (code, out) == (2, "")
    assert all(each["peer_id"][:8] in err for each in statuses)
    assert "--peer" in err

    code, out, err = run("top", "--peer", statuses[0]["peer_id"][:6], "--once")
    assert (code, err) == (0, "")
    for expected in (statuses[0]["peer_id"], channel, statuses[1]["peer_id"][:8], statuses[1]["address"], "full mesh"):
        assert expected in out


def test_top_runs_until_ctrl_c_or_until_peer_leaves() -> None:
    channel = new_channel()
    with listening(channel) as listener:
        with running_command("top", channel, "--interval", "0.1", terminal=True) as top:
            top.wait_for_output("per second")  # from the second snapshot on
            top.signal(signal.SIGINT)
            assert top.wait().code == 0
        with running_command("top", channel, "--interval", "0.1") as top:
            top.wait_for_output("per second")
            listener.signal(signal.SIGINT)
            code, _, err = top.wait()
    assert code == 0
    assert "has left" in err


def test_missing_local_peers_are_reported() -> None:
    with pytest.raises(LocalPeersError, match="no peer of this user exposes its status"):
        require_local_peers("", "")
    with pytest.raises(LocalPeersError, match="no peer of chess/x with an id that begins with 12"):
        require_local_peers("chess/x", "12")


def test_expose_status_serves_status_of_program(sockets: Path) -> None:
    async def look() -> None:
        async with broadloom.connect(new_channel()) as channel:
            async with expose_status(channel, program="my game"):
                (found,) = await asyncio.to_thread(find_local_peers)
                assert found.status is not None
                assert found.status["program"] == "my game"
                assert found.status["pid"] == os.getpid()
                assert found.status["state"] == "connected"
                assert found.peer_id == f"{channel.peer_id:016x}"
                assert await asyncio.to_thread(find_local_peers, "other/channel") == []
                reader, writer = await asyncio.open_unix_connection(str(found.path))
                for request, answer in ((b"nonsense\n", b"error"), (b"status\n", b"connected")):
                    writer.write(request)
                    assert answer in await reader.readline()
                writer.write(b"x" * 5000)
                assert await reader.read() == b""
                writer.close()
            assert await asyncio.to_thread(find_local_peers) == []

    run_loop(look())
    assert list(sockets.iterdir()) == []


def test_stale_sockets_are_removed(sockets: Path) -> None:
    directory = private_directory()
    assert directory == sockets
    assert directory.stat().st_mode & 0o777 == 0o700
    dead, fresh, hidden = directory / "00aa.sock", directory / ".00bb.sock", directory / ".00cc.sock"
    for path in (dead, fresh, hidden):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    os.utime(hidden, (0, 0))
    assert find_local_peers() == []
    assert sorted(sockets.iterdir()) == [fresh]  # a new one is about to get its name


def test_unresponsive_peer_has_no_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broadloom.channel.status_socket.RESPONSE_TIMEOUT_S", 0.05)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(private_directory() / "00aa.sock"))
        listener.listen()
        (found,) = find_local_peers()
        assert found.status is None
        assert find_local_peers("some/channel") == []


def test_insecure_socket_directory_is_rejected(sockets: Path, tmp_path: Path) -> None:
    private_directory().chmod(0o755)
    with pytest.raises(InsecureDirectoryError, match="XDG_RUNTIME_DIR"):
        private_directory()
    with pytest.raises(LocalPeersError, match="XDG_RUNTIME_DIR"):
        find_local_peers()
    sockets.rmdir()
    tmp_path.chmod(0o700)
    sockets.symlink_to(tmp_path)
    with pytest.raises(InsecureDirectoryError):
        private_directory()


def test_listen_works_when_status_socket_is_unavailable(sockets: Path) -> None:
    sockets.write_text("in the way")
    code, out, err = run("listen", new_channel(), "--duration", "0")
    assert (code, out) == (0, "")
    assert "`broadloom status` cannot show this peer" in err


def test_sockets_fall_back_to_temporary_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    expected = tmp_path / f"broadloom-{os.getuid()}"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing"))
    assert runtime_directory() == expected
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert private_directory() == expected


def test_json_escapes_characters_that_a_terminal_acts_on() -> None:
    value = {"name": "ada\u202e\u2066\x9b31m\x7f \u2028", "text": "Grüße, 世界 🧵", "private": "\U000f0000"}
    text = to_json(value)
    assert text.isprintable()
    assert "Grüße, 世界 🧵" in text
    assert json.loads(text) == value
