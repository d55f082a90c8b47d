"""`Follower`: assignments of the sequencer on their way into the log.

An assignment names submissions. It is taken when all of them are here and the hash chain is right; otherwise the log
is fetched from the sequencer. So an author that sent different data to different members, a lost message and a
sequencer that contradicts itself are all found before anything is delivered.
"""

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from broadloom.order.log import InvalidLogError, LogEntry
from broadloom.order.messages import Assign, Run
from broadloom.order.model import NO_EPOCH
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.order.replica import Replica

QUEUE_MAX = 65_536
"""Assigned submissions that are waited for."""
DATA_WAIT_S = 0.3
"""What is missing after this time is fetched, again if that failed."""


class Assignment(NamedTuple):
    first_index: int
    last_index: int
    runs: tuple[Run, ...]
    chain: bytes


class Follower:
    def __init__(self, replica: "Replica") -> None:
        self._replica = replica
        self._epoch = NO_EPOCH
        """Of the assignments in the queue: that of our log, or one that we are about to follow."""
        self._queue: deque[Assignment] = deque()
        self._queued = 0
        self._waiting_since: float | None = None

    @property
    def next_index(self) -> int:
        return (self._queue[-1].last_index if self._queue else self._replica.log.end) + 1

    def reset(self) -> None:
        self._queue.clear()
        self._queued = 0
        self._waiting_since = None

    def on_assign(self, message: Assign) -> None:
        """The message comes from the sequencer of its epoch, which is not below what we voted for."""
        if message.epoch != self._epoch:
            self.reset()
            self._epoch = message.epoch
        count = sum(run.length for run in message.runs)
        last_index = message.first_index + count - 1
        if self._queue and message.first_index > self.next_index:
            self.reset()
        if count and last_index >= self.next_index:
            if self._queued + count > QUEUE_MAX:
                self.reset()
            self._queue.append(Assignment(message.first_index, last_index, message.runs, message.chain))
            self._queued += count
        self.advance()
        if message.epoch == self._replica.log.epoch:
            self._replica.on_committed(message.committed)

    def advance(self) -> None:
        """Take what is complete."""
        replica = self._replica
        while self._queue and self._epoch == replica.log.epoch and not replica.catch_up.is_running:
            assignment = self._queue[0]
            if assignment.last_index <= replica.log.end:
                self._drop_first()
                continue
            if assignment.first_index != replica.log.end + 1:
                self._waiting_since = replica.clock.now()
                replica.joining.fetch_from_sequencer()
                return
            entries = self._entries(assignment)
            if entries is None:
                if self._waiting_since is None:
                    self._waiting_since = replica.clock.now()
                return
            self._drop_first()
            try:
                is_right = replica.log.check(entries) == assignment.chain
            except InvalidLogError:
                is_right = False
            if not is_right:
                replica.rejected["assignment"] += 1
                self.reset()
                replica.joining.fetch_from_sequencer()
                return
            replica.append(entries)

    def _drop_first(self) -> None:
        assignment = self._queue.popleft()
        self._queued -= assignment.last_index - assignment.first_index + 1
        self._waiting_since = None

    def _entries(self, assignment: Assignment) -> list[LogEntry] | None:
        submissions, entries = self._replica.submissions, []
        for run in assignment.runs:
            for number in range(run.first_number, run.first_number + run.length):
                submission = submissions.get(PeerId(run.author), number)
                if submission is None:
                    return None
                entries.append(LogEntry(run.author, number, run.original, submission.key, submission.data))
        return entries

    def tick(self, now: float) -> None:
        self.advance()  # a fetch that has failed may have held it up
        if self._waiting_since is not None and now - self._waiting_since > DATA_WAIT_S:
            self._waiting_since = now
            self._replica.joining.fetch_from_sequencer()
