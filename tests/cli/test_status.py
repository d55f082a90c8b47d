"""`broadloom status` and `broadloom watch`, and the sockets behind them."""

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
from broadloom.transport.event_loop import run as run_loop
from tests.cli.running import CommandProcess, listening, new_channel, run, running_command


@pytest.fixture
def pair() -> Iterator[tuple[str, CommandProcess]]:
    """Two listeners of one channel."""
    channel = new_channel()
    with listening(channel) as first, listening(channel):
        first.wait_for_output("is a neighbour")
        yield channel, first


def test_status_and_watch(pair: tuple[str, CommandProcess]) -> None:
    channel, first = pair
    code, out, err = run("status")
    assert (code, err) == (0, "")
    assert out.count(channel) == 2
    assert "connected" in out
    assert "1 of 4" in out
    assert "broadloom listen" in out

    code, out, _ = run("status", channel, "--json")
    told = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert {each["pid"] for each in told} >= {first.process.pid}
    assert [each["neighbors"][0]["peer_id"] for each in told] == [each["peer_id"] for each in reversed(told)]
    assert all(each["security"] == "tls" and each["counters"]["sent"] == 0 for each in told)

    code, out, err = run("watch")
    assert (code, out) == (2, "")
    assert all(each["peer_id"][:8] in err for each in told)
    assert "--peer" in err

    code, out, err = run("watch", "--peer", told[0]["peer_id"][:6], "--once")
    assert (code, err) == (0, "")
    for expected in (told[0]["peer_id"], channel, told[1]["peer_id"][:8], told[1]["address"], "everyone is linked"):
        assert expected in out


def test_watching_until_ctrl_c_or_until_it_leaves() -> None:
    channel = new_channel()
    with listening(channel) as listener:
        with running_command("watch", channel, "--every", "0.1", terminal=True) as watch:
            watch.wait_for_output("a second")  # from the second picture on
            watch.signal(signal.SIGINT)
            assert watch.wait().code == 0
        with running_command("watch", channel, "--every", "0.1") as watch:
            watch.wait_for_output("a second")
            listener.signal(signal.SIGINT)
            code, _, err = watch.wait()
    assert code == 0
    assert "has left" in err


def test_nobody_runs_here() -> None:
    with pytest.raises(LocalPeersError, match="no peer of this user exposes its status"):
        require_local_peers("", "")
    with pytest.raises(LocalPeersError, match="no peer of chess/x with an id that begins with 12"):
        require_local_peers("chess/x", "12")


def test_a_program_makes_itself_visible(sockets: Path) -> None:
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


def test_sockets_of_the_dead_are_removed(sockets: Path) -> None:
    directory = private_directory()
    assert directory == sockets
    assert directory.stat().st_mode & 0o777 == 0o700
    dead, fresh, hidden = directory / "00aa.sock", directory / ".00bb.sock", directory / ".00cc.sock"
    for path in (dead, fresh, hidden):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    os.utime(hidden, (0, 0))
    assert find_local_peers() == []
    assert sorted(sockets.iterdir()) == [fresh]  # whoever has just made it is about to give it its name


def test_one_that_does_not_answer_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broadloom.channel.status_socket.RESPONSE_TIMEOUT_S", 0.05)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(private_directory() / "00aa.sock"))
        listener.listen()
        (found,) = find_local_peers()
        assert found.status is None
        assert find_local_peers("some/channel") == []


def test_a_directory_that_is_not_ours_alone_is_not_used(sockets: Path, tmp_path: Path) -> None:
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


def test_what_cannot_be_seen_still_works(sockets: Path) -> None:
    sockets.write_text("in the way")
    code, out, err = run("listen", new_channel(), "--for", "0")
    assert (code, out) == (0, "")
    assert "`broadloom status` cannot show this peer" in err


def test_without_a_runtime_directory_the_temporary_one_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    expected = tmp_path / f"broadloom-{os.getuid()}"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing"))
    assert runtime_directory() == expected
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert private_directory() == expected
