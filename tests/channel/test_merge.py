"""Several peers that act as one: the merging by itself, and real ones."""

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.channel.joined import QUICK, joined, texts
from tests.net.lines import play, until
from weft.channel import merge as merge_module
from weft.channel.merge import Merge
from weft.fabric.events import Batch, Message, Missed

LEADER = 100


def a_batch(author: int, first: int, last: int) -> Batch:
    return Batch(author, first, tuple(b"%d of %d" % (each, author) for each in range(first, last + 1)), 1)


def a_message(author: int, sequence: int) -> Batch:
    return a_batch(author, sequence, sequence)


class Application:
    def __init__(self) -> None:
        self.got: dict[int, list[int]] = {}
        self.missed: dict[int, list[int]] = {}
        self.merge = Merge(self._deliver, self._told_missed)
        self.merge.led_by(LEADER)

    def _deliver(self, batch: Batch) -> None:
        assert batch.first <= batch.last
        for message in batch:
            assert message == Message(
                message.author, message.sequence, b"%d of %d" % (message.sequence, message.author), 1
            )
            self.got.setdefault(message.author, []).append(message.sequence)

    def _told_missed(self, missed: Missed) -> None:
        assert missed.first <= missed.last
        self.missed.setdefault(missed.author, []).extend(range(missed.first, missed.last + 1))


# A stream is what one peer of the set tells, of two authors: runs of messages, and for the leader runs that it missed.
RUNS = st.lists(st.tuples(st.sampled_from([1, 2]), st.booleans(), st.integers(1, 4)), max_size=12)


def told_by_the_leader(
    data: st.DataObject, runs: list[tuple[int, bool, int]], starts: dict[int, int]
) -> list[Batch | Missed]:
    told: list[Batch | Missed] = []
    at = dict(starts)
    for author, is_missed, count in runs:
        first, last = at[author] + 1, at[author] + count
        at[author] = last
        told += [Missed(author, first, last)] if is_missed else cut(data, author, first, last)
    return told


def cut(data: st.DataObject, author: int, first: int, last: int) -> list[Batch]:
    """Messages that follow each other, in batches of any size: each peer may have them cut in another way."""
    batches = []
    while first <= last:
        end = data.draw(st.integers(first, last))
        batches.append(a_batch(author, first, end))
        first = end + 1
    return batches


@given(st.data(), RUNS, st.integers(1, 3))
def test_any_interleaving_gives_each_message_once_in_order_and_nothing_less_than_the_leader_had(
    data: st.DataObject, runs: list[tuple[int, bool, int]], others: int
) -> None:
    starts = {author: data.draw(st.integers(0, 3), label=f"start of {author}") for author in (1, 2)}
    leader = told_by_the_leader(data, runs, starts)
    last = {author: starts[author] + sum(count for name, _, count in runs if name == author) for author in (1, 2)}
    # Another peer came later, so it starts later, lacks what it lacks, and may be ahead of the leader.
    streams: list[list[Batch | Missed]] = [leader]
    for _ in range(others):
        stream: list[Batch | Missed] = []
        for author in (1, 2):
            for batch in cut(data, author, starts[author] + 1, last[author]):
                if data.draw(st.booleans()):
                    stream.append(batch)
        streams.append(stream)
    application = Application()
    position = [0] * len(streams)
    order = [number for number, stream in enumerate(streams) for _ in stream]
    for number in data.draw(st.permutations(order)):
        told = streams[number][position[number]]
        position[number] += 1
        if number > 0:
            assert isinstance(told, Batch)
            application.merge.from_other(told)
        elif isinstance(told, Batch):
            application.merge.from_leader(told)
        else:
            application.merge.missed_by_leader(told)
    for author in (1, 2):
        got, missed = application.got.get(author, []), application.missed.get(author, [])
        assert got == sorted(set(got)), "once, in order"
        assert not set(got) & set(missed), "got or missed, not both"
        assert sorted(got + missed) == list(range(starts[author] + 1, last[author] + 1)), "and all of it"
        had = {
            message.sequence for told in leader if isinstance(told, Batch) and told.author == author for message in told
        }
        assert had <= set(got)
    assert not any(held[0] in (1, 2) and held[1] > last[held[0]] for held in application.merge._held)


def test_what_the_leader_says_is_no_news_of_another() -> None:
    application = Application()
    application.merge.from_other(a_message(LEADER, 1))
    assert not application.got


def test_a_leader_that_was_told_a_tale_goes_on_where_the_author_is() -> None:
    """What it had given up turned out never to have been said."""
    application = Application()
    application.merge.from_leader(a_message(1, 1))
    application.merge.missed_by_leader(Missed(1, 2, 1000))
    for sequence in (2, 3, 4):
        application.merge.from_other(a_message(1, sequence))
        application.merge.from_leader(a_message(1, sequence))
        application.merge.from_other(a_message(1, sequence))
    assert application.got == {1: [1, 2, 3, 4]}


def test_what_is_held_for_the_leader_is_bounded() -> None:
    application = Application()
    for sequence in range(2, 3 * merge_module.HELD_MAX):
        application.merge.from_other(a_message(1, sequence))
    assert len(application.merge._held) <= merge_module.HELD_MAX
    for sequence in range(1, 3 * merge_module.HELD_MAX):
        application.merge.from_leader(a_message(1, sequence))
    assert application.got[1] == list(range(1, 3 * merge_module.HELD_MAX))
    assert not application.merge._held


def test_a_set_of_peers_acts_as_one() -> None:
    async def main() -> None:
        async with joined(2) as (other, more):
            async with weft.connect(other.name, plain=True, settings=QUICK, peers=3) as channel:
                assert len(channel.status().others) == 2
                for number in range(100):
                    await other.broadcast_text(f"{number}")
                    await more.broadcast_text(f"{number}")
                    await channel.broadcast_text(f"{number}")
                got: dict[int, list[str]] = {}
                for _ in range(200):
                    message = await channel.receive(10)
                    got.setdefault(message.author, []).append(message.text)
                numbers = [str(number) for number in range(100)]
                assert got == {other.peer: numbers, more.peer: numbers}
                heard = [await other.receive(10) for _ in range(200)]
                assert {message.author for message in heard} == {channel.peer, more.peer}
                await until(lambda: all(each.counters["delivered"] >= 200 for each in channel.status().others))
                assert channel.unread == 0
            await other.broadcast_text("after")
            assert channel.acquire() is None

    play(main)


def test_what_a_set_says_last_is_heard_although_its_peers_are_each_others_neighbours() -> None:
    async def main() -> None:
        for _ in range(3):
            async with joined(1) as (other,):
                async with weft.connect(other.name, plain=True, settings=QUICK, peers=6) as channel:
                    for number in range(20):
                        await channel.broadcast_text(str(number))
                assert await texts(other, 20) == [str(number) for number in range(20)]
                await until(lambda other=other: not other.status().neighbours, 5)  # type: ignore[misc]

    play(main)


def test_all_peers_of_a_set_leave_in_good_order() -> None:
    async def main() -> None:
        async with joined(1) as (other,):
            ends: list[Any] = []
            other.on_event(lambda event: ends.append(event.why) if isinstance(event, weft.LinkDown) else None)
            async with weft.connect(other.name, plain=True, settings=QUICK, peers=3):
                await until(lambda: len(other.status().neighbours) == 3)
            await asyncio.wait_for(until(lambda: len(ends) == 3), 5)
            assert {why.value for why in ends} == {"left"}

    play(main)
