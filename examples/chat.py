"""A chat for any number of people.

    python examples/chat.py                              two members talk and leave
    python examples/chat.py chat/lobby Ada [HOST…]       join: each line you type is broadcast; Ctrl-D ends

A program does not receive its own messages, so each one prints only the messages of others.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from uuid import uuid4

import broadloom


async def read_lines() -> AsyncIterator[str]:
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line.rstrip("\n")


async def print_messages(channel: broadloom.Channel) -> None:
    async for message in channel:
        post = message.json()
        print(f"{post['name']}: {post['text']}", flush=True)


async def join(name: str, member: str, bootstrap: list[str]) -> None:
    async with broadloom.connect(name, bootstrap=bootstrap) as channel:
        printing = asyncio.create_task(print_messages(channel))
        async for text in read_lines():
            await channel.broadcast_json({"name": member, "text": text})
        printing.cancel()


async def demo(name: str) -> None:
    async with broadloom.connect(name) as ada, broadloom.connect(name) as bob:
        await ada.broadcast_json({"name": "Ada", "text": "Good morning!"})
        question = (await bob.receive(timeout_s=10)).json()
        await bob.broadcast_json({"name": "Bob", "text": f"{question['text']} Is that you, {question['name']}?"})
        print((await ada.receive(timeout_s=10)).json()["text"])


if __name__ == "__main__":
    match sys.argv[1:]:
        case [name, member, *hosts]:
            asyncio.run(join(name, member, hosts))
        case _:
            asyncio.run(demo(f"chat/{uuid4()}"))
