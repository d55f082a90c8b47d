"""Receipts, the same on the simulator and on real sockets."""

from broadloom.protocol.receipts.receipts import Receipt
from broadloom.wire import PeerId
from broadloom.wire.payload_kind import WANTS_RECEIPT
from tests.behavior.harness import Harness, HarnessPeer, OpenHarness, is_converged

LONG_S = 1000.0
"""Longer than any test: the receipt does not end because of its timeout."""


class Receipts:
    """The receipts that the peers of a harness have got. None may name a member that does not have the message."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.ended: dict[tuple[int, int], Receipt] = {}
        """By author and sequence number."""

    def send(self, author: HarnessPeer, count: int | None = None, timeout_s: float = LONG_S) -> tuple[int, int]:
        """Broadcast and wait for `count` members, or all."""
        sequence = author.peer.broadcast(b"who has this?", kind=WANTS_RECEIPT)
        members = list(self.harness.peers)

        def on_done(receipt: Receipt) -> None:
            assert key not in self.ended, "a receipt ends once"
            assert receipt.sequence == sequence
            assert all(isinstance(each, PeerId) for each in receipt.confirmed | receipt.missing | receipt.gone)
            everyone = {peer.id: peer for peer in [*members, *self.harness.peers]}
            assert all(has_message(everyone[each], key) for each in receipt.confirmed)
            self.ended[key] = receipt

        key = (author.id, sequence)
        receipts = author.peer.receipts
        receipts.open(receipts.prepare(count), sequence, timeout_s, on_done)
        return key

    async def of(self, key: tuple[int, int], within_s: float = 30.0) -> Receipt:
        await self.harness.until(lambda: key in self.ended, within_s)
        return self.ended[key]


def has_message(peer: HarnessPeer, key: tuple[int, int]) -> bool:
    return any((message.author, message.sequence) == key for message in peer.received)


def ids(*peers: HarnessPeer) -> frozenset[int]:
    return frozenset(peer.id for peer in peers)


def all_know(peers: list[HarnessPeer]) -> bool:
    rosters = [peer.peer.roster for peer in peers]
    return all(roster.is_complete and set(roster.peer_ids()) == ids(*peers) for roster in rosters)


async def open_receipts(open_harness: OpenHarness, count: int) -> Receipts:
    harness = open_harness()
    await harness.add(count)
    await harness.until(lambda: all_know(harness.peers) and is_converged(harness), 30)
    return Receipts(harness)


async def test_every_member_gets_a_receipt_of_all_others(open_harness: OpenHarness) -> None:
    receipts = await open_receipts(open_harness, 8)
    peers = receipts.harness.peers
    keys = {peer: receipts.send(peer) for peer in peers for _ in range(3)}
    for author, key in keys.items():
        receipt = await receipts.of(key)
        assert receipt.confirmed == ids(*peers) - {author.id}
        assert receipt.is_complete
    await receipts.harness.until(lambda: len(receipts.ended) == 24)
    assert all(receipt.is_complete for receipt in receipts.ended.values())


async def test_killed_member_is_gone_and_all_others_confirm(open_harness: OpenHarness) -> None:
    receipts = await open_receipts(open_harness, 6)
    author, victim, *others = receipts.harness.peers
    receipts.harness.kill([victim])
    receipt = await receipts.of(receipts.send(author))
    assert (receipt.confirmed, receipt.gone) == (ids(*others), ids(victim))
    assert not receipt.missing
    assert not receipt.is_complete
    receipt = await receipts.of(receipts.send(author))
    assert receipt.confirmed == ids(*others)
    assert receipt.is_complete, "it was no member any more"


async def test_members_that_are_cut_off_are_gone_then_unreachable_then_confirm_again(
    open_harness: OpenHarness,
) -> None:
    receipts = await open_receipts(open_harness, 7)
    harness = receipts.harness
    author, *others = harness.peers
    cut, reached = others[-2:], others[:-2]
    harness.partition(cut)
    early = receipts.send(author)
    receipt = await receipts.of(early)
    assert (receipt.confirmed, receipt.gone) == (ids(*reached), ids(*cut))
    assert not receipt.is_complete
    await harness.until(lambda: author.peer.roster.unreachable_ids() == ids(*cut), 30)
    late = receipts.send(author)
    receipt = await receipts.of(late)
    assert (receipt.confirmed, receipt.unreachable) == (ids(*reached), ids(*cut))
    assert not receipt.missing | receipt.gone
    assert not receipt.is_complete
    harness.heal()
    await harness.until(lambda: all_know(harness.peers), 60)
    receipt = await receipts.of(receipts.send(author))
    assert receipt.confirmed == ids(*others)
    assert receipt.is_complete
    await harness.until(lambda: all(has_message(peer, key) for peer in others for key in (early, late)))


async def test_receipt_for_a_number_of_members_ends_with_that_number(open_harness: OpenHarness) -> None:
    receipts = await open_receipts(open_harness, 6)
    author, *others = receipts.harness.peers
    stalled = others[-2:]
    receipts.harness.pause_reading(stalled)
    receipt = await receipts.of(receipts.send(author, count=2))
    assert len(receipt.confirmed) == receipt.count == 2
    assert receipt.missing == ids(*others) - receipt.confirmed
    assert not receipt.confirmed & ids(*stalled)
    assert receipt.is_complete
    too_many = receipts.send(author, count=4)
    three = await receipts.of(receipts.send(author, count=3))
    assert three.confirmed == ids(*others) - ids(*stalled)
    assert too_many not in receipts.ended, "only three members can have it"
    receipts.harness.resume_reading(stalled)
    receipt = await receipts.of(too_many)
    assert len(receipt.confirmed) == 4
    assert receipt.is_complete


async def test_receipt_after_its_timeout_names_exactly_the_members_without_the_message(
    open_harness: OpenHarness,
) -> None:
    receipts = await open_receipts(open_harness, 6)
    harness = receipts.harness
    author, *others = harness.peers
    stalled = others[1:3]
    harness.pause_reading(stalled)
    keys = [receipts.send(author, timeout_s=1.0)]

    def is_exact() -> bool:
        """On a busy machine, the others may take longer than the timeout: then the next message shows it."""
        receipt = receipts.ended.get(keys[-1])
        if receipt is None:
            return False
        assert receipt.confirmed | receipt.missing == ids(*others)
        assert receipt.missing >= ids(*stalled)
        assert not receipt.is_complete
        if receipt.missing > ids(*stalled):
            keys.append(receipts.send(author, timeout_s=1.0))
        return receipt.missing == ids(*stalled)

    await harness.until(is_exact)
    assert not any(has_message(peer, key) for peer in stalled for key in keys)
    harness.resume_reading(stalled)
    receipt = await receipts.of(receipts.send(author))
    assert receipt.is_complete
    assert all(has_message(peer, key) for peer in others for key in keys)


async def test_member_that_joins_after_sending_is_not_counted_for_the_message(open_harness: OpenHarness) -> None:
    receipts = await open_receipts(open_harness, 3)
    harness = receipts.harness
    author, *others = harness.peers
    before = receipts.send(author, count=3)
    all_before = receipts.send(author)
    (newcomer,) = await harness.add()
    await harness.until(lambda: all_know(harness.peers))
    after = await receipts.of(receipts.send(author))
    assert after.confirmed == ids(*others, newcomer), "its report was received"
    assert after.is_complete
    receipt = await receipts.of(all_before)
    assert receipt.confirmed == ids(*others)
    assert receipt.is_complete
    assert before not in receipts.ended, "two members have it, and three were asked for"
    author.peer.receipts.end_all()
    receipt = receipts.ended[before]
    assert receipt.confirmed == ids(*others)
    assert not receipt.missing | receipt.gone | receipt.unreachable
    assert not receipt.is_complete
