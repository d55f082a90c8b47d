"""How long a key takes to the screen while a bot speaks a thousand times a second: `python -m tests.apps.chat.measure`.

The bot is a process of its own, the channel real, with TLS and a store on disk. The screen is in memory, so the time
that a terminal takes to draw is not in it.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from uuid import uuid4

import broadloom
from broadloom.apps.chat.chat_model import ChatModel
from broadloom.apps.chat.read_state import ReadState
from broadloom.groups import Groups
from broadloom.transport.event_loop import run
from tests.apps.chat.test_flood import CountingChatApp

KEYS = 60
WARM_MESSAGES = 2_000


async def bot(name: str, per_s: float) -> None:
    async with broadloom.connect(name) as channel, Groups(channel, "Bot") as own_groups:
        await own_groups.wait_until_synced(30)
        club = await own_groups.join(own_groups.list_groups()[0])
        began, sent, last = time.monotonic(), 0, None
        while True:
            while sent < per_s * (time.monotonic() - began):
                last = await club.send_text(f"number {sent} of a bot that never stops", last if sent % 5 else None)
                sent += 1
            await asyncio.sleep(0.01)


async def reader(per_s: float) -> None:
    name = f"test/{uuid4().hex}"
    with tempfile.TemporaryDirectory() as folder:
        async with (
            broadloom.connect(name) as channel,
            Groups(channel, "Anna", store=Path(folder) / "anna.db") as own_groups,
        ):
            chat = ChatModel(own_groups, ReadState())
            app = CountingChatApp(chat, channel)
            async with app.run_test(size=(120, 40)):
                group_model = await chat.create("Club")
                app.open_group(group_model)
                assert group_model.tree is not None
                tree, other = group_model.tree, None
                if per_s:
                    args = ("-m", "tests.apps.chat.measure", name, str(per_s))
                    other = await asyncio.create_subprocess_exec(sys.executable, *args)
                else:
                    for number in range(WARM_MESSAGES):
                        await group_model.group.send_text(f"number {number}")
                while len(tree) < WARM_MESSAGES:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                began, cpu, before, painted = time.monotonic(), time.process_time(), len(tree), app.painted
                took = [await _key(app, "up") for _ in range(KEYS)]
                seconds = time.monotonic() - began
                print(
                    f"{(len(tree) - before) / seconds:6.0f} messages/s; key to screen: median "
                    f"{1000 * statistics.median(took):.0f} ms, 95 % {1000 * sorted(took)[int(0.95 * KEYS)]:.0f} ms, "
                    f"worst {1000 * max(took):.0f} ms; drawn {(app.painted - painted) / seconds:.0f} times/s; "
                    f"{100 * (time.process_time() - cpu) / seconds:.0f} % of a core"
                )
                if other is not None:
                    other.terminate()
                    await other.wait()
            chat.close()


async def _key(app: CountingChatApp, key: str) -> float:
    began, selected, painted = time.monotonic(), app.conversation.selected, app.painted
    app.simulate_key(key)
    while app.conversation.selected is selected or app.painted == painted:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    took = time.monotonic() - began
    await asyncio.sleep(0.07)
    return took


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(bot(sys.argv[1], float(sys.argv[2])))
    else:
        for rate in (0, 100, 1000):
            run(reader(rate))
