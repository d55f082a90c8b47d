"""`broadloom send` and `broadloom listen`, with each other and with peers of the test process."""

import base64
import json
import signal
from datetime import datetime
from hashlib import sha256
from pathlib import Path

import pytest

from broadloom.channel.status_socket import find_local_peers
from broadloom.protocol.events import LinkDownReason
from tests.cli.harness import INTERRUPTED, listening, member, new_channel, run, running_command
from tests.support import wait_until


def objects(out: str) -> list[dict]:
    return [json.loads(line) for line in out.splitlines()]


def test_sent_messages_are_printed_as_json() -> None:
    channel = new_channel()
    with listening(channel, "--json", "--count", "5") as listener:
        assert run("send", channel, "hello", "world") == (0, "", "")
        assert run("send", channel, "-", typed="one\r\ntwo\n\nlast") == (0, "", "")
        listener.wait_for_output("last")
        code, out, err = listener.wait()
    assert (code, err) == (0, "")
    lines = objects(out)
    messages = [each for each in lines if "event" not in each]
    assert [each.get("text") for each in messages] == ["hello world", "one", "two", "", "last"]
    assert [each["sequence"] for each in messages] == [1, 1, 2, 3, 4]
    assert {len(each["author"]) for each in messages} == {16}
    assert all(each["hops"] == 1 and each["name"] == "" for each in messages)
    assert all(datetime.fromisoformat(each["time"]).tzinfo is not None for each in messages)
    assert lines[0]["event"] == "joined"
    assert lines[0]["channel"] == channel
    # An event is printed after the messages that arrived before it.
    lines = [each for each in lines if not each.get("event", "").startswith("member_")]
    assert [each.get("event", "message") for each in lines[1:4]] == ["link_up", "message", "link_down"]
    assert lines[3]["reason"] == "peer_left"


def test_listen_prints_messages_whose_topic_matches_and_no_others() -> None:
    channel = new_channel()
    with (
        listening(channel, "--json", "--topic", "sports/**", "--count", "3") as sports,
        listening(channel, "--topic", "sports/*/scores", "--count", "1") as scores,
        listening(channel, "--json", "--count", "5") as everything,
    ):
        for words in (
            ("--topic", "weather/berlin", "Rain"),
            ("--topic", "sports/nfl", "Kickoff", "at", "noon"),
            ("no topic",),
            ("--topic", "sports/nfl/scores", "--header", "quarter=2", "17:3"),
        ):
            assert run("send", channel, *words) == (0, "", "")
        assert run("send", channel, "--topic", "sports", "-", typed="a line\n") == (0, "", "")
        results = [each.wait() for each in (sports, scores, everything)]
    assert [(result.code, result.err) for result in results] == [(0, "")] * 3
    of_sports = [
        ("sports", "a line", None),
        ("sports/nfl", "Kickoff at noon", None),
        ("sports/nfl/scores", "17:3", {"quarter": "2"}),
    ]
    assert topics_and_texts(results[0].out) == of_sports
    others = [(None, "no topic", None), ("weather/berlin", "Rain", None)]
    assert topics_and_texts(results[2].out) == [others[0], *of_sports, others[1]]
    lines = [line for line in results[1].out.splitlines() if not line.startswith(("+", "-", "joined"))]
    assert [line.partition(" ")[2] for line in lines] == ["[sports/nfl/scores]: 17:3"]


def topics_and_texts(out: str) -> list[tuple[str | None, str, dict | None]]:
    """Topic, text and headers of each message, sorted by topic: messages of several senders have no common order."""
    messages = [each for each in objects(out) if "event" not in each]
    found = [(each.get("topic"), each["text"], each.get("headers")) for each in messages]
    return sorted(found, key=lambda message: message[0] or "")


def test_files_are_sent_with_name_and_hash(tmp_path: Path) -> None:
    channel = new_channel()
    large, small = tmp_path / "large", tmp_path / "small"
    large.write_bytes(bytes(range(256)) * 3600)
    small.write_text("ä small one\n")
    with listening(channel, "--json", "--count", "3") as listener:
        sent = run("send", channel, "--file", str(large), "--file", str(small), "--file", "-", typed="piped\nin")
        assert sent == (0, "", "")
        first, second, third = (each for each in objects(listener.wait().out) if "event" not in each)
    for received, path in ((first, large), (second, small)):
        content = path.read_bytes()
        assert received["file"] == {"name": path.name, "size": len(content), "sha256": sha256(content).hexdigest()}
        assert not received.keys() & {"text", "data"}
    assert third["text"] == "piped\nin"
    assert "file" not in third


def test_binary_message_is_printed_as_base64_in_json() -> None:
    channel = new_channel()
    with member(channel) as other, listening(channel, "--json", "--count", "1") as listener:
        other.wait_for_peer()
        other.channel.broadcast(b"\xff\xd8 no text")
        (received,) = (each for each in objects(listener.wait().out) if "event" not in each)
    assert base64.b64decode(received["data"]) == b"\xff\xd8 no text"


def test_control_characters_of_messages_are_escaped() -> None:
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
        f"{me}: (2 bytes of binary data)",
    ]


def test_send_fails_when_no_peer_joins() -> None:
    channel = new_channel()
    code, out, err = run("send", channel, "x", "--timeout", "1.5")
    assert (code, out) == (1, "")
    assert f"no other peers found on {channel}" in err
    assert "nothing was sent" in err
    assert len(err.splitlines()) == 1


def test_send_waits_for_first_peer() -> None:
    channel = new_channel()
    with running_command("send", channel, "at last") as sender:
        with member(channel, timeout_s=30) as other:
            assert other.text() == "at last"
        assert sender.wait() == (0, "", "")


def test_too_large_line_is_rejected_with_number_of_sent_messages() -> None:
    channel = new_channel()
    with member(channel):
        code, _, err = run("send", channel, typed="fine\n" + "x" * (2 << 20))
        assert code == 1
        assert "message 2 was not sent" in err
        assert "too large" in err
        assert "1 sent before it" in err


def test_listen_stops_after_duration_and_fails_below_count() -> None:
    channel = new_channel()
    assert run("listen", channel, "--duration", "0.1") == (0, "", "")
    code, out, err = run("listen", channel, "--duration", "0.1", "--count", "2")
    assert (code, out) == (1, "")
    assert "2 of the expected messages" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_stops_listen_gracefully(number: int, sockets: Path) -> None:
    channel = new_channel()
    with member(channel) as other, listening(channel) as listener:
        other.wait_for_peer()
        listener.signal(number)
        code, _, err = listener.wait()
        assert (code, err) == (0, "")
        wait_until(lambda: bool(other.links_down), "the loss of the neighbor")
        assert [gone.reason for gone in other.links_down] == [LinkDownReason.PEER_LEFT]
        assert list(sockets.iterdir()) == []


def test_ctrl_c_before_count_is_reached_is_no_success() -> None:
    channel = new_channel()
    with listening(channel, "--count", "1") as listener:
        listener.signal(signal.SIGINT)
        assert listener.wait().code == INTERRUPTED


def test_second_ctrl_c_exits_at_once(sockets: Path) -> None:
    channel = new_channel()
    with listening(channel) as paused, listening(channel) as listener:
        wait_until(lambda: "connected, at" in listener.out + paused.out, "the link")
        paused.signal(signal.SIGSTOP)  # so that leaving takes a while
        listener.signal(signal.SIGINT)
        wait_until(lambda: len(list(sockets.iterdir())) == 1, "leaving")
        listener.signal(signal.SIGINT)
        code, _, err = listener.wait()
        assert code == INTERRUPTED
        assert "without leaving the channel" in err


def test_listen_exits_quietly_when_its_reader_closes_the_pipe() -> None:
    channel = new_channel()
    with member(channel) as other, running_command("listen", channel, "--events") as listener:
        listener.wait_for_output("joined")
        assert listener.process.stdout is not None
        listener.stop_reading()
        # As `| head -1` does. It is noticed without a further message.
        listener.process.stdout.close()
        assert listener.process.wait(20) == 0
        assert listener.err == ""
        wait_until(lambda: bool(other.links_down), "the loss of the neighbor")
        assert other.links_down[0].reason is LinkDownReason.PEER_LEFT


def test_blocked_reader_does_not_block_peer() -> None:
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
            "all deliveries, although the output is blocked",
        )
        listener.signal(signal.SIGINT)
        assert listener.process.wait(20) == 0
        wait_until(lambda: bool(other.links_down), "the loss of the neighbor")
        assert other.links_down[0].reason is LinkDownReason.PEER_LEFT


def test_listen_exits_when_channel_is_closed() -> None:
    channel = new_channel()
    with member(channel) as other, listening(channel) as listener:
        other.wait_for_peer()
        other.channel.close_channel()
        code, _, err = listener.wait()
    assert code == 0
    assert "closed for all members" in err
