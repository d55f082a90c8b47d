"""What the chat says of itself: states, empty screens, progress; and the documentation says the same."""

import secrets
from dataclasses import replace
from pathlib import Path

import pytest

from tests.apps.chat.at_screen import SMALL, SOON, at_screen
from tests.channel.joined import joined
from tests.net.lines import play, until
from weft.apps.chat.deeds import COMMAND_KEYS
from weft.apps.chat.teaching import state_of
from weft.apps.chat.windows import KEYS, SIGNS
from weft.groups import groups

DOCUMENT = Path(__file__).parents[3] / "docs" / "chat.md"


def test_every_key_is_documented_in_the_chat_and_beside_it() -> None:
    text = DOCUMENT.read_text()
    for keys, what in KEYS:
        assert f"| {keys} | {what} |" in text
    told = " ".join(keys for keys, _ in KEYS).split()
    spelled = {"slash": "/", "left_square_bracket": "[", "right_square_bracket": "]", "question_mark": "?"}
    for key, _, _ in COMMAND_KEYS:
        assert key == "question_mark" or spelled.get(key, key) in told, key
    assert "`?` shows them" in text
    assert {"●", "▾", "↳"} <= {sign for signs, _ in SIGNS for sign in signs}


@pytest.mark.parametrize(
    ("state", "is_alone", "told"),
    [
        ("connected", False, "● connected · 1 neighbour"),
        ("connected", True, "○ alone · 0 neighbours"),
        ("seeking", True, "◌ seeking · 0 neighbours"),
        ("partially connected", False, "◌ connecting · 1 neighbour"),
        ("left", True, "× the channel was closed"),
    ],
)
def test_states(state: str, is_alone: bool, told: str) -> None:
    async def main() -> None:
        async with joined(2) as (one, _):
            await until(lambda: one.status().neighbours)
            status = one.status()
            assert state_of(replace(status, state=state, neighbours=() if is_alone else status.neighbours)).text == told

    play(main)


def test_progress_of_catching_up() -> None:
    slow = replace(SOON, pages_bytes_per_s=300_000, pages_burst_bytes=40_000, page_bytes=20_000, turn_bytes=60_000)

    async def main() -> None:
        async with (
            joined(2) as (one, two),
            groups(two, "Ben", settings=slow) as ben,
            at_screen(one, "Anna", SMALL) as anna,
        ):
            club = await ben.create("Chess club")
            for number in range(300):
                await club.send_text(f"{number} {secrets.token_hex(500)}")
            await anna.sees("+ Chess club")
            await anna.press("i", "j")
            await anna.sees("catching up █", " of 300", "░")
            await anna.sees("catching up ", " %")
            talk = anna.talks.talks[club.id]
            await until(lambda: talk.tree is not None and len(talk.tree) == 300)
            await anna.sees("… v: whole message")
            await anna.sees_no("catching up")

    play(main)


def test_a_channel_that_was_closed() -> None:
    async def main() -> None:
        async with joined(1) as (one,), at_screen(one, "Anna", SMALL, notes=True) as anna:
            talk = await anna.talks.create("Club")
            anna.app.open_group(talk)
            one.vanish()
            await anna.sees("× the channel was closed")
            await anna.press("w")
            await anna.type("too late", "enter")
            await anna.sees("the channel was closed: nothing", "too late")
            assert not talk.tree, "nobody would hear it, so it was not said"

    play(main)
