"""A thousand messages a second: all are there, the screen is drawn a few times a second, keys are obeyed at once."""

import statistics
import time
from typing import Any

from tests.apps.chat.at_screen import LARGE, SOON, AtScreen, at_screen
from tests.channel.joined import joined
from tests.net.lines import play, until
from weft import Channel
from weft.apps.chat.app import REFRESH_S, WORK_S, ChatApp
from weft.apps.chat.reading import Reading
from weft.apps.chat.talks import Talks
from weft.groups import Group, groups

PER_TURN = 100
"""With ten turns a second: a thousand messages a second."""
TURNS = 25
KEY_S = 0.25
"""Computing time from a key to the screen, with all that comes in between; a quiet chat needs a tenth of it."""


class Watched(ChatApp):
    def __init__(self, talks: Talks, channel: Channel) -> None:
        super().__init__(talks, channel)
        self.turns = 0
        self.painted = 0

    def turn(self) -> None:
        super().turn()
        self.turns += 1

    def _display(self, screen: Any, renderable: Any) -> None:
        super()._display(screen, renderable)
        self.painted += 1


async def key_to_screen(anna: AtScreen, app: Watched, key: str) -> float:
    """Seconds of computing."""
    began, selected, painted = time.thread_time(), app.conversation.selected, app.painted
    app.simulate_key(key)
    await until(lambda: app.conversation.selected is not selected and app.painted > painted)
    return time.thread_time() - began


def test_a_bot_that_never_stops() -> None:
    async def main() -> None:
        made: list[Watched] = []

        def kind(talks: Talks, channel: Channel) -> ChatApp:
            made.append(Watched(talks, channel))
            return made[0]

        async with (
            joined(2) as (one, two),
            groups(two, "Bot", settings=SOON) as bot,
            at_screen(one, "Anna", LARGE, kind=kind) as anna,
        ):
            (app,) = made
            talk = await anna.talks.create("Club")
            app.open_group(talk)
            await until(bot.known)
            club = await bot.join(bot.known()[0])
            took: list[float] = []
            began, before, last = time.monotonic(), app.painted, None
            for turn in range(TURNS):
                for number in range(PER_TURN):
                    last = await club.send_text(f"turn {turn}, number {number}", reply_to=last if number % 5 else None)
                if turn >= 5:
                    took.append(await key_to_screen(anna, app, "up"))
                turns = app.turns
                await until(lambda turns=turns: app.turns > turns)  # type: ignore[misc]
            await until(lambda: talk.tree is not None and len(talk.tree) == TURNS * PER_TURN)
            seconds = time.monotonic() - began
            assert statistics.median(took) < KEY_S, took
            assert app.painted - before < 3 * seconds / REFRESH_S + 2 * TURNS, "messages are drawn together"
            await anna.press("end")
            await anna.sees(f"turn {TURNS - 1}, number {PER_TURN - 1}")
            assert talk.unread > 0

    play(main)


def test_work_is_bounded_and_what_overran_is_read_from_the_history() -> None:
    async def main() -> None:
        async with joined(1) as (one,), groups(one, "Anna", settings=SOON) as anna:
            clock = [0.0]

            def tick() -> float:
                clock[0] += 0.001
                return clock[0]

            talks = Talks(anna, Reading(), tick)
            talk = await talks.create("Club")
            talks.show(talk)
            for number in range(5_000):
                await talk.group.send_text(f"{number}")
            assert talk.tree is not None
            talks.work(WORK_S)
            assert 0 < len(talk.tree) < 5_000, "one turn takes in what its time allows"
            while len(talk.tree) < 5_000:
                before = len(talk.tree)
                talks.work(WORK_S)
                assert len(talk.tree) > before
            assert talks.news().conversation
            assert not talks.news().conversation
            _overrun(talk.group)
            while talk.work():
                pass
            assert [node.message.text for node in talk.tree] == [str(number) for number in range(5_000)]
            talks.close()

    play(main)


def _overrun(group: Group) -> None:
    """As if so much had come that the oldest unread had to give way."""
    group.dropped += 1
