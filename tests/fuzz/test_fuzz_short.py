"""A few seconds of the fuzzer; `make fuzz` gives it more."""

import asyncio
from random import Random

from tests.fuzz.campaign import Campaign
from tests.fuzz.generator import Generator, Knows, spoilt
from tests.fuzz.watch import GROWTH_KB_MAX, WARM_UP_S, Watch, slope_per_minute
from weft.wire import Address, Contact, decode
from weft.wire.broadcast import BROADCAST, decode_broadcast
from weft.wire.codec import kinds, number_of

SECONDS = 8.0
SEED = 20_240_501
KNOWS = Knows(bytes(16), (Contact(7, Address("127.0.0.1", 4000)),), signed=True, own=8)


def test_a_short_campaign() -> None:
    campaign = Campaign(SEED)
    asyncio.run(campaign.run(SECONDS, lambda _campaign: None))
    assert not campaign.findings, campaign.summary()
    assert campaign.played.total() > 50
    for fared in campaign.summary()["victims"].values():
        assert fared["delivered"] > 100
        assert fared["counters"]["malformed"] > 10


def test_every_kind_of_message_is_made_and_is_whole() -> None:
    made = Generator(Random(1), KNOWS)
    numbers = set()
    for _ in range(3000):
        frame = made.message()
        number = number_of(frame)
        numbers.add(number)
        decode_broadcast(frame) if number == BROADCAST else decode(frame)
    assert numbers == {*kinds(), BROADCAST}


def test_the_same_seed_makes_the_same() -> None:
    def all_of(seed: int) -> list[bytes]:
        chance = Random(seed)
        made = Generator(chance, KNOWS)
        return [spoilt(made.message(), chance, made.message()) for _ in range(100)]

    assert all_of(1) == all_of(1)
    assert all_of(1) != all_of(2)


def test_memory_that_grows_is_noticed() -> None:
    def watched(kb_per_s: int) -> list[str]:
        watch = Watch("plain", 0.0, 0.0)
        for second in range(600):
            said = {"rss_kb": 50_000 + kb_per_s * second, "lag_s": 0, "late_s": 0, "findings": []}
            watch.reported(said, float(second))
        watch.conclude()
        return watch.findings

    assert watched(1) == []
    assert len(watched(GROWTH_KB_MAX // int(500 - WARM_UP_S))) == 2
    assert round(slope_per_minute([(0.0, 0), (60.0, 10), (120.0, 20)])) == 10
