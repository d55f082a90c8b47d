"""Channels on loopback for tests: a name that nobody else has, and somebody to talk to."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import weft
from weft import Channel

QUICK = weft.Settings(seek_wait_s=0.1, linger_s=0.05)


def a_name() -> str:
    return f"test/{uuid4().hex}"


@asynccontextmanager
async def joined(count: int, *, name: str = "", **options: Any) -> AsyncIterator[list[Channel]]:
    """So many members of one channel. The options are for all of them."""
    options = {"plain": True, "settings": QUICK, **options}
    name = name or a_name()
    members: list[Channel] = []
    try:
        for _ in range(count):
            members.append(await weft.connect(name, **options))
        yield members
    finally:
        for member in members:
            member.vanish()


async def texts(channel: Channel, count: int, within_s: float = 20.0) -> list[str]:
    return [(await channel.receive(within_s)).text for _ in range(count)]
