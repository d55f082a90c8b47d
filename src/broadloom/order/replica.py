"""`Replica`: one program's part in one ordered conversation. Sans-IO; docs/order.md describes the protocol.

It is a view change with a sequencer (Viewstamped Replication, ISIS), the same for both modes; policy.py has what
differs. The rules that it keeps:

- It accepts assignments of one epoch only, that of its log, and none once it has voted for a higher one.
- Its log belongs to an epoch only when it has everything up to the beginning of that epoch.
- What it says in a vote or an acknowledgement is stored before it is said (mode `safe`).

Parts: `Elections` (when to take over) with `TakeoverAttempt`, `Sequencer`, `Follower`, `CatchUp`, `SequencerWatch`,
`Delivery`, `Submissions`, `Participants`, `OrderLog`.
"""

from collections import Counter
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from broadloom.order.catch_up import CatchUp, FetchedLog, make_page
from broadloom.order.clock import PausableClock
from broadloom.order.codec import OrderMessage, encode
from broadloom.order.delivery import Delivery
from broadloom.order.elections import Elections
from broadloom.order.follower import Follower
from broadloom.order.joining import Joining
from broadloom.order.liveness import Liveness
from broadloom.order.log import LogEntry, OrderLog, fork_index
from broadloom.order.messages import (
    Ack,
    Assign,
    Enter,
    Exit,
    Fetch,
    NewEpoch,
    Probe,
    Refusal,
    Status,
    Submit,
    Suspect,
    Takeover,
    Vote,
    WatchSequencer,
)
from broadloom.order.model import NO_EPOCH, Epoch
from broadloom.order.participants import Participants
from broadloom.order.policy import AvailablePolicy, SafePolicy
from broadloom.order.runtime import OrderRuntime, Reply
from broadloom.order.sequencer import Sequencer
from broadloom.order.settings import PARTICIPANTS_MAX, TICK_S, OrderSettings
from broadloom.order.submissions import Submissions
from broadloom.order.watch import SequencerWatch
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.order.store import OrderStore


class Role(Enum):
    ENTERING = auto()
    """No log yet, or a stored one whose sequencer is unknown."""
    FOLLOWING = auto()
    ELECTING = auto()
    SEQUENCING = auto()
    CLOSED = auto()


class Replica:
    def __init__(
        self,
        runtime: OrderRuntime,
        conversation_id: int,
        *,
        voters: tuple[str, ...] = (),
        settings: OrderSettings | None = None,
        store: "OrderStore | None" = None,
        from_index: int | None = None,
    ) -> None:
        """With voters, in mode `safe`."""
        self.runtime, self.id = runtime, conversation_id
        self.clock = PausableClock(runtime)
        self.settings = settings = settings or OrderSettings()
        self.me = runtime.peer_id
        self.role = Role.ENTERING
        self.policy = SafePolicy(voters, runtime) if voters else AvailablePolicy(runtime)
        self.store = store if self.policy.may_lead(self.me) else None
        self.fence = NO_EPOCH
        self.committed = 0
        """Entries up to here are final (mode `safe`)."""
        self.log = OrderLog(settings.log_entries_max, settings.log_bytes_max)
        self._load()
        self.rejected = Counter[str]()
        """Messages that break the rules, by kind."""
        self.delivery = Delivery(runtime, self.log, from_index, is_final=self.policy.is_final)
        self.submissions = Submissions(self.me, self.log, settings)
        self.participants = Participants(runtime, self.policy.may_lead)
        self.catch_up = CatchUp(self)
        self.follower = Follower(self)
        self.sequencer = Sequencer(self)
        self.elections = Elections(self)
        self._watch = SequencerWatch(self)
        self.joining = Joining(self)
        self.liveness = Liveness(self)
        self._ack_is_due = False
        self._on_broadcast: dict[type[OrderMessage], Callable[[PeerId, Any], None]] = {
            Enter: self._on_enter, Exit: self._on_exit, Submit: self._on_submit, Assign: self._on_assign,
            Takeover: self._on_takeover, NewEpoch: self._on_new_epoch, Status: self._on_status,
            Suspect: self.elections.on_suspect,
        }  # fmt: skip

    def _load(self) -> None:
        if self.store is not None and isinstance(self.policy, SafePolicy):
            stored = self.store.load()
            self.log.restart(stored.base, stored.base_chain, stored.base_numbers)
            for entry in stored.entries:
                self.log.append(entry)
            self.log.set_lineage(stored.lineage)
            self.fence, self.policy.enrolled = stored.fence, stored.enrolled

    def start(self) -> None:
        self.broadcast(Enter(self.id))
        self._tick()

    # -- state

    @property
    def is_sequencing(self) -> bool:
        return self.role is Role.SEQUENCING

    @property
    def is_fenced(self) -> bool:
        """We voted for a higher epoch than that of our log, and accept nothing of lower ones."""
        return self.fence > self.log.epoch

    @property
    def is_entering(self) -> bool:
        return self.role is Role.ENTERING

    @property
    def is_following(self) -> bool:
        return self.role is Role.FOLLOWING and not self.is_fenced

    @property
    def enrolled(self) -> tuple[int, ...]:
        return self.policy.enrolled if isinstance(self.policy, SafePolicy) else ()

    def broadcast(self, message: OrderMessage) -> None:
        self.runtime.broadcast(encode(message))

    # -- what the application does

    def submit(self, data: bytes, key: bytes = b"") -> int:
        """Returns the number of the submission; `OrderRuntime.on_placed` follows."""
        number = self.submissions.add_own(key, data, self.clock.now())
        self.broadcast(Submit(self.id, number, key, data))
        if self.is_sequencing:
            self.sequencer.schedule()
        return number

    def close(self) -> None:
        """The others continue. A sequencer first assigns what it has."""
        if self.role is Role.CLOSED:
            return
        if self.is_sequencing:
            self.sequencer.flush()
        self.broadcast(Exit(self.id))
        self.role = Role.CLOSED
        self.sequencer.stop()
        self.elections.close()
        self.catch_up.cancel()
        self._watch.close()

    # -- what the runtime reports

    def on_message(self, author: PeerId, message: OrderMessage) -> None:
        """A broadcast message of another member."""
        handler = self._on_broadcast.get(type(message))
        if handler is None:
            self.rejected["misplaced message"] += 1
        elif self.role is not Role.CLOSED:
            handler(author, message)

    def on_request(self, peer_id: PeerId, message: OrderMessage, reply: Reply) -> None:
        """A direct request or one-way message of another member."""
        if self.role is Role.CLOSED:
            reply(None)
            return
        match message:
            case Fetch():
                page = make_page(self.id, self.log, message, self.committed, self.enrolled)
                reply(encode(page) if page is not None else None)
                return
            case WatchSequencer() if self.is_sequencing and message.epoch == self.log.epoch:
                self.sequencer.add_watcher(peer_id, reply)
                return
            case Submit():
                self._on_submit(peer_id, message)
            case Enter():
                self._on_enter(peer_id, message)
            case Exit():
                self._on_exit(peer_id, message)
            case Vote():
                self.elections.on_vote(peer_id, message)
            case Refusal():
                self.elections.on_refusal(message)
            case Ack():
                self.sequencer.on_ack(peer_id, message)
            case Probe() | WatchSequencer():
                pass
            case _:
                self.rejected["misplaced message"] += 1
        reply(b"")

    def on_member_joined(self) -> None:
        """Another member that takes part in ordered conversations is in the roster now."""
        if self.is_sequencing:
            self.sequencer.send_status_soon()

    def on_member_gone(self, peer_id: PeerId) -> None:
        """A member left or was lost."""
        if self.role is not Role.CLOSED:
            self.participants.remove(peer_id)
            self.elections.on_gone(peer_id)

    def on_missed(self, author: PeerId) -> None:
        """Broadcasts of this member were lost."""
        if author == self.log.epoch.sequencer:
            self.joining.fetch_from_sequencer()

    # -- messages

    def _on_enter(self, author: PeerId, _message: Enter) -> None:
        self.participants.add((author,))
        if self.is_sequencing:
            self.sequencer.send_status_soon()

    def _on_exit(self, author: PeerId, _message: Exit) -> None:
        self.on_member_gone(author)

    def _on_submit(self, author: PeerId, message: Submit) -> None:
        self.participants.add((author,))
        if self.submissions.add(author, message.submission_number, message.key, message.data, self.clock.now()):
            if self.is_sequencing:
                self.sequencer.schedule()
            else:
                self.follower.advance()

    def _is_from_sequencer(self, author: PeerId, epoch: Epoch) -> bool:
        if author != epoch.sequencer or not (epoch == self.log.epoch or self.policy.may_lead(author)):
            self.rejected["not the sequencer"] += 1
            return False
        return self.elections.is_plausible(epoch)

    def _on_assign(self, author: PeerId, message: Assign) -> None:
        if not self._is_from_sequencer(author, message.epoch) or message.epoch < self.fence:
            return
        if message.epoch == self.log.epoch and self.role is Role.ENTERING:
            self._follow_stored()
        self.follower.on_assign(message)
        if message.epoch != self.log.epoch:
            self._on_other_epoch(message.epoch)

    def _on_takeover(self, author: PeerId, message: Takeover) -> None:
        epoch = message.epoch
        if not self._is_from_sequencer(author, epoch) or not self.runtime.is_present(author):
            return  # an attempt that is still going on is repeated; one from before a partition is over
        self.participants.add((author,))
        if epoch < self.fence:
            self.runtime.tell(author, encode(Refusal(self.id, self.fence)))
            return
        if epoch > self.fence:
            if not self.participants.takes_allowance(author):
                self.rejected["too many takeovers"] += 1
                return
            self._set_fence(epoch)
            self._stop_leading()
            self.follower.reset()
            self.joining.cancel()
            self.elections.on_voted()
        if self.is_fenced:
            self.runtime.tell(author, encode(self.make_vote(epoch)))

    def make_vote(self, epoch: Epoch) -> Vote:
        store_id = self.store.store_id if self.store is not None else 0
        return Vote(self.id, epoch, self.log.lineage, self.log.end, self.log.chain, store_id)

    def _set_fence(self, epoch: Epoch) -> None:
        if self.store is not None:
            self.store.set_fence(epoch)
        self.fence = epoch

    def _on_new_epoch(self, author: PeerId, message: NewEpoch) -> None:
        epoch, log = message.epoch, self.log
        if not self._is_from_sequencer(author, epoch) or epoch < self.fence or epoch <= log.epoch:
            return
        if not message.lineage or message.lineage[-1] != (epoch, message.cut + 1):
            self.rejected["lineage"] += 1
            return
        self.participants.add((author, *message.participants))
        if log.lineage and not self.runtime.is_present(author):
            self._on_other_epoch(epoch)
            return
        is_counted = self.me in message.counted and epoch == self.fence
        fork = fork_index(log.lineage, log.end, message.lineage, message.cut)
        if not (self.policy.is_final or is_counted or fork == log.end):
            self.elections.merge()
            return
        self.participants.replace((author, *message.participants))
        if log.chain_at(message.cut) == message.chain:
            self.adopt(
                FetchedLog(author, message.lineage, message.cut, [], message.committed, message.enrolled, message.chain)
            )
        else:
            self.joining.join(epoch, is_binding=True)

    def _on_status(self, author: PeerId, message: Status) -> None:
        if not self._is_from_sequencer(author, message.epoch):
            return
        self.participants.add((author, *message.participants))
        if self.is_sequencing and message.epoch != self.log.epoch:
            self.sequencer.send_status_soon()
        if message.epoch < self.fence:
            return
        if message.epoch != self.log.epoch:
            self._on_other_epoch(message.epoch)
            return
        if self.role is Role.ENTERING:
            self._follow_stored()
        if self.me not in message.participants and len(message.participants) < PARTICIPANTS_MAX:
            self.broadcast(Enter(self.id))
        if message.end >= self.follower.next_index:
            self.joining.fetch_from_sequencer()
        elif message.end == self.log.end and message.chain != self.log.chain:
            self.rejected["chain"] += 1  # it says different things to different members
            self.participants.distrust(author)
            self.elections.suspect()
        else:
            self.on_committed(message.committed)
            self._schedule_ack()

    def _on_other_epoch(self, epoch: Epoch) -> None:
        """A sequencer whose epoch is not below what we voted for is not the one that we follow."""
        if self.policy.is_final or not self.log.lineage or (self.is_fenced and epoch == self.fence):
            self.joining.join(epoch, is_binding=self.policy.is_final)
        elif epoch > self.log.epoch:
            self.elections.on_foreign(epoch)

    def adopt(self, fetched: FetchedLog) -> None:
        """Our log becomes that of the sequencer, and we follow it."""
        if not self.joining.replace_log(fetched):
            return
        self._stop_leading()
        self.role = Role.FOLLOWING
        self._on_epoch()
        self.on_committed(fetched.committed)
        self.follower.advance()
        self._schedule_ack()

    def lead(self, fetched: FetchedLog, announcement: NewEpoch) -> None:
        """Our takeover succeeded: we continue this log."""
        if not self.joining.replace_log(fetched):
            return
        self.role = Role.SEQUENCING
        self.committed = max(self.committed, fetched.committed)
        self.broadcast(announcement)
        self._on_epoch()
        self.sequencer.start()

    def _follow_stored(self) -> None:
        """After a restart: the sequencer of our stored log is still there."""
        self.role = Role.FOLLOWING
        self.delivery.start(self.log.end)

    def _on_epoch(self) -> None:
        self.elections.on_epoch()
        self._watch.update()
        self.liveness.on_epoch()
        self._advance()

    # -- entries

    def append(self, entries: list[LogEntry]) -> None:
        """Checked entries of the epoch that we follow, or that we assigned."""
        if self.store is not None:
            self.store.append(self.log.end + 1, entries)
        for entry in entries:
            self.log.append(entry)
        self.submissions.on_ordered(entries)
        if self.is_sequencing:
            self.sequencer.on_stored()
        else:
            self._schedule_ack()
        self._advance()

    def on_committed(self, committed: int) -> None:
        """The sequencer that we follow says that entries up to here are final."""
        if self.policy.is_final and committed > self.committed:
            self.committed = committed
        self._advance()

    def _advance(self) -> None:
        if self.delivery.advance(self.committed if self.policy.is_final else self.log.end):
            self.liveness.on_progress()
        if self.log.trim(self.delivery.position) and self.store is not None:
            chain = self.log.chain_at(self.log.base)
            assert chain is not None
            self.store.trim(self.log.base, chain, self.log.last_numbers_at(self.log.base))

    def _schedule_ack(self) -> None:
        if self.store is not None and not self._ack_is_due:
            self._ack_is_due = True
            self.runtime.call_later(0.0, self._send_ack)

    def _send_ack(self) -> None:
        self._ack_is_due = False
        if self.store is not None and self.is_following:
            ack = Ack(self.id, self.log.epoch, self.log.end, self.store.store_id)
            self.runtime.tell(self.log.epoch.sequencer, encode(ack))

    # -- leading

    def begin_takeover(self, epoch: Epoch) -> None:
        self._set_fence(epoch)
        self._stop_leading()
        self.follower.reset()
        self.joining.cancel()
        self.role = Role.ELECTING

    def on_gave_up(self) -> None:
        self.role = Role.FOLLOWING if self.log.lineage else Role.ENTERING

    def _stop_leading(self) -> None:
        if self.is_sequencing:
            self.sequencer.stop()
        if self.role in (Role.SEQUENCING, Role.ELECTING):
            self.role = Role.FOLLOWING if self.log.lineage else Role.ENTERING

    # -- time

    def _tick(self) -> None:
        if self.role is Role.CLOSED:
            return
        was_paused, now = self.clock.was_paused, self.clock.now()
        self.clock.on_tick()
        self.runtime.call_later(TICK_S, self._tick)
        if was_paused:
            return
        self.participants.refresh()
        self.joining.tick()
        self.elections.tick(now)
        self._watch.update()
        if self.is_sequencing:
            self.sequencer.tick(now)
        elif self.is_following:
            self.follower.tick(now)
        self.liveness.tick(now)
