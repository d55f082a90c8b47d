"""`broadloom send` and `broadloom listen`, with each other and with peers of this process."""

import base64
import json
import signal
from datetime import datetime
from hashlib import sha256
from pathlib import Path

import pytest

from broadloom.channel.status_socket import find_local_peers
from broadloom.protocol.events import LinkDownReason
from tests.cli.running import INTERRUPTED, listening, member, new_channel, run, running_command, wait_until


def objects(out: str) -> list[dict]:
    return [json.loads(line) for line in out.splitlines()]


def test_what_is_sent_is_listened_to_as_json() -> None:
    channel = new_channel()
    with listening(channel, "--json", "--count", "5") as listener:
        assert run("send", channel, "hello", "world") == (0, "", "")
        assert run("send", channel, "-", typed="one\r\ntwo\n\nlast") == (0, "", "")
        listener.wait_for_output("last")
        code, out, err = listener.wait()
    assert (code, err) == (0, "")
    told = objects(out)
    messages = [each for each in told if "event" not in each]
    assert [each.get("text") for each in messages] == ["hello world", "one", "two", "", "last"]
    assert [each["sequence"] for each in messages] == [1, 1, 2, 3, 4]
    assert {len(each["author"]) for each in messages} == {16}
    assert all(each["hops"] == 1 and each["name"] == "" for each in messages)
    assert all(datetime.fromisoformat(each["time"]).tzinfo is not None for each in messages)
    assert told[0]["event"] == "joined"
    assert told[0]["channel"] == channel
    # An event is told after the messages that came before it.
    kinds = [each.get("event", "message") for each in told]
    assert kinds[1:4] == ["neighbour", "message", "neighbour lost"]
    assert told[3]["why"] == "peer_left"


def test_files_are_sent_whole(tmp_path: Path) -> None:
    channel = new_channel()
    large, small = tmp_path / "large", tmp_path / "small"
    large.write_bytes(bytes(range(256)) * 3600)
    small.write_text("ä small one\n")
    with listening(channel, "--json", "--count", "3") as listener:
        sent = run("send", channel, "--file", str(large), "--file", str(small), "--file", "-", typed="piped\nin")
        assert sent == (0, "", "")
        first, second, third = (each for each in objects(listener.wait().out) if "event" not in each)
    for told, path in ((first, large), (second, small)):
        content = path.read_bytes()
        assert told["file"] == {"name": path.name, "size": len(content), "sha256": sha256(content).hexdigest()}
        assert not told.keys() & {"text", "data"}
    assert third["text"] == "piped\nin"
    assert "file" not in third


def test_bytes_that_are_no_text_as_json() -> None:
    channel = new_channel()
    with member(channel) as other, listening(channel, "--json", "--count", "1") as listener:
        other.wait_for_peer()
        other.channel.broadcast(b"\xff\xd8 no text")
        (told,) = (each for each in objects(listener.wait().out) if "event" not in each)
    assert base64.b64decode(told["data"]) == b"\xff\xd8 no text"


def test_text_of_others_cannot_steer_a_terminal() -> None:
    channel = new_channel()
    with member(channel) as other, listening(channel, "--count", "3") as listener:
        other.wait_for_peer()
        other.channel.broadcast_text("red \x1b[31malert\x07")
        other.channel.broadcast_text("two lines\nmallory: not mine\n")
        other.channel.broadcast(b"\xff\xfe")
        code, out, _ = listener.wait()
        me = f"{other.channel.peer_id:016x}"[:8]
    assert code == 0
    lines = [line for line in out.splitlines() if not line.startswith(("+", "-", "joined"))]
    assert lines == [
        f"{me}: red \\x1b[31malert\\x07",
        f"{me}: two lines",
        "    mallory: not mine",
        f"{me}: (2 bytes that are no text)",
    ]


def test_nobody_is_there() -> None:
    channel = new_channel()
    code, out, err = run("send", channel, "x", "--timeout", "1.5")
    assert (code, out) == (1, "")
    assert f"nobody else is on {channel}" in err
    assert "nothing was sent" in err
    assert len(err.splitlines()) == 1


def test_a_sender_waits_for_somebody() -> None:
    channel = new_channel()
    with running_command("send", channel, "at last") as sender:
        with member(channel, timeout_s=30) as other:
            assert other.text() == "at last"
        assert sender.wait() == (0, "", "")


def test_too_large_a_message() -> None:
    channel = new_channel()
    with member(channel):
        code, _, err = run("send", channel, typed="fine\n" + "x" * (2 << 20))
        assert code == 1
        assert "message 2 was not sent" in err
        assert "too large" in err
        assert "1 before it were sent" in err


def test_listening_for_a_while_or_for_a_number() -> None:
    channel = new_channel()
    assert run("listen", channel, "--for", "0.1") == (0, "", "")
    code, out, err = run("listen", channel, "--for", "0.1", "--count", "2")
    assert (code, out) == (1, "")
    assert "2 of the messages" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_usual_end_leaves_in_good_order(number: int, sockets: Path) -> None:
    channel = new_channel()
    with member(channel) as other, listening(channel) as listener:
        other.wait_for_peer()
        listener.signal(number)
        code, _, err = listener.wait()
        assert (code, err) == (0, "")
        wait_until(lambda: bool(other.links_down), "the loss of the neighbour")
        assert [gone.reason for gone in other.links_down] == [LinkDownReason.PEER_LEFT]
        assert list(sockets.iterdir()) == []


def test_an_end_before_the_end() -> None:
    """Where something else was waited for, Ctrl-C is no success."""
    channel = new_channel()
    with listening(channel, "--count", "1") as listener:
        listener.signal(signal.SIGINT)
        assert listener.wait().code == INTERRUPTED


def test_the_second_ctrl_c_is_taken_at_its_word(sockets: Path) -> None:
    channel = new_channel()
    with listening(channel) as frozen, listening(channel) as listener:
        listener.wait_for_output("is a neighbour") if "is a neighbour" in listener.out else frozen.wait_for_output(
            "is a neighbour"
        )
        frozen.signal(signal.SIGSTOP)  # it will not answer to the first
        listener.signal(signal.SIGINT)
        wait_until(lambda: len(list(sockets.iterdir())) == 1, "the beginning of the end")
        listener.signal(signal.SIGINT)
        code, _, err = listener.wait()
        assert code == INTERRUPTED
        assert "not left in good order" in err


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    channel = new_channel()
    with member(channel) as other, running_command("listen", channel, "--events") as listener:
        listener.wait_for_output("joined")
        assert listener.process.stdout is not None
        listener.stop_reading()
        # As `| head -1` does. No further message is needed to notice it.
        listener.process.stdout.close()
        assert listener.process.wait(20) == 0
        assert listener.err == ""
        wait_until(lambda: bool(other.links_down), "the loss of the neighbour")
        assert other.links_down[0].reason is LinkDownReason.PEER_LEFT


def test_a_reader_that_does_not_read_stops_nothing() -> None:
    channel = new_channel()
    with member(channel) as other, running_command("listen", channel, "--events") as listener:
        listener.wait_for_output("joined")
        other.wait_for_peer()
        listener.stop_reading()
        for _ in range(70):
            other.channel.broadcast(b"x" * 60_000)
        wait_until(
            lambda: any(
                each.status and each.status["counters"]["delivered"] == 70 for each in find_local_peers(channel)
            ),
            "an answer of the peer, though its output is stuck",
        )
        listener.signal(signal.SIGINT)
        assert listener.process.wait(20) == 0
        wait_until(lambda: bool(other.links_down), "the loss of the neighbour")
        assert other.links_down[0].reason is LinkDownReason.PEER_LEFT


def test_a_channel_that_is_closed_for_all() -> None:
    channel = new_channel()
    with member(channel) as other, listening(channel) as listener:
        other.wait_for_peer()
        other.channel.close_channel()
        code, _, err = listener.wait()
    assert code == 0
    assert "closed for all" in err
