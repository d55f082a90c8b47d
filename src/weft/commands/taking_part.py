"""What all commands do that join a channel: join it, let themselves be seen, and leave in good order."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from weft.commands.ending import End
from weft.commands.visible import visible

if TYPE_CHECKING:
    from weft.channel import Channel
    from weft.commands.options import Joining
    from weft.fabric.observer import Tape


@asynccontextmanager
async def taking_part(
    name: str, joining: "Joining", end: End, *, tape: "Tape | None" = None
) -> "AsyncIterator[Channel]":
    async with (
        joining.connect(name, tape=tape) as channel,
        visible(channel, program=f"weft {end.command}"),
    ):
        yield channel
