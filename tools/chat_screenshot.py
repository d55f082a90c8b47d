"""A screenshot of the chat for the documentation, taken from a real run of five members over real sockets.

    python tools/chat_screenshot.py docs/images/chat.svg

They use a channel with a random key, so nothing else on the machine is disturbed.
"""

import asyncio
import re
import secrets
import socket
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import broadloom
from broadloom.apps.chat.app import ChatApp
from broadloom.apps.chat.chat_model import ChatModel
from broadloom.apps.chat.placeholders import LOBBY
from broadloom.apps.chat.read_state import ReadState
from broadloom.groups import Group, GroupMessage, Groups, GroupSettings, MemberStatus
from broadloom.transport.event_loop import run

SIZE = (112, 29)
TIMEOUT_S = 30.0
OTHERS = ("Ben", "Cleo", "Dora", "Emil")
FAST_SETTINGS = GroupSettings(reply_window_s=0.3, presence_interval_s=2.0)


async def _wait_until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def take_screenshot() -> str:
    """The picture, as SVG."""
    key, port = secrets.token_hex(16), _free_port()
    address = f"127.0.0.1:{port}"
    async with AsyncExitStack() as stack:
        mine = await stack.enter_async_context(broadloom.connect(LOBBY, key=key, port=port, bootstrap=[address]))
        anna = await stack.enter_async_context(Groups(mine, "Anna", settings=FAST_SETTINGS))
        others: dict[str, Groups] = {}
        for name in OTHERS:
            channel = await stack.enter_async_context(broadloom.connect(LOBBY, key=key, bootstrap=[address]))
            others[name] = await stack.enter_async_context(Groups(channel, name, settings=FAST_SETTINGS))
        chat = ChatModel(anna, ReadState())
        app = ChatApp(chat, mine)
        async with app.run_test(size=SIZE) as pilot:
            await _run_script(app, chat, others)
            await pilot.pause()
            screenshot = app.export_screenshot(title="broadloom chat Anna")
        chat.close()
    # The fonts would be fetched from elsewhere; without them the reader's own stand in.
    return re.sub(r"@font-face\s*{[^}]*}\s*", "", screenshot)


async def _join(groups: Groups, group: Group) -> Group:
    await _wait_until(lambda: any(info.id == group.id for info in groups.list_groups()))
    return await groups.join(group.id)


async def _run_script(app: ChatApp, chat: ChatModel, others: dict[str, Groups]) -> None:
    """What five people might say, each in its own name."""
    club = await others["Ben"].create("Chess club\nWednesdays at eight, upstairs")
    garden = await others["Dora"].create("Garden\nWho waters what")
    words = await others["Cleo"].create("Translations\nde · fr · 日本語")
    at = {name: await _join(here, club) for name, here in others.items()}
    for each in (club, garden, words):
        await _wait_until(lambda each=each: each.id in chat.invitations)  # type: ignore[misc]
        await chat.join(each.id)
    shown = chat.group_models[club.id]
    app.open_group(shown)

    async def send(name: str, text: str, reply_to: GroupMessage | None = None) -> GroupMessage:
        await _wait_until(lambda: reply_to is None or at[name].get(reply_to.id) is not None)
        message = await at[name].send_text(text, reply_to)
        await _wait_until(lambda: shown.tree is not None and message.id in shown.tree)
        return message

    white = await send("Ben", "Who plays white on Wednesday?")
    dora = await send("Dora", "I would. It is time that I try the Vienna game on somebody.", white)
    lunch = await send("Emil", "Has anybody seen the clock with the green buttons?")
    mine = await shown.group.send_text("On me then. I have read the same book 😀", dora.id)
    await send("Dora", "Then we both know it by heart up to move nine, and nothing after", mine)
    await send("Cleo", "Take me too, I lost my partner to the garden", white)
    await send("Ben", "It stands on the piano", lunch)
    await send("Emil", "It does, thank you", lunch)
    rules = await send("Cleo", "New rules for the blitz evening, please read before Wednesday:\n1. three minutes each, "
                      "two seconds for a move\n2. touched is moved, also late at night")  # fmt: skip
    for text in ("Tomatoes: done", "The hose is back"):
        await garden.send_text(text)
    await others["Ben"].create("Film night\nOne film a month")
    await others["Emil"].aclose()
    await _wait_until(lambda: len(chat.invitations) == 1 and chat.group_models[garden.id].unread == 2)
    await _wait_until(lambda: [here for _, here in shown.members()].count(MemberStatus.OFFLINE) == 1)
    assert shown.tree is not None
    node = shown.tree.get(lunch.id)
    assert node is not None
    shown.tree.set_folded(node, True)
    answered = shown.tree.get(dora.id)
    assert answered is not None
    app.conversation.select(answered)
    app.action_reply()
    app.composer.insert("Bring the book, then")
    shown.mark_all_read()
    await send("Dora", "And who keeps the list?", rules)
    await send("Ben", "I do, as ever. Backgammon is on it for May", rules)
    app.clear_notifications()
    app.draw()


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python tools/chat_screenshot.py FILE.svg")
    Path(sys.argv[1]).write_text(run(take_screenshot()), encoding="utf-8")


if __name__ == "__main__":
    main()
