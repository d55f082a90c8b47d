"""State for late joiners between simulated peers, and what must hold for each of them at every step.

The state of each program is what it has read: of each author, ranges of sequence numbers. Only the first program starts
without state; each newcomer fetches it before it reads. Then, of each author, every program has each message exactly
once and from its first message on, except those that were reported as missed.
"""

import json
from collections import deque
from typing import TYPE_CHECKING

from broadloom.protocol.events import Batch, Message, Missed
from broadloom.protocol.state.fetch import FetchedState, FetchFailure, StateFetch
from broadloom.protocol.state.server import CONCURRENCY, StateServer
from broadloom.protocol.state.stream_tracker import PeerStream, Position, StreamTracker
from broadloom.wire.state_messages import STATE_KIND, STATE_LAYER

if TYPE_CHECKING:
    from collections.abc import Callable

    from broadloom.testing.sim.node import SimNode
    from broadloom.testing.sim.simulation import Simulation

GUARANTEE = 11
NAME = "log"
READ_S = 0.002
"""Mean time between two messages that a program reads."""
HANDLE_S = 0.005
"""Mean time that it takes to handle one, if it does not do so at once."""
TIMEOUT_S = 20.0
RETRY_S = 1.0
START_POLL_S = 0.05
PADDING = 400_000
"""Bytes of state beside the log, so that it has several chunks."""
INBOX_MAX = 500
"""Messages that wait during a fetch; more are dropped and reported, as in the inbox of a subscription."""


class AuthorContent:
    """What a program has of one author."""

    __slots__ = ("missed", "ranges")

    def __init__(self) -> None:
        self.ranges: list[list[int]] = []
        self.missed: list[tuple[int, int]] = []

    @property
    def last(self) -> int:
        return self.ranges[-1][1] if self.ranges else 0

    def add(self, sequence: int) -> str | None:
        """Returns what is wrong with it."""
        if sequence <= self.last:
            return "a second time"
        lost = self.unreported(sequence - 1)
        if lost is not None:
            return f"without message {lost}, which was not reported as missed"
        if self.ranges and sequence == self.last + 1:
            self.ranges[-1][1] = sequence
        else:
            self.ranges.append([sequence, sequence])
        return None

    def unreported(self, through: int) -> int | None:
        """The first message after the last one, up to `through`, that is not reported as missed."""
        wanted = self.last + 1
        for first, last in sorted(self.missed):
            if first <= wanted <= last:
                wanted = last + 1
        return wanted if wanted <= through else None


class SimProgram:
    """The program of one node: it reads, fetches state and serves it. It is also the inbox of its reader."""

    _when_between: "Callable[[], None] | None" = None
    _is_in_hand = False
    _is_waiting = False
    """For the next message."""

    def __init__(self, traffic: "StateTraffic", node: "SimNode", *, is_first: bool) -> None:
        self._traffic = traffic
        self.node = node
        self.content: dict[int, AuthorContent] = {}
        self._batches: deque[Batch] = deque()
        self.has_state = False
        self.fetch: StateFetch | None = None
        self.tracker = StreamTracker(self, PeerStream(lambda: node.peer))
        self.server = StateServer(node)
        node.on_message = self._on_message
        node.on_missed = self._on_missed
        if is_first:
            self._serve()

    @property
    def _inbox(self) -> "SimProgram":
        return self

    # -- the inbox

    def unread(self) -> list[Batch]:
        return list(self._batches)

    def cut(self, through: Position) -> None:
        batches = [batch.after(through.get(batch.author, 0)) for batch in self._batches]
        self._batches = deque(batch for batch in batches if batch.data)

    def _on_message(self, message: Message) -> None:
        batch = self.tracker.admit(Batch.from_message(message))
        if batch.data:
            self._batches.append(batch)
            if self._is_waiting:
                self._is_waiting = False
                self.node.call_later(self._traffic.random.expovariate(1 / READ_S), self._read)
        while len(self._batches) > INBOX_MAX:
            dropped = self._batches.popleft()
            self._on_missed(Missed(dropped.author, dropped.first_sequence, dropped.last_sequence))

    def _on_missed(self, missed: Missed) -> None:
        self.tracker.on_lost(missed)
        self._of(missed.author).missed.append((missed.first_sequence, missed.last_sequence))

    def _of(self, author: int) -> AuthorContent:
        return self.content.setdefault(author, AuthorContent())

    # -- reading

    def _serve(self) -> None:
        self.has_state = True
        self.server.offer(NAME, self._make, self.tracker)
        self.node.peer.requests.handlers.set(STATE_LAYER, self.server.on_request, CONCURRENCY)
        self.node.peer.roster.set_layers((STATE_KIND,))
        self._read()

    def _read(self) -> None:
        """Ask for the next message: the one before is handled."""
        self._is_in_hand = False
        if self._when_between is not None:
            callback, self._when_between = self._when_between, None
            callback()
        random = self._traffic.random
        if not self._batches:
            self._is_waiting = True
            return
        batch = self._batches.popleft()
        self._is_in_hand = True
        if random.random() < 0.5:
            self._apply(batch)
            self.node.call_later(random.expovariate(1 / READ_S), self._read)
        else:
            self.node.call_later(random.expovariate(1 / HANDLE_S), self._apply_and_read, batch)

    def _apply_and_read(self, batch: Batch) -> None:
        self._apply(batch)
        self._read()

    def _apply(self, batch: Batch) -> None:
        for message in batch:
            problem = self._of(message.author).add(message.sequence)
            if problem is not None:
                self._traffic.violation(self.node, f"reads {message.sequence} of {message.author:016x} {problem}")

    # -- state

    def _make(self) -> bytes:
        ranges = {author: content.ranges for author, content in self.content.items()}
        own = self.node.peer.broadcaster.next_sequence - 1
        ranges[self.node.peer.me.peer_id] = [[1, own]] if own else []
        return json.dumps(ranges).encode() + b" " * PADDING

    def begin(self) -> None:
        """Fetch state, if it has none."""
        if self.node.is_connected and not self.has_state and self.fetch is None:
            self._traffic.checker.fetching[self.node] = None
            self.fetch = StateFetch(
                self.node.peer, NAME, self.tracker, self._on_fetched, timeout_s=TIMEOUT_S, bytes_max=10_000_000
            )

    def _on_fetched(self, result: FetchedState | FetchFailure) -> None:
        self.fetch = None
        self._traffic.fetched.append(isinstance(result, FetchedState))
        if isinstance(result, FetchFailure):
            self.node.call_later(RETRY_S, self.begin)
            return
        for author, ranges in json.loads(result.data).items():
            self._of(int(author)).ranges = ranges
        for missed in result.missed:
            self._of(missed.author).missed.append((missed.first_sequence, missed.last_sequence))
        self.content.pop(self.node.peer.me.peer_id, None)
        self.node.call_later(self._traffic.random.expovariate(1 / HANDLE_S), self._serve)


class StateTraffic:
    """Every peer runs a `SimProgram`."""

    def __init__(self, simulation: "Simulation") -> None:
        self._sim = simulation
        self.checker = simulation.checker
        self.random = simulation.random
        self.programs: list[SimProgram] = []
        self.fetched: list[bool] = []
        """Whether each fetch that ended has got a state."""

    def start(self) -> None:
        self._look_for_newcomers()

    def _look_for_newcomers(self) -> None:
        """Each program starts a moment after its peer is connected, as `connect` returns then."""
        started = {program.node: None for program in self.programs}
        for node in self._sim.members:
            if node not in started and not node.is_paused:
                self.programs.append(SimProgram(self, node, is_first=not self.programs))
                self.programs[-1].begin()
        self._sim.clock.call_at(self._sim.clock.now + START_POLL_S, self._look_for_newcomers)

    def find_problem(self) -> str | None:
        """Why not every program has everything yet."""
        programs = [program for program in self.programs if program.node.is_connected]
        last: dict[int, int] = {}
        """Of each author, the last message that a member has received: the others died with it, also those in a state
        that the author itself has served."""
        for program in programs:
            if not program.has_state:
                return f"{program.node} has no state"
            if program.unread():
                return f"{program.node} has not read all"
            own = program.node.peer.me.peer_id
            last[own] = len(self.checker.sent_at.get(own, ()))
            floors = program.node.peer.broadcaster.receiver.floors()
            for author, content in program.content.items():
                if content.last > floors.get(author, 0):
                    last[author] = max(last.get(author, 0), content.last)
        for program in programs:
            for author, sequence in last.items():
                if author == program.node.peer.me.peer_id:
                    continue
                lost = program._of(author).unreported(sequence)
                if lost is not None:
                    return f"{program.node} has never got message {lost} of {author:016x}"
        return None

    def violation(self, node: "SimNode", text: str) -> None:
        self._sim.checker.report_violation(GUARANTEE, node, text)
