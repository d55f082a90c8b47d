"""The real thing: three people in three terminals, each a process of its own, found only by the channel's name."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from rich.cells import cell_len

import broadloom.sync
from broadloom.groups.sync import Groups
from tests.cli.harness import COMMAND, new_channel, short_directory
from tests.support import wait_until

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]


class Terminals:
    """A tmux server of our own."""

    def __init__(self, folder: Path) -> None:
        self._name = f"broadloom-{uuid4().hex[:8]}"
        self._env = {**os.environ, "XDG_DATA_HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), "LANG": "C.UTF-8"}
        # pytest imports readline, which hands the size of the terminal of the tests to the workers of xdist.
        for name in ("BROADLOOM_KEY", "BROADLOOM_BOOTSTRAP", "NO_COLOR", "TMUX", "COLUMNS", "LINES"):
            self._env.pop(name, None)

    def tmux(self, *args: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._name, "-f", "/dev/null", *args],
            env=self._env, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        return done.stdout

    def chat(self, name: str, channel: str, size: tuple[int, int] = (120, 36)) -> None:
        """A terminal that stays when the chat has ended, and says with what code."""
        command = f"{COMMAND} chat {name} --channel {channel}; echo ended with $?; exec cat"
        self.tmux("new-session", "-d", "-s", name, "-x", str(size[0]), "-y", str(size[1]), command)

    def close(self, name: str) -> None:
        self.tmux("kill-session", "-t", name)

    def type(self, name: str, *keys: str) -> None:
        self.tmux("send-keys", "-t", name, *keys)

    def screen(self, name: str) -> str:
        return self.tmux("capture-pane", "-p", "-t", name)

    def cursor_line(self, name: str) -> int:
        return int(self.tmux("display-message", "-p", "-t", name, "#{cursor_y}"))

    def wait_for_text(self, name: str, *texts: str) -> None:
        wait_until(
            lambda: all(text in self.screen(name) for text in texts),
            lambda: f"{self.screen(name)}\n{texts} on {name}'s screen",
            timeout_s=60,
        )


@pytest.fixture
def terminals() -> Iterator[Terminals]:
    folder = short_directory()
    server = Terminals(folder)
    yield server
    server.tmux("kill-server")
    shutil.rmtree(folder, ignore_errors=True)


def test_three_terminals_share_a_conversation(terminals: Terminals) -> None:
    channel = new_channel()
    terminals.chat("Anna", channel)
    terminals.wait_for_text("Anna", "No groups yet", "no other peers")
    terminals.chat("Ben", channel, (80, 24))
    terminals.chat("Cleo", channel)
    for name in ("Anna", "Ben", "Cleo"):
        terminals.wait_for_text(name, "connected · 2 neighbors")
    terminals.type("Anna", "n")
    terminals.wait_for_text("Anna", "New group")
    terminals.type("Anna", "Chess club")
    terminals.wait_for_text("Anna", "Chess club")
    line = terminals.cursor_line("Anna")
    terminals.type("Anna", "Enter")
    wait_until(lambda: terminals.cursor_line("Anna") != line, "the next field")
    terminals.type("Anna", "on Wednesdays", "Enter")
    for name in ("Ben", "Cleo"):
        terminals.wait_for_text(name, "+ Chess club")
        terminals.type(name, "i")
        terminals.wait_for_text(name, "You are invited")
        terminals.type(name, "j")
        terminals.wait_for_text(name, "No messages in")
    terminals.wait_for_text("Anna", "3 online")
    # All in one go, as fast as it can be typed.
    terminals.type("Anna", "w", "Who plays white?", "Enter")
    terminals.wait_for_text("Ben", "Anna  Who plays white?")
    terminals.type("Ben", "r", "I do 漢字 👍", "Enter", "Escape")
    for name in ("Anna", "Ben", "Cleo"):
        terminals.wait_for_text(name, "▾ Anna  Who plays white?", "└── Ben  I do 漢字 👍")
    with broadloom.sync.connect(channel) as dora, Groups(dora, "Dora\x1b[2J") as there:
        wait_until(lambda: bool(there.list_groups()), "the group")
        club = there.join(there.list_groups()[0])
        club.send_text("\x1b[2J\x1b[H\x1b]0;x\x07 \x9b")
        club.send_text("👩\u200d👩\u200d👧 ❤\ufe0f 👍🏽 🇩🇪 e\u0301")
        club.send_text("한글 ｆｕｌｌ नमस्ते \u202etxet")
        for name, width in (("Cleo", 120), ("Ben", 80)):
            terminals.wait_for_text(name, r"\x1b[2J\x1b[H\x1b]0;x\x07 \x9b", "👩👩👧 ❤ 👍", r"\u202etxet")
            lines = [line for line in terminals.screen(name).splitlines() if line.startswith("│")]
            assert {cell_len(line) for line in lines} == {width}, "the right edge is straight"

    terminals.type("Cleo", "C-q")
    terminals.wait_for_text("Cleo", "ended with 0")
    terminals.wait_for_text("Anna", "○ Cleo", "offline")
    terminals.type("Anna", "And who black?", "Enter")
    terminals.wait_for_text("Ben", "Anna  And who black?")
    terminals.close("Cleo")
    terminals.chat("Cleo", channel)
    terminals.wait_for_text("Cleo", "└── Ben  I do", "Anna  And who black?", "3 online")
    terminals.chat("Second", f"{channel} --store nowhere/x --ephemeral")
    terminals.wait_for_text("Second", "use --store or --ephemeral, not both", "ended with 2")
    terminals.tmux(
        "new-session", "-d", "-s", "again", "-x", "200", "-y", "9", f"{COMMAND} chat Ben --channel {channel}; exec cat"
    )
    terminals.wait_for_text("again", "Ben is already in this chat")
    for name in ("Anna", "Ben", "Cleo"):
        terminals.type(name, "C-q")
        terminals.wait_for_text(name, "ended with 0")
    told = subprocess.run(
        [COMMAND, "chat", "export", "Chess club", "--channel", channel, "--name", "Cleo"],
        env=terminals._env, capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    texts = ["white?", "I do 漢字", "👩\u200d👩", "black?"]
    assert [text for line in told.splitlines() for text in texts if text in line] == texts


def test_signal_ends_the_chat_gracefully(terminals: Terminals) -> None:
    channel = new_channel()
    terminals.chat("Anna", channel)
    terminals.wait_for_text("Anna", "No groups yet")
    (shell,) = terminals.tmux("list-panes", "-t", "Anna", "-F", "#{pane_pid}").split()
    (process,) = subprocess.run(
        ["pgrep", "-P", shell], capture_output=True, text=True, timeout=30, check=True
    ).stdout.split()
    os.kill(int(process), 15)
    terminals.wait_for_text("Anna", "ended with 0")
    assert "No groups yet" not in terminals.screen("Anna"), "the terminal is as it was"
