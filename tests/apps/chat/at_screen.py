"""The chat on a screen in memory, over a real channel on loopback, with others who take part by the library."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from textual.pilot import Pilot

from broadloom import Channel
from broadloom.apps.chat.app import ChatApp
from broadloom.apps.chat.chat_model import ChatModel
from broadloom.apps.chat.read_state import ReadState
from broadloom.groups import Groups, GroupSettings, Store
from tests.support import eventually

FAST_SETTINGS = GroupSettings(
    reply_window_s=0.2, page_timeout_s=0.4, presence_interval_s=0.5, suspicion_timeout_s=0.4, parent_request_delay_s=0.2
)
POLL_S = 0.04
"""A look at the whole screen takes a while."""
LARGE, SMALL = (120, 36), (80, 24)


class ChatScreen(NamedTuple):
    app: ChatApp
    pilot: Pilot[None]
    groups: Groups
    chat: ChatModel

    def lines(self) -> list[str]:
        strips = self.app.screen._compositor.render_strips(self.app.size)
        return ["".join(segment.text for segment in strip) for strip in strips]

    def text(self) -> str:
        return "\n".join(self.lines())

    async def wait_for_text(self, *texts: str) -> None:
        """Wait until all of it stands on the screen."""
        await self._wait_until(
            lambda text: all(text_part in text for text_part in texts), f"not on the screen: {texts}"
        )

    async def wait_for_no_text(self, absent: str) -> None:
        await self._wait_until(lambda text: absent not in text, f"still on the screen: {absent}")

    async def _wait_until(self, condition: Callable[[str], bool], problem: str) -> None:
        await eventually(lambda: condition(self.text()), lambda: f"{problem}\n{self.text()}\n", poll_s=POLL_S)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def type(self, text: str, *keys: str) -> None:
        await self.pilot.press(*("space" if char == " " else char for char in text), *keys)

    async def click(self, target: str, times: int = 1) -> None:
        """With the mouse, on these words."""
        y, line = next((number, line) for number, line in enumerate(self.lines()) if target in line)
        await self.pilot.click(offset=(line.index(target), y), times=times)


@asynccontextmanager
async def chat_screen(
    channel: Channel,
    name: str,
    size: tuple[int, int] = LARGE,
    *,
    store: Store | None = None,
    read_state: ReadState | None = None,
    app_class: Callable[[ChatModel, Channel], ChatApp] = ChatApp,
    show_notices: bool = False,
    settings: GroupSettings = FAST_SETTINGS,
) -> AsyncIterator[ChatScreen]:
    """`notes`: with what is told for some seconds, and may hide what a test looks for."""
    async with Groups(channel, name, store=store, settings=settings) as own_groups:
        chat = ChatModel(own_groups, read_state or ReadState())
        app = app_class(chat, channel)
        try:
            async with app.run_test(size=size, notifications=show_notices) as pilot:
                yield ChatScreen(app, pilot, own_groups, chat)
        finally:
            chat.close()
