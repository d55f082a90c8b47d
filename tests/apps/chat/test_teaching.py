"""What the chat says of itself: states, empty screens, progress; and the documentation says the same."""

import secrets
from dataclasses import replace
from pathlib import Path

import pytest

from broadloom.apps.chat.actions import COMMAND_KEYS
from broadloom.apps.chat.dialogs import KEYS, SYMBOLS
from broadloom.apps.chat.placeholders import status_text
from broadloom.groups import Groups
from broadloom.groups.suppression import TokenBucket
from tests.apps.chat.at_screen import FAST_SETTINGS, SMALL, chat_screen
from tests.channel.joined import connected_channels
from tests.support import eventually

DOCUMENT = Path(__file__).parents[3] / "docs" / "chat.md"


def test_every_key_is_documented_in_chat_and_docs() -> None:
    text = DOCUMENT.read_text()
    for keys, what in KEYS:
        assert f"| {keys} | {what} |" in text
    told = " ".join(keys for keys, _ in KEYS).split()
    spelled = {"slash": "/", "left_square_bracket": "[", "right_square_bracket": "]", "question_mark": "?"}
    for key, _, _ in COMMAND_KEYS:
        assert key == "question_mark" or spelled.get(key, key) in told, key
    assert "`?` shows them" in text
    assert {"●", "▾", "↳"} <= {sign for signs, _ in SYMBOLS for sign in signs}


@pytest.mark.parametrize(
    ("state", "is_alone", "told"),
    [
        ("connected", False, "● connected · 1 neighbor"),
        ("connected", True, "○ no other peers · 0 neighbors"),
        ("discovering", True, "◌ discovering · 0 neighbors"),
        ("joining", False, "◌ joining · 1 neighbor"),
        ("left", True, "× disconnected"),
    ],
)
async def test_connection_state_is_shown_in_words(state: str, is_alone: bool, told: str) -> None:
    async with connected_channels(2) as (one, _):
        await eventually(lambda: one.status().neighbors)
        status = one.status()
        assert status_text(replace(status, state=state, neighbors=() if is_alone else status.neighbors)).text == told


class PausedTokens(TokenBucket):
    """Lets the first pages through, and the others once it is released: what is seen meanwhile stays on the screen."""

    def __init__(self, first_bytes: int) -> None:
        super().__init__(bytes_per_s=1.0, burst_bytes=1.0, now=0.0)
        self._first_bytes = first_bytes
        self.is_released = False

    def wait_s(self, now: float) -> float:
        return 0.0 if self.is_released or self._first_bytes > 0 else 0.02

    def consume(self, size: int, now: float) -> None:
        self._first_bytes -= size


async def test_progress_of_catching_up_is_shown() -> None:
    in_pages = replace(FAST_SETTINGS, history_page_bytes=20_000, history_turn_bytes=60_000)
    # Anna must not give up while the pages are held back, nor on a busy machine before the first one comes.
    patient = replace(FAST_SETTINGS, reply_window_s=3.0, page_timeout_s=60.0)

    async with (
        connected_channels(2) as (one, two),
        Groups(two, "Ben", settings=in_pages) as ben,
        chat_screen(one, "Anna", SMALL, settings=patient) as anna,
    ):
        tokens = ben._participant.history_tokens = PausedTokens(first_bytes=40_000)
        club = await ben.create("Chess club")
        for number in range(300):
            await club.send_text(f"{number} {secrets.token_hex(500)}")
        await anna.wait_for_text("+ Chess club")
        await anna.press("i", "j")
        await anna.wait_for_text("catching up █", " of 300", "░")
        await anna.wait_for_text("catching up ", " %")
        tokens.is_released = True
        talk = anna.chat.group_models[club.id]
        await eventually(lambda: talk.tree is not None and len(talk.tree) == 300)
        await anna.wait_for_text("… v: full message")
        await anna.wait_for_no_text("catching up")


async def test_closed_channel_is_reported() -> None:
    async with connected_channels(1) as (one,), chat_screen(one, "Anna", SMALL, show_notices=True) as anna:
        talk = await anna.chat.create("Club")
        anna.app.open_group(talk)
        one.abort()
        await anna.wait_for_text("× disconnected")
        await anna.press("w")
        await anna.type("too late", "enter")
        await anna.wait_for_text("the channel was closed: messages", "too late")
        assert not talk.tree, "nobody would hear it, so it was not said"
