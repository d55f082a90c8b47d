"""A meeting without a server: one leads, all see the same, and a late joiner gets everything, with minutes.

Here all participants run in one program; normally each has its own, on its own machine.
"""

import asyncio
from uuid import uuid4

from broadloom.apps import conference
from broadloom.apps.conference.minutes import as_markdown


async def main() -> None:
    channel = f"review/{uuid4()}"
    async with conference.join(channel, name="Anna") as anna, conference.join(channel, name="Ben") as ben:
        async with anna.floor(timeout_s=10):
            await anna.load("rib-4")
            await anna.show(conference.Viewpoint((4000.0, 2000.0, 3000.0)))
            note = await ben.annotate("rib-4", "Is this a crack?")
            await anna.hand_over(ben.me)
        await ben.annotate("rib-4", "Only a scratch.", reply_to=note)
        poll = await ben.open_poll("Release the drawing?", ["yes", "no"])
        async for _ in anna:  # what Ben has done arrives in a moment
            if poll in anna.state.polls:
                break
        await asyncio.gather(anna.vote(poll, 0), ben.vote(poll, 0))
        async with conference.join(channel, name="Carla") as late:
            print(f"Carla sees {len(late.state.notes)} notes from {late.viewpoint}")
            print("".join(as_markdown(late.state, "Wing 7")))


if __name__ == "__main__":
    asyncio.run(main())
