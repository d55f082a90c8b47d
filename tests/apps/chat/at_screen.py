"""The chat on a screen in memory, over a real channel on loopback, with others who take part by the library."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from textual.pilot import Pilot

from tests.net.lines import WITHIN_S
from weft import Channel
from weft.apps.chat.app import ChatApp
from weft.apps.chat.reading import Reading
from weft.apps.chat.talks import Talks
from weft.groups import Groups, Settings, Store, groups

SOON = Settings(answer_s=0.2, hold_s=0.4, presence_s=0.5, suspect_s=0.4, ask_after_s=0.2)
LOOK_S = 0.04
"""A look at the whole screen takes a while."""
LARGE, SMALL = (120, 36), (80, 24)


class AtScreen(NamedTuple):
    app: ChatApp
    pilot: Pilot[None]
    here: Groups
    talks: Talks

    def lines(self) -> list[str]:
        strips = self.app.screen._compositor.render_strips(self.app.size)
        return ["".join(segment.text for segment in strip) for strip in strips]

    def text(self) -> str:
        return "\n".join(self.lines())

    async def sees(self, *words: str) -> None:
        """Wait until all of it stands on the screen."""
        await self._until(lambda text: all(word in text for word in words), f"not on the screen: {words}")

    async def sees_no(self, word: str) -> None:
        await self._until(lambda text: word not in text, f"still on the screen: {word}")

    async def _until(self, holds: Callable[[str], bool], problem: str) -> None:
        try:
            async with asyncio.timeout(WITHIN_S):
                while not holds(self.text()):  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise AssertionError(f"{problem}\n{self.text()}") from None

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def type(self, text: str, *keys: str) -> None:
        await self.pilot.press(*("space" if sign == " " else sign for sign in text), *keys)

    async def click(self, word: str, times: int = 1) -> None:
        """With the mouse, on these words."""
        y, line = next((number, line) for number, line in enumerate(self.lines()) if word in line)
        await self.pilot.click(offset=(line.index(word), y), times=times)


@asynccontextmanager
async def at_screen(
    channel: Channel,
    name: str,
    size: tuple[int, int] = LARGE,
    *,
    store: Store | None = None,
    reading: Reading | None = None,
    kind: Callable[[Talks, Channel], ChatApp] = ChatApp,
    notes: bool = False,
) -> AsyncIterator[AtScreen]:
    """`notes`: with what is told for some seconds, and may hide what a test looks for."""
    async with groups(channel, name, store=store, settings=SOON) as here:
        talks = Talks(here, reading or Reading())
        app = kind(talks, channel)
        try:
            async with app.run_test(size=size, notifications=notes) as pilot:
                yield AtScreen(app, pilot, here, talks)
        finally:
            talks.close()
