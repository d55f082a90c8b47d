"""`SimProgram`: mailboxes on a simulated peer, with the same core as over sockets."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from broadloom.errors import BroadloomError, NoAnswerError, PeerGoneError, RefusedError
from broadloom.mailboxes.messages import KEEPER_LAYER, LAYER
from broadloom.mailboxes.model import Synced
from broadloom.mailboxes.post_office import PostOffice
from broadloom.mailboxes.runtime import Answer
from broadloom.protocol.requests.outgoing import Outcome, OutcomeKind
from broadloom.protocol.roster.member import MemberJoined, MemberLeft, MemberLost, Merged
from broadloom.testing.sim.node import START_TIME_S
from broadloom.wire.direct_messages import RequestStatus
from broadloom.wire.payload_kind import LAYER_SHIFT, layer_kind

if TYPE_CHECKING:
    from broadloom.mailboxes.limits import MailboxSettings
    from broadloom.mailboxes.model import Change, MailboxEvent
    from broadloom.mailboxes.record import Record, RecordSigner
    from broadloom.mailboxes.runtime import MailboxStore
    from broadloom.protocol.events import Event, Missed
    from broadloom.protocol.requests.incoming import IncomingRequest
    from broadloom.protocol.runtime import Observer, Timer
    from broadloom.testing.sim.node import SimNode
    from broadloom.testing.sim.simulation import Simulation

ROSTER_POLL_S = 0.05
KIND, KEEPER_KIND = layer_kind(LAYER), layer_kind(KEEPER_LAYER)


class SimProgram:
    """A post office on a simulated peer, and what its application got. It starts when the roster is complete."""

    def __init__(
        self,
        simulation: "Simulation",
        owner: str,
        *,
        store: "MailboxStore | None" = None,
        settings: "MailboxSettings | None" = None,
        signer: "RecordSigner | None" = None,
        node: "SimNode | None" = None,
        office_type: type[PostOffice] = PostOffice,
    ) -> None:
        self.signer = signer
        self.node = node if node is not None else simulation.add_peer()
        self.random = Random(self.node.random.getrandbits(64))
        self.changes: list[Change] = []
        self.events: list[MailboxEvent] = []
        self.office = office_type(self, owner, store=store, settings=settings)
        self.node.on_event, self.node.on_missed = self._on_event, self._on_missed
        self.node.on_message = lambda message: self.office.on_broadcast(message.author, message.data)
        peer = self.node.peer
        peer.roster.set_layers((KIND, KEEPER_KIND) if store is not None else (KIND,))
        peer.requests.handlers.set(KIND >> LAYER_SHIFT, self._on_request, 64)
        self.node.call_later(ROSTER_POLL_S, self._start)

    def _start(self) -> None:
        if self.node.is_connected and self.node.peer.roster.is_complete:
            self.office.start()
        else:
            self.node.call_later(ROSTER_POLL_S, self._start)

    @property
    def observer(self) -> "Observer | None":
        return self.node.peer.observer

    @property
    def is_synced(self) -> bool:
        return any(isinstance(event, Synced) for event in self.events)

    def kill(self) -> None:
        self.node.kill()

    # -- MailboxRuntime

    @property
    def peer_id(self) -> int:
        return self.node.peer.me.peer_id

    def now(self) -> float:
        return self.node.clock.now

    def wall_time_s(self) -> float:
        return START_TIME_S + self.node.clock.now

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> "Timer":
        return self.node.call_later(delay_s, callback, *args)

    def peers(self) -> list[int]:
        return self._members(LAYER)

    def keepers(self) -> list[int]:
        return self._members(KEEPER_LAYER)

    def _members(self, layer: str) -> list[int]:
        members = self.node.peer.roster.members()
        return [each.peer_id for each in members if layer in each.layers and each.peer_id != self.peer_id]

    def members_of(self, owner: str) -> list[int]:
        signer = self.signer
        return [each for each in self.peers() if signer is not None and signer.credential_of(each) == owner.encode()]

    def is_member(self, peer_id: int) -> bool:
        return peer_id == self.peer_id or self.node.peer.roster.get(peer_id) is not None

    def broadcast(self, data: bytes) -> None:
        if self.node.is_connected:
            self.node.broadcast(data)

    def request(self, peer_id: int, data: bytes, timeout_s: float, on_answer: Callable[[Answer], None]) -> None:
        def on_outcome(outcome: Outcome) -> None:
            self.node.call_later(0.0, on_answer, _answer(outcome))

        self.node.peer.requests.request(peer_id, data, timeout_s, on_outcome, layer=KIND >> LAYER_SHIFT)

    def on_change(self, change: "Change") -> None:
        self.changes.append(change)

    def emit(self, event: "MailboxEvent") -> None:
        self.events.append(event)

    # -- the peer

    def _on_request(self, request: "IncomingRequest") -> None:
        try:
            request.reply(self.office.on_request(request.peer_id, request.data))
        except RefusedError as problem:
            request.refuse(RequestStatus.REFUSED, str(problem))
        request.done()

    def _on_missed(self, _missed: "Missed") -> None:
        self.office.on_missed()

    def _on_event(self, event: "Event") -> None:
        if isinstance(event, MemberJoined):
            self.office.on_member_joined(event.member.peer_id)
        elif isinstance(event, MemberLeft | MemberLost):
            self.office.on_member_gone(event.member.peer_id)
        elif isinstance(event, Merged):
            self.office.on_missed()


class Disk:
    """The store of a simulated keeper. What was committed outlives its process; what was not is lost with it."""

    def __init__(self) -> None:
        self._committed: dict[tuple[str, str], Record] = {}
        self._written: dict[tuple[str, str], Record] = {}
        self.is_open = False

    def load(self) -> "list[Record]":
        self._written = dict(self._committed)
        return list(self._committed.values())

    def put(self, record: "Record") -> None:
        self._written[record.key] = record

    def remove(self, owner: str, name: str) -> None:
        self._written.pop((owner, name), None)

    def commit(self) -> None:
        self._committed = dict(self._written)

    def close(self) -> None:
        self.commit()


def _answer(outcome: Outcome) -> Answer:
    if outcome.kind is OutcomeKind.REPLIED:
        return Answer(outcome.data)
    error: BroadloomError = RefusedError(outcome.text)
    if outcome.kind is OutcomeKind.GONE:
        error = PeerGoneError(outcome.text, sent=outcome.sent)
    elif outcome.kind is OutcomeKind.NO_ANSWER:
        error = NoAnswerError(outcome.text, sent=outcome.sent)
    return Answer(b"", error)
