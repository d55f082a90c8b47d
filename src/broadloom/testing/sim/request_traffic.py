"""Direct requests between simulated peers, and what must hold for each of them at every step.

A handler is started at most once, at the peer that was asked. Every request has exactly one outcome, unless its caller
gave it up or died. If the outcome says that nothing was sent, no handler was or will be started. Connections, bytes and
handlers stay within their limits.
"""

from collections import Counter
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from broadloom.protocol.events import PeerState
from broadloom.protocol.requests.incoming import IncomingRequest
from broadloom.protocol.requests.outgoing import Outcome, OutcomeKind, OutgoingRequest
from broadloom.wire.direct_messages import RequestStatus

if TYPE_CHECKING:
    from broadloom.testing.sim.node import SimNode
    from broadloom.testing.sim.simulation import Simulation
    from broadloom.wire import Address

TOKEN_BYTES = 8
LARGE_BYTES = 200_000
"""Several parts."""
SLOW_S = 1.0
"""Mean time of a slow handler."""
TIMEOUTS_S = 0.3, 2.0, 20.0
"""The last one is longer than it takes to notice a silent peer."""
CONCURRENCY = 4
UNSTARTED = (RequestStatus.NO_HANDLER, RequestStatus.BUSY, RequestStatus.EXPIRED, RequestStatus.LEAVING)
"""With these a request was refused before its handler was started."""


class Behavior(IntEnum):
    """What the handler does: the first byte of a request."""

    REPLY = 0
    REPLY_LATER = 1
    NEVER = 2
    REFUSE = 3
    LARGE_REPLY = 4


@dataclass(slots=True)
class RequestRecord:
    caller: "SimNode"
    callee: "SimNode"
    is_tell: bool
    behavior: Behavior
    outcome: Outcome | None = None
    starts: int = 0
    """How often its handler was started."""
    is_given_up: bool = False


class RequestTraffic:
    """Random members ask random others, also those that have just died."""

    def __init__(self, simulation: "Simulation") -> None:
        self._sim = simulation
        self._rate = 0.0
        self._round = 0
        self.records: list[RequestRecord] = []
        self.replies = Counter[OutcomeKind]()
        self._addresses: dict[int, Address] = {}

    def set_rate(self, per_s: float) -> None:
        self._rate = per_s
        self._round += 1
        if per_s:
            self._schedule(self._round)

    @property
    def open_requests(self) -> list[RequestRecord]:
        """Requests of living peers without an outcome."""
        return [
            record
            for record in self.records
            if record.outcome is None and not record.is_given_up and record.caller.is_alive
        ]

    def _schedule(self, traffic_round: int) -> None:
        if traffic_round == self._round:
            delay_s = self._sim.random.expovariate(self._rate)
            self._sim.clock.call_at(self._sim.clock.now + delay_s, self._send_one, traffic_round)

    def _send_one(self, traffic_round: int) -> None:
        if traffic_round != self._round:
            return
        for node in self._sim.nodes[len(self._addresses) :]:
            self._prepare(node)
        callers = [node for node in self._sim.members if not node.is_paused]
        if callers:
            caller = self._sim.random.choice(callers)
            callee = self._sim.random.choice(self._sim.nodes)
            if caller is not callee:
                self._send(caller, callee)
        self._schedule(traffic_round)

    def _prepare(self, node: "SimNode") -> None:
        self._addresses[node.peer.me.peer_id] = node.address
        node.peer.requests.address_of = self._addresses.get
        node.peer.requests.handlers.set(0, lambda request, node=node: self._on_request(node, request), CONCURRENCY)  # type: ignore[misc]

    def _send(self, caller: "SimNode", callee: "SimNode") -> None:
        random = self._sim.random
        record = RequestRecord(caller, callee, random.random() < 0.2, random.choice(list(Behavior)))
        token = len(self.records).to_bytes(TOKEN_BYTES, "big")
        self.records.append(record)
        data = bytes([record.behavior]) + token + bytes(LARGE_BYTES if random.random() < 0.05 else 40)
        request = caller.peer.requests.request(
            callee.peer.me.peer_id,
            data,
            random.choice(TIMEOUTS_S),
            lambda outcome: self._on_outcome(record, token, outcome),
            is_tell=record.is_tell,
        )
        if random.random() < 0.05:
            caller.call_later(random.expovariate(2), self._give_up, record, request)
        self._check_limits(caller)

    def _give_up(self, record: RequestRecord, request: OutgoingRequest) -> None:
        if record.outcome is None and record.caller.peer.state is PeerState.CONNECTED:
            record.is_given_up = True
            record.caller.peer.requests.give_up(request)

    # -- the handlers

    def _on_request(self, node: "SimNode", request: IncomingRequest) -> None:
        token = request.data[1 : 1 + TOKEN_BYTES]
        number = int.from_bytes(token, "big")
        record = self.records[number]
        record.starts += 1
        if record.starts > 1:
            self._violation(node, f"handles request {number} a second time")
        if record.callee is not node or request.peer_id != record.caller.peer.me.peer_id:
            self._violation(node, f"handles request {number}, which {record.caller} sent to {record.callee}")
        if record.outcome is not None and not record.outcome.sent:
            self._violation(node, f"handles request {number}, which was reported as not sent")
        self._check_limits(node)
        match Behavior(request.data[0]):
            case Behavior.REPLY:
                self._end(node, request, token)
            case Behavior.LARGE_REPLY:
                self._end(node, request, token + bytes(LARGE_BYTES))
            case Behavior.REPLY_LATER:
                request.on_cancel = request.done
                node.call_later(self._sim.random.expovariate(1 / SLOW_S), self._end, node, request, token)
            case Behavior.NEVER if request.expects_reply:
                request.on_cancel = request.done
            case _:
                request.refuse(RequestStatus.REFUSED, "refused")
                request.done()

    def _end(self, node: "SimNode", request: IncomingRequest, reply: bytes) -> None:
        if not request.is_done:
            request.reply(reply)
            request.done()
            self._check_limits(node)

    # -- the outcomes

    def _on_outcome(self, record: RequestRecord, token: bytes, outcome: Outcome) -> None:
        number, caller = int.from_bytes(token, "big"), record.caller
        if record.outcome is not None:
            self._violation(caller, f"has two outcomes of request {number}: {record.outcome.kind}, {outcome.kind}")
        if record.is_given_up:
            self._violation(caller, f"has an outcome of request {number}, which it gave up")
        record.outcome = outcome
        self.replies[outcome.kind] += 1
        is_unstarted = not outcome.sent or outcome.status in UNSTARTED
        if is_unstarted and record.starts:
            self._violation(caller, f"has {outcome.kind.name} for request {number}, whose handler was started")
        if outcome.kind is OutcomeKind.REPLIED and not record.is_tell:
            if record.starts != 1 or outcome.data[:TOKEN_BYTES] != token:
                self._violation(caller, f"has the reply to another request than {number}")
        if outcome.kind is OutcomeKind.UNKNOWN_PEER:
            self._violation(caller, f"does not know the address of {record.callee}")
        self._check_limits(caller)

    def _check_limits(self, node: "SimNode") -> None:
        requests, settings = node.peer.requests, node.peer.settings
        for limit, value in (
            ("direct_out_max", requests.dialed_count),
            ("direct_in_max", requests.accepted_count),
            ("direct_bytes_max", requests.held_bytes),
            ("direct_waiting_max", requests.waiting_count),
            ("handlers_max", requests.handlers.running),
        ):
            if not 0 <= value <= getattr(settings, limit):
                self._violation(node, f"has {value}, beyond {limit} = {getattr(settings, limit)}")

    def _violation(self, node: "SimNode", text: str) -> None:
        self._sim.checker.report_violation("direct requests", node, text)
