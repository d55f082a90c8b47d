"""`broadloom join`, through pipes and at a terminal."""

import signal
import termios
from pathlib import Path

from broadloom.protocol.events import LinkDownReason
from tests.cli.harness import member, new_channel, run, running_command, send_damaged
from tests.support import wait_until


def test_join_broadcasts_and_prints_lines_through_pipes() -> None:
    channel = new_channel()
    with member(channel) as other, running_command("join", channel) as joined:
        joined.wait_for_output("joined")
        joined.type("first\nsecond\n")
        assert [other.text(), other.text()] == ["first", "second"]
        other.channel.broadcast_text("an answer")
        joined.wait_for_output(f"{other.channel.peer_id:016x}"[:8] + ": an answer\n")
        joined.type("without an end")
        joined.end_of_input()
        code, out, err = joined.wait()
        assert (code, err) == (0, "")
        assert out.startswith(f"* joined {channel} as ")
        assert other.text() == "without an end"
        wait_until(lambda: bool(other.links_down), "the loss of the neighbor")
        assert other.links_down[0].reason is LinkDownReason.PEER_LEFT


def test_received_file_is_printed_as_one_line(tmp_path: Path) -> None:
    channel, path = new_channel(), tmp_path / "a \x1b[31m file.bin"
    path.write_bytes(bytes(range(256)) * 1000)
    with member(channel) as other, running_command("join", channel, "--keep-open") as joined:
        joined.wait_for_output("joined")
        other.wait_for_peer()
        other.channel.broadcast_file(path)
        joined.wait_for_output(f"{other.channel.peer_id:016x}"[:8] + ": (file a \\x1b[31m file.bin, 256,000 bytes)\n")
        send_damaged(other.channel, "report.txt")
        joined.wait_for_output(": (the file 'report.txt' is damaged: its content does not match its hash)\n")
        other.channel.broadcast_text("after")
        joined.wait_for_output(": after\n")
        joined.signal(signal.SIGINT)
        assert joined.wait().err == ""


def test_keep_open_stays_connected_after_end_of_input() -> None:
    channel = new_channel()
    with running_command("join", channel, "--keep-open") as joined:
        joined.end_of_input()
        joined.wait_for_output("joined")
        with member(channel) as other:
            other.channel.broadcast_text("still there?")
            joined.wait_for_output(": still there?")
        joined.wait_for_output(" left\n")
        joined.signal(signal.SIGINT)
        code, out, err = joined.wait()
    assert (code, err) == (0, "")
    assert " connected, at 127.0.0.1:" in out


def test_join_fails_when_messages_reach_no_peer() -> None:
    code, _, err = run("join", new_channel(), typed="hello?\n")
    assert code == 1
    assert "your messages reached nobody" in err


def test_incoming_message_is_printed_above_typed_line() -> None:
    channel = new_channel()
    with member(channel) as other, running_command("join", channel, terminal=True) as joined:
        before = termios.tcgetattr(joined.terminal)
        joined.wait_for_output("joined")
        wait_until(lambda: termios.tcgetattr(joined.terminal) != before, "raw mode")
        joined.type("hallo")
        joined.wait_for_output("> hallo")
        joined.type("\x7f\x7f\x7f\x7fel")
        joined.wait_for_output("> hel")
        other.channel.broadcast_text("an interruption")
        joined.wait_for_output(": an interruption\r\n> hel")
        joined.type("lo\n")
        assert other.text() == "hello"
        joined.wait_for_output("> hello\r\n")
        joined.type("\x1b[A\x04")  # an arrow key is ignored, Ctrl-D ends the input
        assert joined.wait().code == 0
        assert termios.tcgetattr(joined.terminal) == before


def test_terminal_mode_is_restored_after_ctrl_c() -> None:
    with running_command("join", new_channel(), terminal=True) as joined:
        before = termios.tcgetattr(joined.terminal)
        joined.wait_for_output("> ")
        joined.type("half a li")
        joined.wait_for_output("half a li")
        joined.signal(signal.SIGINT)
        assert joined.wait().code == 0
        assert termios.tcgetattr(joined.terminal) == before
