"""Benchmarks of groups: `python -m tests.groups.measure scene|arrivals|fabric|order|catchup [...]`. Not a test."""

import asyncio
import sys
import time
import tracemalloc
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from broadloom.groups import Groups
from broadloom.groups.causal_order import CausalOrder
from broadloom.groups.history_client import ROUND_TRIP_S
from broadloom.groups.model import CaughtUp, MessageId, Post
from broadloom.groups.store import MemoryStore
from broadloom.protocol.events import PeerState
from broadloom.testing.sim.simulation import Simulation
from tests.channel.joined import connected_channels
from tests.groups.sim_runtime import SimGroupRuntime
from tests.groups.test_storms import messages_per_arrival
from tests.groups.test_thesis_1_2_example import check_threads, run_example, run_example_in_fabric


def scene(seeds: int = 1000) -> None:
    """The example of thesis section 1.2."""
    overtaken = 0
    for seed in range(seeds):
        members, waited = run_example(seed)
        overtaken += waited
        for member in members:
            check_threads(member, seed)
    print(f"{seeds} seeds, 4 screens each: every answer under its question; an answer had to wait in {overtaken}")


def scene_in_fabric(first: int = 0, last: int = 999) -> None:
    for seed in range(first, last + 1):
        for member in run_example_in_fabric(seed):
            check_threads(member, seed)
    print(f"seeds {first} to {last} in the simulated fabric, 7 screens each: every answer under its question")


def arrivals(*counts: int) -> None:
    """Messages per arrival, including the arrival itself, on the group bus."""
    for peers in counts or (10, 100, 1000):
        runs = [messages_per_arrival(peers, 5, seed) for seed in range(3)]
        print(f"{peers:5} peers: {sum(runs) / len(runs):.1f} messages per arrival", flush=True)


def fabric(*counts: int) -> None:
    """The same in the simulated fabric."""
    for peers in counts or (10, 100):
        sim = Simulation(1)
        members = [SimGroupRuntime(sim, "m0")]
        before: Counter[str] = Counter()
        sim.run_for(10.0)
        for number in range(20):
            members[0].participant.create(f"group {number}")
        for number in range(1, peers + 10):
            members.append(SimGroupRuntime(sim, f"m{number}"))
            sim.run_for(1.0 if number < peers else 10.0)
            if number == peers - 1:
                sim.run_for(20.0)
                before = _sent_counts(members)
        sent = _sent_counts(members) - before
        assert len({member.participant.directory.hash for member in members}) == 1
        per = (sent["DirectoryRequest"] + sent["DirectoryPage"]) / 10
        print(f"{peers:5} peers in the fabric: {per:.1f} messages per arrival; {dict(sent)}", flush=True)


def _sent_counts(members: list[SimGroupRuntime]) -> Counter[str]:
    sent: Counter[str] = Counter()
    for member in members:
        sent.update(member.participant.sent_counts)
    return sent


def order_cost_us(held: int, measured: int = 20_000, seed: int = 0) -> float:
    """Microseconds per message with `held` messages: replies to any of them, some before their parents."""
    random = Random(seed)
    order = CausalOrder(1 << 30, 1 << 40)
    authors = 50
    for number in range(held):
        order.receive(Post(number % authors, number // authors + 1, None, 0, b""), 0.0)
    posts = []
    for number in range(held, held + measured):
        parent = random.randrange(number)
        named = MessageId(parent % authors, parent // authors + 1)
        author, sequence = number % authors, number // authors + 1
        posts.append(Post(author, sequence, named if named < (author, sequence) else None, 0, b""))
    for at in range(0, measured - 4, 4):
        posts[at : at + 4] = random.sample(posts[at : at + 4], 4)
    begun = time.process_time()
    for post in posts:
        order.receive(post, 0.0)
    took_s = time.process_time() - begun
    assert (order.received.count, order.waiting_count) == (held + measured, 0)
    return 1e6 * took_s / measured


def order(*counts: int) -> None:
    costs = {
        held: min(order_cost_us(held, seed=seed) for seed in range(3))
        for held in counts or (10**3, 10**4, 10**5, 10**6)
    }
    first = next(iter(costs.values()))
    for held, cost_us in costs.items():
        print(f"{held:9,} held: {cost_us:.2f} us a message, ratio {cost_us / first:.2f}", flush=True)


def catchup(missed: int = 100_000, holders: int = 12, live_per_s: int = 20) -> None:
    """In the simulated fabric: one member missed this many messages of 100 bytes."""
    sim = Simulation(1)
    members = []
    for number in range(holders):
        members.append(SimGroupRuntime(sim, f"m{number}"))
        sim.run_for(5.0)
    sim.converge(60.0)
    members[0].participant.create("group", group=7)
    sim.run_for(10.0)
    for member in members[1:]:
        member.participant.join(7)
    store = MemoryStore()
    away = SimGroupRuntime(sim, "away", store=store)
    sim.run_for(20.0)
    away.participant.join(7)
    sim.run_for(20.0)
    away.participant.go_offline()
    sim.leave([away.node])
    sim.run_for(5.0)
    histories = [member.participant.conversations[7] for member in members]
    authors = [member.participant.me.id for member in members]
    random = Random(1)
    posts: list[Post] = []
    for number in range(missed):
        parent = random.choice(posts[-100:]).id if posts else None
        post = Post(authors[number % holders], number // holders + 1, parent, 0, random.randbytes(100))
        posts.append(post)
    for talk in histories:  # sent while it was away
        talk.receive(posts, {author: f"m{number}" for number, author in enumerate(authors)})
    tracemalloc.start()
    before_bytes = tracemalloc.get_traced_memory()[0]
    sent = {member: Counter(member.participant.sent_bytes) for member in members}
    pages_before = sum(member.participant.sent_counts["HistoryPage"] for member in members)
    back = SimGroupRuntime(sim, "away", store=store)
    assert sim.run_until(lambda: back.node.peer.state is PeerState.CONNECTED, 60.0)
    begun, cpu = sim.clock.now, time.process_time()
    lives: dict[MessageId, float] = {}
    slowest = 0.0
    seen = 0
    while not any(isinstance(event, CaughtUp) for event in back.events):
        for _ in range(live_per_s // 4):
            message = random.choice(members).participant.post(7, b"live", None)
            lives[message.id] = sim.clock.now
        sim.run_for(0.25)
        for message in back.delivered[seen:]:
            if message.id in lives:
                slowest = max(slowest, sim.clock.now - lives[message.id])
        seen = len(back.delivered)
        assert sim.clock.now < begun + 600, "catching up does not end"
    took_s = sim.clock.now - begun
    grown = tracemalloc.get_traced_memory()[0] - before_bytes
    peak = tracemalloc.get_traced_memory()[1] - before_bytes
    missing = sum(len(post.data) for post in posts)
    pages = sum(member.participant.sent_bytes["HistoryPage"] - sent[member]["HistoryPage"] for member in members)
    speakers = sum(member.participant.sent_bytes["HistoryPage"] > sent[member]["HistoryPage"] for member in members)
    asks = back.participant.sent_counts
    wait_s = ROUND_TRIP_S + back.participant.presence.reply_window_s
    print(
        f"{missed:,} missed ({missing / 1e6:.1f} MB): caught up in {took_s:.1f} s of virtual time "
        f"(the last {wait_s:.1f} s wait for further answers), CPU {time.process_time() - cpu:.0f} s; "
        f"pages of all {pages / 1e6:.2f} MB = {pages / missing:.2f} times the missing data, by {speakers} of {holders} "
        f"holders in {sum(member.participant.sent_counts['HistoryPage'] for member in members) - pages_before} pages, "
        f"{asks['HistoryRequest']} questions; {len(lives)} live messages meanwhile, the slowest took {slowest:.2f} s "
        f"(looked at every 0.25 s); memory of all grew by {grown / 1e6:.0f} MB, at most {peak / 1e6:.0f} MB"
    )
    got = {message.id for message in back.delivered}
    assert got >= {post.id for post in posts}


def sockets(missed: int = 50_000, holders: int = 3) -> None:
    """The same over real sockets, in one process, with SQLite stores."""
    asyncio.run(_sockets(missed, holders))


async def _sockets(missed: int, holders: int) -> None:
    async with AsyncExitStack() as stack, connected_channels(holders + 1) as channels:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        here = [
            await stack.enter_async_context(Groups(channel, f"m{number}", store=folder / f"{number}.db"))
            for number, channel in enumerate(channels)
        ]
        club = await here[0].create("club")
        for each in here[1:holders]:
            while not each.list_groups():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            await each.join(club.id)
        last, begun = None, time.perf_counter()
        for number in range(missed):
            last = await club.send(b"%-100d" % number, last if number % 3 else None)
            if number % 200 == 0:
                await asyncio.sleep(0)
        holding = [each.joined[club.id] for each in here[:holders]]
        counts = [each._participant.conversations[club.id].history for each in here[:holders]]
        while any(each.count < missed for each in counts):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        print(f"{missed:,} messages sent and kept by {len(holding)} in {time.perf_counter() - begun:.1f} s", flush=True)
        before = sum(each._participant.sent_bytes["HistoryPage"] for each in here)
        begun = time.perf_counter()
        done = asyncio.Event()
        here[-1].on_event(lambda event: done.set() if isinstance(event, CaughtUp) else None)
        late = await here[-1].join(club.id)
        slowest, kept = 0.0, here[-1]._participant.conversations[club.id].history
        while kept.count < missed:
            sent_at = time.perf_counter()
            message = await club.send(b"live")
            while late.get(message.id) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            slowest = max(slowest, time.perf_counter() - sent_at)
        took_s = time.perf_counter() - begun
        await done.wait()
        pages = sum(each._participant.sent_bytes["HistoryPage"] for each in here) - before
        print(
            f"caught up in {took_s:.1f} s, reported after {time.perf_counter() - begun:.1f} s; pages of all "
            f"{pages / 1e6:.2f} MB = {pages / (missed * 100):.2f} times the missing data; "
            f"slowest live message meanwhile {slowest:.2f} s"
        )


if __name__ == "__main__":
    globals()[sys.argv[1]](*map(int, sys.argv[2:]))
