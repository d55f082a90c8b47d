"""A few seconds of the fuzzer; `make fuzz` runs it longer."""

from random import Random

from broadloom.wire import Address, PeerInfo, decode
from broadloom.wire.broadcast_frame import BROADCAST, decode_broadcast
from broadloom.wire.codec import kinds, number_of
from tests.fuzz.campaign import Campaign
from tests.fuzz.generator import AttackerKnowledge, Generator, mutate
from tests.fuzz.monitor import GROWTH_KB_MAX, WARM_UP_S, VictimMonitor, slope_per_minute

SECONDS = 8.0
SEED = 20_240_501
KNOWLEDGE = AttackerKnowledge(bytes(16), (PeerInfo(7, Address("127.0.0.1", 4000)),), signed=True, own_id=8)


async def test_short_campaign_finds_nothing() -> None:
    campaign = Campaign(SEED)
    await campaign.run(SECONDS, lambda _campaign: None)
    assert not campaign.findings, campaign.summary()
    assert campaign.script_counts.total() > 50
    for results in campaign.summary()["victims"].values():
        assert results["delivered"] > 100
        assert results["counters"]["malformed_frames"] > 10


def test_generator_makes_valid_messages_of_every_kind() -> None:
    generator = Generator(Random(1), KNOWLEDGE)
    numbers = set()
    for _ in range(3000):
        frame = generator.message()
        number = number_of(frame)
        numbers.add(number)
        decode_broadcast(frame) if number == BROADCAST else decode(frame)
    assert numbers == {*kinds(), BROADCAST}


def test_generator_is_deterministic_for_a_seed() -> None:
    def frames(seed: int) -> list[bytes]:
        random = Random(seed)
        generator = Generator(random, KNOWLEDGE)
        return [mutate(generator.message(), random, generator.message()) for _ in range(100)]

    assert frames(1) == frames(1)
    assert frames(1) != frames(2)


def test_monitor_reports_growing_memory() -> None:
    def findings_for(kb_per_s: int) -> list[str]:
        monitor = VictimMonitor("plain", 0.0, 0.0)
        for second in range(600):
            report = {"rss_kb": 50_000 + kb_per_s * second, "lag_s": 0, "late_s": 0, "findings": []}
            monitor.on_report(report, float(second))
        monitor.check_memory()
        return monitor.findings

    assert findings_for(1) == []
    assert len(findings_for(GROWTH_KB_MAX // int(500 - WARM_UP_S))) == 2
    assert round(slope_per_minute([(0.0, 0), (60.0, 10), (120.0, 20)])) == 10
