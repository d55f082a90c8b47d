"""A picture of the chat for the documentation, taken from a real run of five members over real sockets.

    python -m weft.apps.chat.picture docs/images/chat.svg

They talk on a channel of their own, with a key that nobody else has, so nothing else on the machine is disturbed.
"""

import asyncio
import re
import secrets
import socket
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import weft
from weft.apps.chat.app import ChatApp
from weft.apps.chat.reading import Reading
from weft.apps.chat.talks import Talks
from weft.apps.chat.teaching import LOBBY
from weft.groups import Group, Groups, Message, Settings
from weft.net.loop import run

SIZE = (112, 29)
WITHIN_S = 30.0
OTHERS = ("Ben", "Cleo", "Dora", "Emil")
QUICK = Settings(answer_s=0.3, presence_s=2.0)


async def _until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


async def taken() -> str:
    """The picture, as SVG."""
    key, port = secrets.token_hex(16), _free_port()
    where = f"127.0.0.1:{port}"
    async with AsyncExitStack() as stack:
        mine = await stack.enter_async_context(weft.connect(LOBBY, key=key, port=port, portals=[where]))
        anna = await stack.enter_async_context(mine.groups("Anna", settings=QUICK))
        others: dict[str, Groups] = {}
        for name in OTHERS:
            channel = await stack.enter_async_context(weft.connect(LOBBY, key=key, portals=[where]))
            others[name] = await stack.enter_async_context(channel.groups(name, settings=QUICK))
        talks = Talks(anna, Reading())
        app = ChatApp(talks, mine)
        async with app.run_test(size=SIZE) as pilot:
            await _play(app, talks, others)
            await pilot.pause()
            drawn = app.export_screenshot(title="weft chat Anna")
        talks.close()
    # The fonts would be fetched from elsewhere; without them the reader's own stand in.
    return re.sub(r"@font-face\s*{[^}]*}\s*", "", drawn)


async def _joined(here: Groups, group: Group) -> Group:
    await _until(lambda: any(info.id == group.id for info in here.known()))
    return await here.join(group.id)


async def _play(app: ChatApp, talks: Talks, others: dict[str, Groups]) -> None:
    """What five people might say, each in its own name."""
    club = await others["Ben"].create("Chess club\nWednesdays at eight, upstairs")
    garden = await others["Dora"].create("Garden\nWho waters what")
    words = await others["Cleo"].create("Translations\nde · fr · 日本語")
    at = {name: await _joined(here, club) for name, here in others.items()}
    for each in (club, garden, words):
        await _until(lambda each=each: each.id in talks.offers)  # type: ignore[misc]
        await talks.join(each.id)
    shown = talks.talks[club.id]
    app.open_group(shown)

    async def say(name: str, text: str, reply_to: Message | None = None) -> Message:
        await _until(lambda: reply_to is None or at[name].message(reply_to.id) is not None)
        said = await at[name].send_text(text, reply_to)
        await _until(lambda: shown.tree is not None and said.id in shown.tree)
        return said

    white = await say("Ben", "Who plays white on Wednesday?")
    dora = await say("Dora", "I would. It is time that I try the Vienna game on somebody.", white)
    lunch = await say("Emil", "Has anybody seen the clock with the green buttons?")
    mine = await shown.group.send_text("On me then. I have read the same book 😀", dora.id)
    await say("Dora", "Then we both know it by heart up to move nine, and nothing after", mine)
    await say("Cleo", "Take me too, I lost my partner to the garden", white)
    await say("Ben", "It stands on the piano", lunch)
    await say("Emil", "It does, thank you", lunch)
    rules = await say("Cleo", "New rules for the blitz evening, please read before Wednesday:\n1. three minutes each, "
                      "two seconds for a move\n2. touched is moved, also late at night")  # fmt: skip
    for text in ("Tomatoes: done", "The hose is back"):
        await garden.send_text(text)
    await others["Ben"].create("Film night\nOne film a month")
    await others["Emil"].close()
    await _until(lambda: len(talks.offers) == 1 and talks.talks[garden.id].unread == 2)
    await _until(lambda: [here.value for _, here in shown.members()].count("gone") == 1)
    assert shown.tree is not None
    node = shown.tree.get(lunch.id)
    assert node is not None
    shown.tree.folded(node, True)
    answered = shown.tree.get(dora.id)
    assert answered is not None
    app.conversation.select(answered)
    app.action_answer()
    app.composer.insert("Bring the book, then")
    shown.read_all()
    await say("Dora", "And who keeps the list?", rules)
    await say("Ben", "I do, as ever. Backgammon is on it for May", rules)
    app.clear_notifications()
    app.draw()


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m weft.apps.chat.picture FILE.svg")
    Path(sys.argv[1]).write_text(run(taken()), encoding="utf-8")


if __name__ == "__main__":
    main()
