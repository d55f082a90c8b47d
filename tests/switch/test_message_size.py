"""The largest message and reply, over real sockets."""

import pytest

import broadloom
from broadloom.switch import Switch, settings
from tests.channel.joined import connected_channels
from tests.support import TIMEOUT_S


async def test_largest_message_and_reply_arrive_with_the_longest_names() -> None:
    longest, data = "x" * settings.NAME_BYTES_MAX, bytes(settings.DATA_BYTES_MAX)
    async with (
        connected_channels(2) as (here, there),
        Switch(here, session="anna") as sender,
        Switch(there, session="anna") as program,
    ):
        program.handle(longest)(lambda request: request.data)
        assert (await sender.request(longest, data, timeout_s=TIMEOUT_S)).data == data


async def test_message_that_is_too_large_is_not_sent() -> None:
    async with connected_channels(1) as (here,), Switch(here, session="anna") as sender:
        with pytest.raises(broadloom.MessageTooLargeError, match="at most"):
            await sender.request("any", bytes(settings.DATA_BYTES_MAX + 1), timeout_s=TIMEOUT_S)
