"""`identify` and `advert`: bad input, and what other programs notice."""

import asyncio
from typing import Any

import pytest

import broadloom.sync
from broadloom import NotConnectedError
from tests.channel.joined import QUICK, connected_channels, unique_name


@pytest.mark.parametrize(
    ("attributes", "error", "text"),
    [
        ("seat 7", TypeError, "attributes must be a mapping of names to values, not str"),
        ({"seat": 7}, TypeError, "attribute: must be text, not 7"),
        ({"": "7"}, ValueError, "must not be empty"),
        ({"seat": "7\n"}, ValueError, "printable"),
        ({"seat": "7" * 257}, ValueError, "at most 256 bytes"),
        ({str(number): "" for number in range(33)}, ValueError, "33 attributes: at most 32 are allowed"),
    ],
)
async def test_identify_rejects_what_receivers_would_reject(attributes: Any, error: type[Exception], text: str) -> None:
    async with connected_channels(1) as (channel,):
        with pytest.raises(error, match=text):
            await channel.identify(attributes)


@pytest.mark.parametrize(
    ("name", "topic", "error", "text"),
    [
        (7, None, TypeError, "name of an ad: must be text, not 7"),
        ("", None, ValueError, "must not be empty"),
        ("t\0", None, ValueError, "printable"),
        ("é" * 129, None, ValueError, "at most 256 bytes"),
        ("tea", 7, TypeError, "topic: must be text"),
        ("tea", "drinks//hot", ValueError, "a level is empty"),
        ("tea", "drinks/*", ValueError, "allowed in patterns only"),
    ],
)
async def test_advert_rejects_what_receivers_would_reject(
    name: Any, topic: Any, error: type[Exception], text: str
) -> None:
    async with connected_channels(1) as (channel,):
        with pytest.raises(error, match=text):
            await channel.advert(name, topic=topic)


async def test_other_readers_do_not_notice() -> None:
    async with connected_channels(2) as (author, reader):
        everything = reader.subscribe()
        assert [await author.identify(), await author.advert("tea", topic="drinks")] == [1, 2]
        await author.broadcast(b"done")
        assert (await reader.receive(20)).data == (await everything.receive(20)).data == b"done"
        assert reader.status().unknown_layers == {}
        await author.leave()
        with pytest.raises(NotConnectedError):
            await author.identify()


async def test_sync_channel_has_both() -> None:
    def use() -> list[int]:
        with broadloom.sync.connect(unique_name(), tls=False, settings=QUICK) as channel:
            return [channel.identify({"seat": "7"}), channel.advert("tea")]

    assert await asyncio.to_thread(use) == [1, 2]
