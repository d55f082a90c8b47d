"""A chat for any number of people.

    python examples/chat.py                              two people talk, and go
    python examples/chat.py chat/lobby Ada [PORTAL…]     take part: each line you type goes to all; Ctrl-D ends

Nobody gets its own messages back, so each program prints only what others say.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from uuid import uuid4

import broadloom


async def typed() -> AsyncIterator[str]:
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line.rstrip("\n")


async def show(channel: broadloom.Channel) -> None:
    async for message in channel:
        said = message.json()
        print(f"{said['name']}: {said['text']}", flush=True)


async def take_part(name: str, person: str, bootstrap: list[str]) -> None:
    async with broadloom.connect(name, bootstrap=bootstrap) as channel:
        showing = asyncio.create_task(show(channel))
        async for text in typed():
            await channel.broadcast_json({"name": person, "text": text})
        showing.cancel()


async def play(name: str) -> None:
    async with broadloom.connect(name) as ada, broadloom.connect(name) as bob:
        await ada.broadcast_json({"name": "Ada", "text": "Good morning!"})
        question = (await bob.receive(timeout_s=10)).json()
        await bob.broadcast_json({"name": "Bob", "text": f"{question['text']} Is that you, {question['name']}?"})
        print((await ada.receive(timeout_s=10)).json()["text"])


if __name__ == "__main__":
    match sys.argv[1:]:
        case [name, person, *portals]:
            asyncio.run(take_part(name, person, portals))
        case _:
            asyncio.run(play(f"chat/{uuid4()}"))
