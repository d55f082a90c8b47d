"""A thousand messages a second: all are there, the screen is drawn a few times a second, keys are obeyed at once."""

import statistics
import time
from typing import Any

from broadloom import Channel
from broadloom.apps.chat.app import REFRESH_S, WORK_S, ChatApp
from broadloom.apps.chat.chat_model import ChatModel
from broadloom.apps.chat.read_state import ReadState
from broadloom.groups import Group, Groups
from tests.apps.chat.at_screen import FAST_SETTINGS, LARGE, ChatScreen, chat_screen
from tests.channel.joined import connected_channels
from tests.support import eventually

PER_TICK = 100
"""With ten turns a second: a thousand messages a second."""
TICKS = 25
KEY_S = 0.25
"""Computing time from a key to the screen, with all that comes in between; a quiet chat needs a tenth of it."""


class CountingChatApp(ChatApp):
    def __init__(self, chat: ChatModel, channel: Channel) -> None:
        super().__init__(chat, channel)
        self.ticks = 0
        self.painted = 0

    def tick(self) -> None:
        super().tick()
        self.ticks += 1

    def _display(self, screen: Any, renderable: Any) -> None:
        super()._display(screen, renderable)
        self.painted += 1


async def key_to_screen(anna: ChatScreen, app: CountingChatApp, key: str) -> float:
    """Seconds of computing."""
    began, selected, painted = time.thread_time(), app.conversation.selected, app.painted
    app.simulate_key(key)
    await eventually(lambda: app.conversation.selected is not selected and app.painted > painted)
    return time.thread_time() - began


async def test_chat_stays_responsive_under_a_flood() -> None:
    made: list[CountingChatApp] = []

    def kind(talks: ChatModel, channel: Channel) -> ChatApp:
        made.append(CountingChatApp(talks, channel))
        return made[0]

    async with (
        connected_channels(2) as (one, two),
        Groups(two, "Bot", settings=FAST_SETTINGS) as bot,
        chat_screen(one, "Anna", LARGE, app_class=kind) as anna,
    ):
        (app,) = made
        talk = await anna.chat.create("Club")
        app.open_group(talk)
        await eventually(bot.list_groups)
        club = await bot.join(bot.list_groups()[0])
        took: list[float] = []
        began, before, last = time.monotonic(), app.painted, None
        for turn in range(TICKS):
            for number in range(PER_TICK):
                last = await club.send_text(f"turn {turn}, number {number}", reply_to=last if number % 5 else None)
            if turn >= 5:
                took.append(await key_to_screen(anna, app, "up"))
            turns = app.ticks
            await eventually(lambda turns=turns: app.ticks > turns)  # type: ignore[misc]
        await eventually(lambda: talk.tree is not None and len(talk.tree) == TICKS * PER_TICK)
        seconds = time.monotonic() - began
        assert statistics.median(took) < KEY_S, took
        assert app.painted - before < 3 * seconds / REFRESH_S + 2 * TICKS, "messages are drawn together"
        await anna.press("end")
        await anna.wait_for_text(f"turn {TICKS - 1}, number {PER_TICK - 1}")
        assert talk.unread > 0


async def test_work_is_bounded_and_overflow_is_read_from_history() -> None:
    async with connected_channels(1) as (one,), Groups(one, "Anna", settings=FAST_SETTINGS) as anna:
        clock = [0.0]

        def tick() -> float:
            clock[0] += 0.001
            return clock[0]

        talks = ChatModel(anna, ReadState(), tick)
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
        assert talks.take_changes().conversation
        assert not talks.take_changes().conversation
        _overrun(talk.group)
        while talk.work():
            pass
        assert [node.message.text for node in talk.tree] == [str(number) for number in range(5_000)]
        talks.close()


def _overrun(group: Group) -> None:
    """As if so much had come that the oldest unread had to give way."""
    group.dropped_count += 1
