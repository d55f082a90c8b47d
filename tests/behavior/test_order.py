"""Agreed order, the same on the simulator and on real sockets."""

import pytest

from broadloom.order.model import Entry, Resumed, Rewound, SequencerChanged, Stalled
from broadloom.order.settings import OrderSettings
from broadloom.order.store import MemoryOrderStore
from broadloom.testing.sim.order_runtime import PeerOrderRuntime
from tests.behavior.harness import Harness, HarnessPeer, OpenHarness

QUICK = OrderSettings(stall_s=1.5)
MODES = ["available", "safe"]
VOTERS = ("voter 0", "voter 1", "voter 2")


class Conversation:
    """An ordered conversation between the peers of a harness. In mode `safe` the first three are the voters."""

    def __init__(self, harness: Harness, mode: str) -> None:
        self.harness = harness
        self.voters = VOTERS if mode == "safe" else ()
        self.names: dict[int, str] = {}
        self.stores: dict[str, MemoryOrderStore] = {}
        self.runtimes: dict[HarnessPeer, PeerOrderRuntime] = {}

    def enter(self, peer: HarnessPeer, *, voter: str = "", from_index: int | None = None) -> PeerOrderRuntime:
        store = None
        if self.voters and (voter or len(self.names) < len(VOTERS)):
            voter = self.names[peer.id] = voter or VOTERS[len(self.names)]
            store = self.stores.setdefault(voter, MemoryOrderStore(len(self.stores) + 1))
        runtime = PeerOrderRuntime(
            peer.peer, self.names, voters=self.voters, store=store, settings=QUICK, from_index=from_index
        )
        peer.on_message, peer.listen = runtime.on_message, runtime.on_event
        runtime.replica.start()
        self.runtimes[peer] = runtime
        return runtime

    @property
    def active(self) -> list[PeerOrderRuntime]:
        return [self.runtimes[peer] for peer in self.harness.peers if peer in self.runtimes]

    @property
    def sequencers(self) -> list[PeerOrderRuntime]:
        return [each for each in self.active if each.replica.is_sequencing]

    def peer_of(self, runtime: PeerOrderRuntime) -> HarnessPeer:
        return next(peer for peer, each in self.runtimes.items() if each is runtime)

    async def submit(self, runtime: PeerOrderRuntime, data: bytes, key: bytes = b"") -> None:
        """Wait until it is delivered to its author."""
        number = runtime.replica.submit(data, key)
        await self.harness.until(lambda: number in runtime.placed)

    async def until_equal(self, count: int, within_s: float = 20.0) -> list[bytes]:
        """Wait until all have this many entries, and the same ones."""

        def are_equal() -> bool:
            first = entries(self.active[0])
            return len(first) == count and all(entries(each) == first for each in self.active)

        await self.harness.until(are_equal, within_s)
        return [data for _, data in entries(self.active[0])]


def entries(runtime: PeerOrderRuntime) -> list[tuple[int, bytes]]:
    return [(entry.index, entry.data) for entry in runtime.delivered]


def events(runtime: PeerOrderRuntime, kind: type) -> list[object]:
    return [event for event in runtime.events if isinstance(event, kind)]


async def open_conversation(open_harness: OpenHarness, mode: str, count: int) -> Conversation:
    harness = open_harness()
    conversation = Conversation(harness, mode)
    for peer in await harness.add(count):
        conversation.enter(peer)
    await harness.until(lambda: all(each.replica.log.lineage for each in conversation.active))
    return conversation


@pytest.mark.parametrize("mode", MODES)
async def test_all_members_get_all_entries_in_one_order(open_harness: OpenHarness, mode: str) -> None:
    conversation = await open_conversation(open_harness, mode, 5)
    assert len(conversation.sequencers) == 1
    for number in range(10):
        for runtime in conversation.active:
            runtime.replica.submit(b"%d of %d" % (number, runtime.peer_id))
    ordered = await conversation.until_equal(50)
    for runtime in conversation.active:
        own = [data for data in ordered if data.endswith(b"of %d" % runtime.peer_id)]
        assert own == [b"%d of %d" % (number, runtime.peer_id) for number in range(10)]
    final = {entry.is_final for runtime in conversation.active for entry in runtime.delivered}
    assert final == {mode == "safe"}


@pytest.mark.parametrize("mode", MODES)
async def test_order_continues_when_the_sequencer_dies(open_harness: OpenHarness, mode: str) -> None:
    conversation = await open_conversation(open_harness, mode, 5)
    await conversation.submit(conversation.active[0], b"before")
    await conversation.until_equal(1)
    (first,) = conversation.sequencers
    conversation.harness.kill([conversation.peer_of(first)])
    for runtime in conversation.active:
        runtime.replica.submit(b"after")
    await conversation.until_equal(1 + len(conversation.active))
    (second,) = conversation.sequencers
    assert second.replica.log.epoch > first.replica.log.epoch
    assert not any(events(runtime, Rewound) for runtime in conversation.active)
    assert all(events(runtime, SequencerChanged)[-1] == SequencerChanged(second.replica.log.epoch)
               for runtime in conversation.active)  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
async def test_sequencer_hands_over_when_it_ends_its_part(open_harness: OpenHarness, mode: str) -> None:
    conversation = await open_conversation(open_harness, mode, 4)
    (first,) = conversation.sequencers
    first.replica.submit(b"last words")
    first.replica.close()
    del conversation.runtimes[conversation.peer_of(first)]
    await conversation.submit(conversation.active[0], b"next")
    assert await conversation.until_equal(2) == [b"last words", b"next"]


@pytest.mark.parametrize("mode", MODES)
async def test_newcomer_gets_the_log_from_the_index_it_asks_for(open_harness: OpenHarness, mode: str) -> None:
    conversation = await open_conversation(open_harness, mode, 3)
    for number in range(6):
        await conversation.submit(conversation.active[number % 3], b"%d" % number)
    (newcomer,) = await conversation.harness.add(1)
    runtime = conversation.enter(newcomer, from_index=4)
    await conversation.harness.until(lambda: len(runtime.delivered) == 3)
    await conversation.submit(runtime, b"6")
    assert entries(runtime) == [(4, b"3"), (5, b"4"), (6, b"5"), (7, b"6")]
    (other,) = await conversation.harness.add(1)
    late = conversation.enter(other)
    await conversation.submit(late, b"7")
    assert entries(late) == [(8, b"7")]


@pytest.mark.parametrize("mode", MODES)
async def test_key_is_ordered_once_from_any_author(open_harness: OpenHarness, mode: str) -> None:
    conversation = await open_conversation(open_harness, mode, 3)
    one, other, _ = conversation.active
    await conversation.submit(one, b"bid 100", b"key")
    await conversation.submit(other, b"bid 100", b"key")
    await conversation.submit(one, b"bid 100", b"key")
    await conversation.submit(other, b"bid 200", b"another key")
    assert await conversation.until_equal(2) == [b"bid 100", b"bid 200"]
    assert other.placed[1].index == one.placed[1].index == one.placed[2].index == 1
    conversation.harness.kill([conversation.peer_of(conversation.sequencers[0])])
    survivor = conversation.active[0]
    await conversation.submit(survivor, b"bid 100", b"key")
    await conversation.submit(survivor, b"end")
    assert [data for _, data in entries(survivor)] == [b"bid 100", b"bid 200", b"end"]


LONG_ON_SOCKETS = pytest.mark.parametrize(
    "open_harness", ["simulated", pytest.param("TLS, signed", marks=pytest.mark.long)], indirect=True
)
"""The parts of a real channel take some seconds to find each other."""


@LONG_ON_SOCKETS
async def test_both_sides_of_a_partition_continue_and_the_smaller_one_rewinds(open_harness: OpenHarness) -> None:
    conversation = await open_conversation(open_harness, "available", 5)
    harness = conversation.harness
    await conversation.submit(conversation.active[0], b"before")
    await conversation.until_equal(1)
    small, large = harness.peers[:2], harness.peers[2:]
    harness.partition(small)
    sides = [[conversation.runtimes[peer] for peer in side] for side in (small, large)]
    await harness.until(lambda: all(any(each.replica.is_sequencing for each in side) for side in sides), 60)
    for number in range(3):
        await conversation.submit(sides[0][number % 2], b"small %d" % number)
        await conversation.submit(sides[1][number % 3], b"large %d" % number)
    revoked = [entries(runtime)[1:] for runtime in sides[0]]
    harness.heal()
    ordered = await conversation.until_equal(7, within_s=90)
    assert ordered[:4] == [b"before", b"large 0", b"large 1", b"large 2"]
    assert sorted(ordered[4:]) == [b"small 0", b"small 1", b"small 2"]
    for runtime, delivered in zip(sides[0], revoked, strict=True):
        (rewound,) = events(runtime, Rewound)
        assert isinstance(rewound, Rewound)
        assert rewound.to_index == 1
        named = [(entry.index, entry.data) for entry in rewound.entries]
        assert named[: len(delivered)] == delivered  # then what both sides ordered before they became one
        moved = {entry.data: entry.moved_from for entry in runtime.delivered if entry.moved_from}
        assert moved == {data: index for index, data in named}
    assert not any(events(runtime, Rewound) for runtime in sides[1])


@LONG_ON_SOCKETS
async def test_minority_stalls_and_catches_up(open_harness: OpenHarness) -> None:
    conversation = await open_conversation(open_harness, "safe", 5)
    harness = conversation.harness
    await conversation.submit(conversation.active[0], b"before")
    await conversation.until_equal(1)
    cut_off = conversation.peer_of(conversation.sequencers[0])
    alone, others = (
        conversation.runtimes[cut_off],
        [each for each in conversation.active if not each.replica.is_sequencing],
    )
    harness.partition([cut_off])
    number = alone.replica.submit(b"from the minority")
    await harness.until(lambda: any(each.replica.is_sequencing for each in others), 60)
    await conversation.submit(others[0], b"from the majority")
    await harness.until(lambda: events(alone, Stalled))
    assert number not in alone.placed
    assert entries(alone) == [(1, b"before")]
    harness.heal()
    assert await conversation.until_equal(3, within_s=90) == [b"before", b"from the majority", b"from the minority"]
    assert events(alone, Resumed)
    assert not events(alone, Rewound)


async def test_all_voters_restart_and_nothing_is_lost(open_harness: OpenHarness) -> None:
    conversation = await open_conversation(open_harness, "safe", 4)
    for number in range(5):
        await conversation.submit(conversation.active[number % 4], b"%d" % number)
    *voters, learner = conversation.harness.peers
    conversation.harness.kill(voters)
    del conversation.runtimes[learner]
    for voter, peer in zip(VOTERS, await conversation.harness.add(3), strict=True):
        conversation.enter(peer, voter=voter, from_index=1)
    await conversation.submit(conversation.active[0], b"5")
    assert await conversation.until_equal(6) == [b"%d" % number for number in range(6)]


async def test_voter_with_another_store_does_not_count(open_harness: OpenHarness) -> None:
    conversation = await open_conversation(open_harness, "safe", 3)
    await conversation.submit(conversation.active[0], b"before")
    await conversation.until_equal(1)
    conversation.harness.kill(conversation.harness.peers[:2])
    conversation.stores[VOTERS[0]] = MemoryOrderStore(99)
    (peer,) = await conversation.harness.add(1)
    replaced = conversation.enter(peer, voter=VOTERS[0])
    survivor = conversation.active[0]
    survivor.replica.submit(b"not ordered")
    await conversation.harness.until(lambda: events(survivor, Stalled), 60)
    assert not replaced.delivered
    assert len(survivor.delivered) == 1
    (peer,) = await conversation.harness.add(1)
    conversation.enter(peer, voter=VOTERS[1])
    await conversation.harness.until(
        lambda: [entry.data for entry in survivor.delivered] == [b"before", b"not ordered"]
    )


def test_entry_has_its_data_as_text() -> None:
    assert Entry(1, SequencerChanged((1, 2)).epoch, 3, b"text", True).text == "text"  # type: ignore[arg-type]
