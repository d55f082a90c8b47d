"""`weft status` and `weft watch`, and the sockets behind them."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from tests.commands.running import Running, listening, new_channel, run, running
from weft.commands.errors import Failed
from weft.commands.peers_here import peers_here, some_peers_here
from weft.commands.visible import NotPrivate, private_directory, runtime_directory, visible
from weft.net.loop import run as run_loop


@pytest.fixture
def pair() -> Iterator[tuple[str, Running]]:
    """Two listeners of one channel."""
    channel = new_channel()
    with listening(channel) as first, listening(channel):
        first.until("is a neighbour")
        yield channel, first


def test_status_and_watch(pair: tuple[str, Running]) -> None:
    channel, first = pair
    code, out, err = run("status")
    assert (code, err) == (0, "")
    assert out.count(channel) == 2
    assert "connected" in out
    assert "1 of 4" in out
    assert "weft listen" in out

    code, out, _ = run("status", channel, "--json")
    told = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert {each["pid"] for each in told} >= {first.process.pid}
    assert [each["neighbours"][0]["peer"] for each in told] == [each["peer"] for each in reversed(told)]
    assert all(each["security"] == "tls" and each["counters"]["sent"] == 0 for each in told)

    code, out, err = run("watch")
    assert (code, out) == (2, "")
    assert all(each["peer"][:8] in err for each in told)
    assert "--peer" in err

    code, out, err = run("watch", "--peer", told[0]["peer"][:6], "--once")
    assert (code, err) == (0, "")
    for expected in (told[0]["peer"], channel, told[1]["peer"][:8], told[1]["address"], "everyone is linked"):
        assert expected in out


def test_watching_until_ctrl_c_or_until_it_leaves() -> None:
    channel = new_channel()
    with listening(channel) as listener:
        with running("watch", channel, "--every", "0.1", terminal=True) as watch:
            watch.until("a second")  # from the second picture on
            watch.signal(signal.SIGINT)
            assert watch.ended().code == 0
        with running("watch", channel, "--every", "0.1") as watch:
            watch.until("a second")
            listener.signal(signal.SIGINT)
            code, _, err = watch.ended()
    assert code == 0
    assert "has left" in err


def test_nobody_runs_here() -> None:
    with pytest.raises(Failed, match="no peer runs on this machine"):
        some_peers_here("", "")
    with pytest.raises(Failed, match="no peer of chess/x whose id begins with 12 runs"):
        some_peers_here("chess/x", "12")


def test_a_program_makes_itself_visible(sockets: Path) -> None:
    async def look() -> None:
        async with weft.connect(new_channel()) as channel:
            async with visible(channel, program="my game"):
                (found,) = await asyncio.to_thread(peers_here)
                assert found.told is not None
                assert found.told["program"] == "my game"
                assert found.told["pid"] == os.getpid()
                assert found.told["state"] == "connected"
                assert found.peer == f"{channel.peer:016x}"
                assert await asyncio.to_thread(peers_here, "other/channel") == []
                reader, writer = await asyncio.open_unix_connection(str(found.path))
                for request, answer in ((b"nonsense\n", b"error"), (b"status\n", b"connected")):
                    writer.write(request)
                    assert answer in await reader.readline()
                writer.write(b"x" * 5000)
                assert await reader.read() == b""
                writer.close()
            assert await asyncio.to_thread(peers_here) == []

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
    assert peers_here() == []
    assert sorted(sockets.iterdir()) == [fresh]  # whoever has just made it is about to give it its name


def test_one_that_does_not_answer_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.commands.peers_here.ANSWER_S", 0.05)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(private_directory() / "00aa.sock"))
        listener.listen()
        (found,) = peers_here()
        assert found.told is None
        assert peers_here("some/channel") == []


def test_a_directory_that_is_not_ours_alone_is_not_used(sockets: Path, tmp_path: Path) -> None:
    private_directory().chmod(0o755)
    with pytest.raises(NotPrivate, match="XDG_RUNTIME_DIR"):
        private_directory()
    with pytest.raises(Failed, match="XDG_RUNTIME_DIR"):
        peers_here()
    sockets.rmdir()
    tmp_path.chmod(0o700)
    sockets.symlink_to(tmp_path)
    with pytest.raises(NotPrivate):
        private_directory()


def test_what_cannot_be_seen_still_works(sockets: Path) -> None:
    sockets.write_text("in the way")
    code, out, err = run("listen", new_channel(), "--for", "0")
    assert (code, out) == (0, "")
    assert "cannot be seen by `weft status`" in err


def test_without_a_runtime_directory_the_temporary_one_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    expected = tmp_path / f"weft-{os.getuid()}"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing"))
    assert runtime_directory() == expected
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert private_directory() == expected
