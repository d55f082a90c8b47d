"""A few seconds of the fuzzer; `make fuzz` gives it more."""

import asyncio
from random import Random

from broadloom.wire import Address, PeerInfo, decode
from broadloom.wire.broadcast_frame import BROADCAST, decode_broadcast
from broadloom.wire.codec import kinds, number_of
from tests.fuzz.campaign import Campaign
from tests.fuzz.generator import AttackerKnowledge, Generator, mutate
from tests.fuzz.watch import GROWTH_KB_MAX, WARM_UP_S, VictimMonitor, slope_per_minute

SECONDS = 8.0
SEED = 20_240_501
KNOWLEDGE = AttackerKnowledge(bytes(16), (PeerInfo(7, Address("127.0.0.1", 4000)),), signed=True, own_id=8)


def test_a_short_campaign() -> None:
    campaign = Campaign(SEED)
    asyncio.run(campaign.run(SECONDS, lambda _campaign: None))
    assert not campaign.findings, campaign.summary()
    assert campaign.script_counts.total() > 50
    for fared in campaign.summary()["victims"].values():
        assert fared["delivered"] > 100
        assert fared["counters"]["malformed_frames"] > 10


def test_every_kind_of_message_is_made_and_is_whole() -> None:
    made = Generator(Random(1), KNOWLEDGE)
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
        made = Generator(chance, KNOWLEDGE)
        return [mutate(made.message(), chance, made.message()) for _ in range(100)]

    assert all_of(1) == all_of(1)
    assert all_of(1) != all_of(2)


def test_memory_that_grows_is_noticed() -> None:
    def watched(kb_per_s: int) -> list[str]:
        watch = VictimMonitor("plain", 0.0, 0.0)
        for second in range(600):
            said = {"rss_kb": 50_000 + kb_per_s * second, "lag_s": 0, "late_s": 0, "findings": []}
            watch.on_report(said, float(second))
        watch.check_memory()
        return watch.findings

    assert watched(1) == []
    assert len(watched(GROWTH_KB_MAX // int(500 - WARM_UP_S))) == 2
    assert round(slope_per_minute([(0.0, 0), (60.0, 10), (120.0, 20)])) == 10
