"""Layers on real channels."""

import itertools
import random

import pytest

from broadloom import Batch, NotConnectedError
from broadloom.groups import Groups
from tests.channel.joined import connected_channels
from tests.support import eventually


async def test_layers_do_not_disturb_each_other_or_the_application() -> None:
    async with connected_channels(2) as (one, two):
        got: dict[str, list[bytes]] = {"aa": [], "bb": []}
        sending = {mark: one.layer(mark, lambda batch: None) for mark in ("aa", "bb")}
        for mark, received in got.items():
            two.layer(mark, lambda batch, received=received: received.extend(batch.data))  # type: ignore[misc]
        for number, mark in itertools.product(range(50), ("aa", "bb")):
            await sending[mark].broadcast(b"%s %d" % (mark.encode(), number))
            await one.broadcast(b"application %d" % number)
        big = random.Random(2).randbytes(200_000)
        await sending["aa"].broadcast(big)
        application = [(await two.receive(20)).data for _ in range(100)]
        await eventually(lambda: len(got["aa"]) == 51)
        assert application == [b"application %d" % number for number in range(50) for _ in range(2)]
        assert got["aa"] == [b"aa %d" % number for number in range(50)] + [big]
        assert got["bb"] == [b"bb %d" % number for number in range(50)]


async def test_programs_with_and_without_topics_layers_and_groups_share_a_channel() -> None:
    async with connected_channels(4) as (author, plain, topical, layered):
        batches: list[bytes] = []
        scores = topical.subscribe("scores/**")
        layered.layer("zz", lambda batch: batches.extend(batch.data))
        layer = author.layer("zz")
        async with Groups(layered, "ann") as groups:
            for number in range(20):
                await author.broadcast(b"plain %d" % number)
                await author.broadcast(b"score %d" % number, topic="scores/nfl", headers={"n": str(number)})
                await layer.broadcast(b"layer %d" % number)
            await groups.create("a group that the others know nothing of")
        expected = [text % number for number in range(20) for text in (b"plain %d", b"score %d")]
        for reader in (plain, topical, layered):
            assert [(await reader.receive(20)).data for _ in range(40)] == expected
        assert [(await scores.receive(20)).headers["n"] for _ in range(20)] == [str(number) for number in range(20)]
        await eventually(lambda: batches == [b"layer %d" % number for number in range(20)])
        await eventually(lambda: {"zz", "Gr"} == set(plain.status().unknown_layers))
        assert all(each.unread_count == each.missed_count == 0 for each in (plain, topical, layered))


async def test_messages_of_an_unknown_layer_are_counted_and_reach_no_reader() -> None:
    async with connected_channels(2) as (one, two):
        reader = two.subscribe()
        layer = one.layer("zz", lambda batch: None)
        await layer.broadcast(b"x")
        await layer.broadcast(b"y")
        await one.broadcast(b"application")
        assert (await reader.receive(20)).data == b"application"
        assert two.status().unknown_layers == {"zz": 2}
        assert two.status().as_dict()["unknown_layers"] == {"zz": 2}
        for number in range(100):
            await one.layer(f"{number:02}").broadcast(b"x")
        await one.broadcast(b"application")
        assert (await reader.receive(20)).data == b"application"
        counts = two.status().unknown_layers
        assert (len(counts), sum(counts.values()), counts["other"]) == (65, 102, 37)


async def test_mark_can_be_used_once_and_again_after_close() -> None:
    async with connected_channels(1) as (channel,):
        layer = channel.layer("zz", lambda batch: None)
        with pytest.raises(ValueError, match="already in use"):
            channel.layer("zz", lambda batch: None)
        layer.close()
        channel.layer("zz", lambda batch: None)
        for mark in ("", "z", "zzz", "é1", "z "):
            with pytest.raises(ValueError, match="two ASCII letters"):
                channel.layer(mark, lambda batch: None)
    with pytest.raises(NotConnectedError):
        channel.layer("zz")


async def test_failing_layer_does_not_break_the_channel(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_batch: Batch) -> None:
        raise RuntimeError("a bug in a layer")

    async with connected_channels(2) as (one, two):
        layer = one.layer("zz", fail)
        two.layer("zz", fail)
        await layer.broadcast(b"x")
        await one.broadcast(b"application")
        assert (await two.receive(20)).data == b"application"
    assert "the callback of the layer 'zz' failed" in caplog.text


async def test_closed_layer_cannot_be_used_for_requests() -> None:
    async with connected_channels(2) as (channel, caller):
        layer = channel.layer("zz")
        layer.close()
        with pytest.raises(ValueError, match=r"the layer 'zz' was closed: open it again with channel\.layer"):
            layer.on_request(lambda request: request.data)
        again = channel.layer("zz")
        again.on_request(lambda request: request.data)
        layer.close()
        assert (await caller.layer("zz").request(channel.peer_id, b"x")).data == b"x"
