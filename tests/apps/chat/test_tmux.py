"""The real thing: three people in three terminals, each a process of its own, found only by the channel's name."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from rich.cells import cell_len

import weft.blocking
from tests.commands.running import WEFT, new_channel, short_directory, wait_until
from weft.groups.blocking import groups

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]


class Terminals:
    """A tmux server of our own."""

    def __init__(self, folder: Path) -> None:
        self._name = f"weft-{uuid4().hex[:8]}"
        self._env = {**os.environ, "XDG_DATA_HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), "LANG": "C.UTF-8"}
        for name in ("WEFT_KEY", "WEFT_PORTALS", "NO_COLOR", "TMUX"):
            self._env.pop(name, None)

    def tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._name, "-f", "/dev/null", *words],
            env=self._env, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        return done.stdout

    def chat(self, name: str, channel: str, size: tuple[int, int] = (120, 36)) -> None:
        """A terminal that stays when the chat has ended, and says with what code."""
        words = f"{WEFT} chat {name} --channel {channel}; echo ended with $?; exec cat"
        self.tmux("new-session", "-d", "-s", name, "-x", str(size[0]), "-y", str(size[1]), words)

    def close(self, name: str) -> None:
        self.tmux("kill-session", "-t", name)

    def type(self, name: str, *keys: str) -> None:
        self.tmux("send-keys", "-t", name, *keys)

    def screen(self, name: str) -> str:
        return self.tmux("capture-pane", "-p", "-t", name)

    def cursor_line(self, name: str) -> int:
        return int(self.tmux("display-message", "-p", "-t", name, "#{cursor_y}"))

    def sees(self, name: str, *words: str) -> None:
        try:
            wait_until(lambda: all(word in self.screen(name) for word in words), f"{words} on {name}'s screen", 60)
        except AssertionError as problem:
            raise AssertionError(f"{problem}\n{self.screen(name)}") from None


@pytest.fixture
def terminals() -> Iterator[Terminals]:
    folder = short_directory()
    made = Terminals(folder)
    yield made
    made.tmux("kill-server")
    shutil.rmtree(folder, ignore_errors=True)


def test_three_people(terminals: Terminals) -> None:
    channel = new_channel()
    terminals.chat("Anna", channel)
    terminals.sees("Anna", "No groups yet", "alone")
    terminals.chat("Ben", channel, (80, 24))
    terminals.chat("Cleo", channel)
    for name in ("Anna", "Ben", "Cleo"):
        terminals.sees(name, "connected · 2 neighbours")
    terminals.type("Anna", "n")
    terminals.sees("Anna", "New group")
    terminals.type("Anna", "Chess club")
    terminals.sees("Anna", "Chess club")
    line = terminals.cursor_line("Anna")
    terminals.type("Anna", "Enter")
    wait_until(lambda: terminals.cursor_line("Anna") != line, "the next field")
    terminals.type("Anna", "on Wednesdays", "Enter")
    for name in ("Ben", "Cleo"):
        terminals.sees(name, "+ Chess club")
        terminals.type(name, "i")
        terminals.sees(name, "You are invited")
        terminals.type(name, "j")
        terminals.sees(name, "Nothing was said")
    terminals.sees("Anna", "3 here")
    # All in one go, as fast as it can be typed.
    terminals.type("Anna", "w", "Who plays white?", "Enter")
    terminals.sees("Ben", "Anna  Who plays white?")
    terminals.type("Ben", "r", "I do 漢字 👍", "Enter", "Escape")
    for name in ("Anna", "Ben", "Cleo"):
        terminals.sees(name, "▾ Anna  Who plays white?", "└── Ben  I do 漢字 👍")
    with weft.blocking.connect(channel) as dora, groups(dora, "Dora\x1b[2J") as there:
        wait_until(lambda: bool(there.known()), "the group")
        club = there.join(there.known()[0])
        club.send_text("\x1b[2J\x1b[H\x1b]0;x\x07 \x9b")
        club.send_text("👩\u200d👩\u200d👧 ❤\ufe0f 👍🏽 🇩🇪 e\u0301")
        club.send_text("한글 ｆｕｌｌ नमस्ते \u202etxet")
        for name, width in (("Cleo", 120), ("Ben", 80)):
            terminals.sees(name, r"\x1b[2J\x1b[H\x1b]0;x\x07 \x9b", "👩👩👧 ❤ 👍", r"\u202etxet")
            lines = [line for line in terminals.screen(name).splitlines() if line.startswith("│")]
            assert {cell_len(line) for line in lines} == {width}, "the right edge is straight"

    terminals.type("Cleo", "C-q")
    terminals.sees("Cleo", "ended with 0")
    terminals.sees("Anna", "○ Cleo", "gone")
    terminals.type("Anna", "And who black?", "Enter")
    terminals.sees("Ben", "Anna  And who black?")
    terminals.close("Cleo")
    terminals.chat("Cleo", channel)
    terminals.sees("Cleo", "└── Ben  I do", "Anna  And who black?", "3 here")
    terminals.chat("Second", f"{channel} --store nowhere/x --memory")
    terminals.sees("Second", "give --store or --memory, not both", "ended with 2")
    terminals.tmux(
        "new-session", "-d", "-s", "again", "-x", "200", "-y", "9", f"{WEFT} chat Ben --channel {channel}; exec cat"
    )
    terminals.sees("again", "Ben is in this chat already")
    for name in ("Anna", "Ben", "Cleo"):
        terminals.type(name, "C-q")
        terminals.sees(name, "ended with 0")
    told = subprocess.run(
        [WEFT, "chat", "export", "Chess club", "--channel", channel, "--name", "Cleo"],
        env=terminals._env, capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    texts = ["white?", "I do 漢字", "👩\u200d👩", "black?"]
    assert [text for line in told.splitlines() for text in texts if text in line] == texts


def test_a_signal_ends_it_in_good_order(terminals: Terminals) -> None:
    channel = new_channel()
    terminals.chat("Anna", channel)
    terminals.sees("Anna", "No groups yet")
    (shell,) = terminals.tmux("list-panes", "-t", "Anna", "-F", "#{pane_pid}").split()
    (process,) = subprocess.run(
        ["pgrep", "-P", shell], capture_output=True, text=True, timeout=30, check=True
    ).stdout.split()
    os.kill(int(process), 15)
    terminals.sees("Anna", "ended with 0")
    assert "No groups yet" not in terminals.screen("Anna"), "the terminal is as it was"
