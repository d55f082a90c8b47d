"""Channels on loopback for tests, each with a unique name."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import broadloom
from broadloom import Channel
from broadloom.protocol import Tuning

QUICK = Tuning(discovery_retry_s=0.1, leave_linger_s=0.05)


def unique_name() -> str:
    return f"test/{uuid4().hex}"


@asynccontextmanager
async def connected_channels(count: int, *, name: str = "", **options: Any) -> AsyncIterator[list[Channel]]:
    """This many members of one channel, all with the same options."""
    options = {"tls": False, "settings": QUICK, **options}
    name = name or unique_name()
    channels: list[Channel] = []
    try:
        for _ in range(count):
            channels.append(await broadloom.connect(name, **options))
        yield channels
    finally:
        for member in channels:
            member.abort()


async def receive_texts(channel: Channel, count: int, within_s: float = 20.0) -> list[str]:
    return [(await channel.receive(within_s)).text for _ in range(count)]
