"""State for late joiners, the same on the simulator and on real sockets."""

import json
import random
from collections import deque
from collections.abc import Callable

from broadloom.protocol.events import Batch, Missed
from broadloom.protocol.requests.incoming import IncomingRequest
from broadloom.protocol.state.fetch import FetchedState, FetchFailure, StateFetch
from broadloom.protocol.state.server import CONCURRENCY, StateServer
from broadloom.protocol.state.stream_tracker import PeerStream, Position, StreamTracker
from broadloom.wire.state_messages import STATE_KIND, STATE_LAYER, ChunkQuery, decode_state
from tests.behavior.harness import Harness, HarnessPeer, OpenHarness

LARGE = random.Random(1).randbytes(1 << 20)
CHUNK_COUNT = 5
"""`LARGE` and the log."""
Entry = tuple[int, int]
"""Author and sequence number."""


class Program:
    """Its state is what it has read, and what it has sent itself."""

    _when_between: Callable[[], None] | None = None
    _is_in_hand = False

    def __init__(self, peer: HarnessPeer) -> None:
        self.peer = peer
        self.entries: list[Entry] = []
        self.result: FetchedState | FetchFailure | None = None
        self.fetching: StateFetch | None = None
        self.chunks_served = 0
        self.chunks_left = -1
        """It answers for this many chunks only, if it is not negative."""
        self._batches: deque[Batch] = deque()
        self.tracker = StreamTracker(self, PeerStream(lambda: peer.peer))
        self._server = StateServer(peer.peer.runtime)
        peer.peer.runtime.deliver = self._deliver  # type: ignore[method-assign]
        peer.peer.runtime.report_missed = self._on_missed  # type: ignore[method-assign]

    @property
    def _inbox(self) -> "Program":
        return self

    def unread(self) -> list[Batch]:
        return list(self._batches)

    def cut(self, through: Position) -> None:
        rest = (batch.after(through.get(batch.author, 0)) for batch in self._batches)
        self._batches = deque(batch for batch in rest if batch.data)

    def _deliver(self, batch: Batch) -> None:
        batch = self.tracker.admit(batch)
        if batch.data:
            self._batches.append(batch)

    def _on_missed(self, missed: Missed) -> None:
        raise AssertionError(f"{missed} in a calm fabric")

    def read(self) -> None:
        """Take all that is there."""
        while self._batches:
            self.entries += [(message.author, message.sequence) for message in self._batches.popleft()]

    def send(self) -> None:
        self.entries.append((self.peer.id, self.peer.peer.broadcast(b"x")))

    def serve(self) -> None:
        self._server.offer("log", lambda: LARGE + json.dumps(self.entries).encode(), self.tracker)
        self.peer.peer.requests.handlers.set(STATE_LAYER, self._on_request, CONCURRENCY)
        self.peer.peer.roster.set_layers((STATE_KIND,))

    def _on_request(self, request: IncomingRequest) -> None:
        if isinstance(decode_state(request.data), ChunkQuery):
            if self.chunks_left == 0:
                return  # never answered
            self.chunks_left -= 1
            self.chunks_served += 1
        self._server.on_request(request)

    def fetch(self, helper: "Program | None" = None, timeout_s: float = 20.0) -> None:
        first = helper.peer.id if helper is not None else None
        self.fetching = StateFetch(
            self.peer.peer, "log", self.tracker, self._on_done, timeout_s=timeout_s, bytes_max=1 << 30, helper=first
        )

    def _on_done(self, result: FetchedState | FetchFailure) -> None:
        assert self.result is None, "a fetch ends once"
        self.result = result
        if isinstance(result, FetchedState):
            assert result.data.startswith(LARGE)
            self.entries = [(author, sequence) for author, sequence in json.loads(result.data[len(LARGE) :])]


async def open_programs(open_harness: OpenHarness, count: int) -> tuple[Harness, list[Program]]:
    """Members that serve."""
    harness = open_harness()
    programs = [Program(peer) for peer in await harness.add(count)]
    for program in programs:
        program.serve()
    return harness, programs


async def add_newcomer(harness: Harness, offers: int) -> Program:
    (peer,) = await harness.add()
    newcomer = Program(peer)
    roster = peer.peer.roster
    await harness.until(lambda: sum("St" in member.layers for member in roster.members()) == offers)
    return newcomer


def by_author(entries: list[Entry]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for author, sequence in entries:
        found.setdefault(author, []).append(sequence)
    return found


async def until_equal(harness: Harness, programs: list[Program], sent: int) -> None:
    """All have everything, once and in the order of each author."""

    def are_equal() -> bool:
        for program in programs:
            program.read()
        return all(len(program.entries) >= sent for program in programs)

    await harness.until(are_equal)
    contents = [by_author(program.entries) for program in programs]
    assert all(content == contents[0] for content in contents)
    assert all(found == list(range(1, len(found) + 1)) for found in contents[0].values())


async def test_newcomer_has_what_all_have(open_harness: OpenHarness) -> None:
    harness, programs = await open_programs(open_harness, 4)
    for _ in range(5):
        for program in programs:
            program.send()
    newcomer = await add_newcomer(harness, 4)
    for program in programs:
        program.send()
    newcomer.fetch()
    sent = 24

    def is_fetched() -> bool:
        nonlocal sent
        programs[sent % 4].send()
        sent += 1
        for program in programs:
            program.read()
        return newcomer.result is not None

    await harness.until(is_fetched)
    assert isinstance(newcomer.result, FetchedState)
    await until_equal(harness, [*programs, newcomer], sent)


async def test_fetch_goes_on_at_the_next_member_without_chunks_that_it_has(open_harness: OpenHarness) -> None:
    harness, programs = await open_programs(open_harness, 3)
    newcomer = await add_newcomer(harness, 3)
    programs[0].chunks_left = 2
    newcomer.fetch(programs[0])
    await harness.until(lambda: newcomer.fetching is not None and len(newcomer.fetching._chunks) == 2)
    harness.kill([programs[0].peer])
    await harness.until(lambda: newcomer.result)
    assert isinstance(newcomer.result, FetchedState)
    assert newcomer.result.helper in {program.peer.id for program in programs[1:]}
    assert sum(program.chunks_served for program in programs[1:]) == CHUNK_COUNT - 2
    programs[1].send()
    await until_equal(harness, [programs[1], programs[2], newcomer], 1)


async def test_member_in_the_middle_of_a_message_is_waited_for_and_passed_over(open_harness: OpenHarness) -> None:
    harness, programs = await open_programs(open_harness, 2)
    newcomer = await add_newcomer(harness, 2)
    programs[0]._is_in_hand = True
    newcomer.fetch(programs[0], timeout_s=3.0)  # after half of the time, the other one is asked
    await harness.until(lambda: newcomer.result)
    assert isinstance(newcomer.result, FetchedState)
    assert newcomer.result.helper == programs[1].peer.id


async def test_fetch_fails_at_once_if_no_member_offers_the_state(open_harness: OpenHarness) -> None:
    harness = open_harness()
    one, _ = [Program(peer) for peer in await harness.add(2)]
    await harness.until(lambda: one.peer.peer.roster.is_complete)
    one.fetch(timeout_s=1000.0)
    await harness.until(lambda: one.result)
    assert isinstance(one.result, FetchFailure)
    assert one.result.reasons == {}
