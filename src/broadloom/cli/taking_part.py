"""What all commands do that join a channel: join it, let themselves be seen, and leave in good order."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from broadloom.channel.status_socket import expose_status
from broadloom.cli.runner import StopSignal

if TYPE_CHECKING:
    from broadloom.channel import Channel
    from broadloom.cli.options import JoinOptions
    from broadloom.protocol.runtime import ObserverFactory


@asynccontextmanager
async def joined_channel(
    name: str, join_options: "JoinOptions", end: StopSignal, *, tape: "ObserverFactory | None" = None
) -> "AsyncIterator[Channel]":
    async with (
        join_options.connect(name, tape=tape) as channel,
        expose_status(channel, program=f"broadloom {end.command}"),
    ):
        yield channel
