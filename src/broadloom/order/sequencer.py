"""`Sequencer`: assigning indexes, while this program is the sequencer; in mode `safe`, finding out what is final."""

from typing import TYPE_CHECKING

from broadloom.order.log import LogEntry
from broadloom.order.messages import Ack, Assign, Run, Status
from broadloom.order.policy import SafePolicy
from broadloom.order.settings import BATCH_S, PARTICIPANTS_MAX, RUNS_MAX, STATUS_S
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.order.replica import Replica
    from broadloom.order.runtime import Reply
    from broadloom.protocol.runtime import Timer

BATCH_ENTRIES_MAX = 1024
BATCH_BYTES_MAX = 1 << 20
"""Of one `Assign`, and of one transaction of the stores."""
UNCOMMITTED_MAX = 8192
"""Entries that may wait for a majority. More submissions wait before they are assigned."""
STATUS_DELAY_S = 0.05
"""Newcomers within this time are greeted together."""
REPEAT_S = 0.5
"""Voters that have not acknowledged by then are reminded."""
WATCHES_MAX = 16


class Sequencer:
    def __init__(self, replica: "Replica") -> None:
        self._replica = replica
        self._flush_timer: Timer | None = None
        self._status_timer: Timer | None = None
        self._flushed_at = float("-inf")
        self._status_at = 0.0
        self._announced = 0
        """The highest commit index that was sent to the others."""
        self._acks: dict[str, int] = {}
        self._watchers: dict[PeerId, Reply] = {}

    # -- begin and end

    def start(self) -> None:
        self._acks = {}
        self._announced = self._replica.committed
        self._status_at = self._replica.clock.now()
        self.on_stored()
        self.schedule()

    def stop(self) -> None:
        for timer in (self._flush_timer, self._status_timer):
            if timer is not None:
                timer.cancel()
        self._flush_timer = self._status_timer = None
        watchers, self._watchers = self._watchers, {}
        for reply in watchers.values():
            reply(b"")

    def add_watcher(self, peer_id: PeerId, reply: "Reply") -> None:
        former = self._watchers.pop(peer_id, None)
        if former is not None:
            former(b"")
        if len(self._watchers) >= WATCHES_MAX:
            reply(None)
        else:
            self._watchers[peer_id] = reply

    # -- assigning

    def schedule(self) -> None:
        """At once if nothing was assigned lately; a busy sequencer collects submissions for a moment."""
        if self._flush_timer is None:
            replica = self._replica
            is_busy = replica.clock.now() - self._flushed_at < BATCH_S
            self._flush_timer = replica.runtime.call_later(BATCH_S if is_busy else 0.0, self.flush)

    def flush(self) -> None:
        self._flush_timer = None
        replica = self._replica
        if not replica.is_sequencing:
            return
        self._flushed_at = replica.clock.now()
        first_index = replica.log.end + 1
        entries, runs, has_more = self._collect()
        committed = replica.committed
        if entries:
            replica.append(entries)
        if entries or committed > self._announced:
            replica.broadcast(
                Assign(replica.id, replica.log.epoch, first_index, tuple(runs), replica.log.chain, replica.committed)
            )
            self._announced = replica.committed
        if has_more:
            self.schedule()

    def _collect(self) -> tuple[list[LogEntry], list[Run], bool]:
        log = self._replica.log
        entries: list[LogEntry] = []
        runs: list[Run] = []
        keys: dict[bytes, int] = {}
        size = 0
        room = BATCH_ENTRIES_MAX
        if self._replica.policy.is_final:
            room = min(room, UNCOMMITTED_MAX - (log.end - self._replica.committed))
        for author, number, submission in self._replica.submissions.ready():
            if len(entries) >= room or len(runs) == RUNS_MAX or size > BATCH_BYTES_MAX:
                return entries, runs, room > 0
            key = submission.key
            original = (log.keys.get(key) or keys.get(key, 0)) if key else 0
            if key and not original:
                keys[key] = log.end + len(entries) + 1
            entries.append(LogEntry(author, number, original, key, submission.data))
            size += len(submission.data)
            last = runs[-1] if runs else None
            if last and last.author == author and not last.original and not original:
                runs[-1] = last._replace(length=last.length + 1)
            else:
                runs.append(Run(author, number, 1, original))
        return entries, runs, False

    # -- what is final

    def on_stored(self) -> None:
        """Our own store has everything up to the end of the log."""
        policy, store = self._replica.policy, self._replica.store
        if isinstance(policy, SafePolicy) and store is not None:
            voter = policy.voter(self._replica.me)
            if voter is not None and policy.is_enrolled(voter, store.store_id):
                self._acks[voter] = self._replica.log.end
                self._commit(policy)

    def on_ack(self, peer_id: PeerId, message: Ack) -> None:
        policy, log = self._replica.policy, self._replica.log
        if not isinstance(policy, SafePolicy) or not self._replica.is_sequencing or message.epoch != log.epoch:
            return
        voter = policy.voter(peer_id)
        if voter is None or not policy.is_enrolled(voter, message.store_id) or message.end > log.end:
            self._replica.rejected["acknowledgement"] += 1
            return
        self._acks[voter] = max(message.end, self._acks.get(voter, 0))
        self._commit(policy)

    def _commit(self, policy: SafePolicy) -> None:
        acknowledged = sorted(self._acks.values(), reverse=True)
        if len(acknowledged) >= policy.majority:
            self._replica.on_committed(acknowledged[policy.majority - 1])
            if self._replica.committed > self._announced:
                self.schedule()

    # -- the state for others

    def send_status_soon(self) -> None:
        if self._status_timer is None:
            self._status_timer = self._replica.runtime.call_later(STATUS_DELAY_S, self._send_status)

    def _send_status(self) -> None:
        self._status_timer = None
        replica = self._replica
        if replica.is_sequencing:
            self._status_at = replica.clock.now()
            participants = replica.participants.all[:PARTICIPANTS_MAX]
            replica.broadcast(
                Status(
                    replica.id, replica.log.epoch, replica.log.end, replica.log.chain, replica.committed, participants
                )
            )

    def tick(self, now: float) -> None:
        waits = self._replica.policy.is_final and self._replica.committed < self._replica.log.end
        if now - self._status_at >= (REPEAT_S if waits else STATUS_S):
            self._send_status()
