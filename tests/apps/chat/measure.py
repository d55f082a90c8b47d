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

import weft
from tests.apps.chat.test_flood import Watched
from weft.apps.chat.reading import Reading
from weft.apps.chat.talks import Talks
from weft.groups import groups
from weft.net.loop import run

KEYS = 60
WARM_MESSAGES = 2_000


async def bot(name: str, per_s: float) -> None:
    async with weft.connect(name) as channel, groups(channel, "Bot") as here:
        await here.greeted(30)
        club = await here.join(here.known()[0])
        began, said, last = time.monotonic(), 0, None
        while True:
            while said < per_s * (time.monotonic() - began):
                last = await club.send_text(f"number {said} of a bot that never stops", last if said % 5 else None)
                said += 1
            await asyncio.sleep(0.01)


async def reader(per_s: float) -> None:
    name = f"test/{uuid4().hex}"
    with tempfile.TemporaryDirectory() as folder:
        async with weft.connect(name) as channel, groups(channel, "Anna", store=Path(folder) / "anna.db") as here:
            talks = Talks(here, Reading())
            app = Watched(talks, channel)
            async with app.run_test(size=(120, 40)):
                talk = await talks.create("Club")
                app.open_group(talk)
                assert talk.tree is not None
                tree, other = talk.tree, None
                if per_s:
                    words = ("-m", "tests.apps.chat.measure", name, str(per_s))
                    other = await asyncio.create_subprocess_exec(sys.executable, *words)
                else:
                    for number in range(WARM_MESSAGES):
                        await talk.group.send_text(f"number {number}")
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
            talks.close()


async def _key(app: Watched, key: str) -> float:
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
