"""`DirectRequests`: the direct connections of a peer, and the requests that wait for one.

A connection is dialed for the first request to a peer and kept for the next ones, in both directions. If two peers dial
each other at the same time, both use the connection that the lower id dialed.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from broadloom.protocol.exchange import OutgoingExchange
from broadloom.protocol.owner.pacer import RequestPacer
from broadloom.protocol.requests.deadlines import Deadlines
from broadloom.protocol.requests.direct_connection import DirectConnection
from broadloom.protocol.requests.incoming import IncomingRequest, RequestHandlers
from broadloom.protocol.requests.outgoing import Outcome, OutcomeKind, OutgoingRequest, RequestState
from broadloom.wire import Address, PeerId, PeerInfo
from broadloom.wire.direct_messages import DIRECT_VERSION, DirectAccept, DirectOpen, RequestStatus
from broadloom.wire.exchange_messages import RejectReason

if TYPE_CHECKING:
    from broadloom.protocol.exchange import Exchange, IncomingExchange
    from broadloom.protocol.identity import Identity
    from broadloom.protocol.owner.card import Quota
    from broadloom.protocol.peer import Peer
    from broadloom.wire.codec import WireMessage

RESOLVE_POLL_S = 0.1
"""How often the address of an unknown peer is looked up again."""
DIAL_POLL_S = 0.01
"""Minimum pause before the rate limit of dials is checked again."""
FAILED_ADDRESSES_MAX = 256
"""Addresses remembered because a dial failed."""
_REFUSALS = {RejectReason.LEAVING: RequestStatus.LEAVING, RejectReason.BUSY: RequestStatus.BUSY}


class Route:
    """The way to one peer: its connection, or the attempt to get one, and what waits for it."""

    __slots__ = ("connection", "exchange", "is_dial_queued", "is_resolving", "peer_id", "resolve_until", "waiting")

    def __init__(self, peer_id: PeerId) -> None:
        self.peer_id = peer_id
        self.connection: DirectConnection | None = None
        """The connection for new requests."""
        self.exchange: OutgoingExchange | None = None
        self.is_dial_queued = False
        self.is_resolving = False
        self.resolve_until = 0.0
        self.waiting: deque[OutgoingRequest] = deque()


class DirectRequests:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self.handlers = RequestHandlers(peer)
        self.address_of: Callable[[PeerId], Address | None] = self._known_address
        """Where a member listens."""
        self.held_bytes = 0
        """Requests of others that are held, and replies that wait to be sent."""
        self.is_leaving = False
        self.pacer: RequestPacer | None = None
        """None without a quota for requests."""
        self._is_closed = False
        self._routes: dict[PeerId, Route] = {}
        self._connections: dict[DirectConnection, None] = {}
        self._waiting_count = 0
        self._dial_queue: deque[Route] = deque()
        self._dial_tokens = float(peer.settings.direct_out_max)
        self._dial_tokens_at = peer.runtime.now()
        self._dials_are_scheduled = False
        self._failed: dict[Address, float] = {}
        """Addresses where a dial failed, and until when they are not dialed again."""
        self._deadlines = Deadlines(peer.runtime, self._on_deadline)

    # -- for the application

    def request(
        self,
        peer_id: PeerId,
        data: bytes,
        timeout_s: float,
        on_outcome: Callable[[Outcome], None],
        *,
        layer: int = 0,
        flags: int = 0,
        is_tell: bool = False,
    ) -> OutgoingRequest:
        """Send a request, or a one-way message. `on_outcome` is called exactly once, perhaps during this call, unless
        the request is given up (`give_up`)."""
        deadline_at = self._peer.runtime.now() + timeout_s
        request = OutgoingRequest(peer_id, data, layer, flags, deadline_at, on_outcome, is_tell=is_tell)
        self._peer.counters.requests_sent += 1
        if self._is_closed:
            request.end(Outcome(OutcomeKind.LEFT))
            return request
        route = self._routes.get(peer_id)
        if route is None:
            route = self._routes[peer_id] = Route(peer_id)
            route.resolve_until = self._peer.runtime.now() + self._peer.settings.direct_resolve_s
        elif route.connection is not None and not route.waiting and route.connection.try_send(request):
            if request.state is RequestState.SENT:
                self._deadlines.add(request)
            return request
        if self._waiting_count >= self._peer.settings.direct_waiting_max:
            text = f"{self._waiting_count:,} requests wait to be sent; wait for replies before sending more"
            request.end(Outcome(OutcomeKind.BUSY, text=text))
            self._forget_if_unused(route)
            return request
        route.waiting.append(request)
        self._waiting_count += 1
        self._deadlines.add(request)
        self._advance(route)
        return request

    def has_route(self, peer_id: PeerId) -> bool:
        """Whether there is a connection to this peer, or requests wait for one."""
        return peer_id in self._routes

    def give_up(self, request: OutgoingRequest) -> None:
        """The caller no longer waits: no outcome follows."""
        self._withdraw(request)
        request.discard()

    def set_quota(self, quota: "Quota | None") -> None:
        """A card is in force: requests are sent no faster than it allows."""
        if self.pacer is not None:
            self.pacer.stop()
        runtime, self.pacer = self._peer.runtime, None
        if quota is not None and quota.requests_per_s is not None:
            self.pacer = RequestPacer(quota.requests_per_s, quota.burst_s, runtime, self._on_quota)
        self._on_quota()

    def begin_leave(self) -> None:
        """Requests that arrive from now on are refused."""
        self.is_leaving = True

    @property
    def waiting_count(self) -> int:
        """Requests of this peer that wait to be sent."""
        return self._waiting_count

    @property
    def dialed_count(self) -> int:
        """Connections dialed by this peer, and those that are being dialed."""
        dialing = sum(route.exchange is not None for route in self._routes.values())
        return dialing + sum(each.is_initiator and not each.is_closing for each in self._connections)

    @property
    def accepted_count(self) -> int:
        return sum(not each.is_initiator and not each.is_closing for each in self._connections)

    @property
    def has_open_requests(self) -> bool:
        return any(connection.has_open_requests for connection in self._connections)

    def close(self) -> None:
        """This peer has left, or its connections were dropped."""
        if self._is_closed:
            return
        self._is_closed = self.is_leaving = True
        self._deadlines.stop()
        if self.pacer is not None:
            self.pacer.stop()
        for connection in list(self._connections):
            connection.close("this peer has left the channel")
        for route in list(self._routes.values()):
            if route.exchange is not None:
                route.exchange.close()
            self._end_waiting(route, Outcome(OutcomeKind.LEFT))
        self._routes.clear()

    def on_peer_lost(self, peer_id: PeerId) -> None:
        """The peer is known to be gone: do not wait for its connection to notice."""
        for connection in [each for each in self._connections if each.peer_id == peer_id]:
            connection.close("it is no longer a member")

    def close_excluded(self, is_excluded: "Callable[[Identity | None, PeerId], bool]") -> None:
        """Close the connections to members that are no longer admitted."""
        for connection in [each for each in self._connections if is_excluded(each.identity, each.peer_id)]:
            connection.close("it is no longer a member")

    # -- a route, from its first request to its last

    def _advance(self, route: Route) -> None:
        """Send what waits, or dial."""
        if route.connection is not None:
            while route.waiting and route.connection is not None:
                request = route.waiting.popleft()  # first: sending it may make room for the next
                self._waiting_count -= 1
                if not route.connection.try_send(request):
                    route.waiting.appendleft(request)
                    self._waiting_count += 1
                    break
        elif route.waiting and route.exchange is None and not route.is_dial_queued and not route.is_resolving:
            self._resolve(route)

    def _on_quota(self) -> None:
        """The quota allows another request: the peers that requests wait for have their turns."""
        for route in [each for each in self._routes.values() if each.waiting and each.connection is not None]:
            count = len(route.waiting)
            self._advance(route)
            if len(route.waiting) < count and self._routes.get(route.peer_id) is route:
                self._routes[route.peer_id] = self._routes.pop(route.peer_id)  # the others come first next time
        self._dial_queued()

    def _waits_for_quota(self, peer_id: PeerId) -> bool:
        """Whether requests to this peer could be sent if the quota were not used up."""
        if self.pacer is None or not self.pacer.is_waiting:
            return False
        route = self._routes.get(peer_id)
        return route is not None and route.connection is not None and bool(route.waiting)

    def _resolve_again(self, route: Route) -> None:
        route.is_resolving = False
        self._advance(route)

    def _resolve(self, route: Route) -> None:
        now = self._peer.runtime.now()
        address = self.address_of(route.peer_id)
        if address is not None:
            route.resolve_until = now + self._peer.settings.direct_resolve_s
            if self._failed.get(address, 0.0) > now:
                self._end_waiting(route, _gone(f"{address} could not be reached a moment ago"))
            else:
                route.is_dial_queued = True
                self._dial_queue.append(route)
                self._dial_queued()
        elif now < route.resolve_until:
            route.is_resolving = True
            self._peer.runtime.call_later(RESOLVE_POLL_S, self._resolve_again, route)
        else:
            text = "no member with this id is known"
            self._end_waiting(route, Outcome(OutcomeKind.UNKNOWN_PEER, text=text))

    def _known_address(self, peer_id: PeerId) -> Address | None:
        """The address of a member of the roster, or of a neighbor that is not in it yet."""
        address = self._peer.roster.address_of(peer_id)
        if address is not None:
            return address
        link = self._peer.links.get(peer_id)
        return link.peer_info.address if link is not None else None

    def _dial_queued(self) -> None:
        while self._dial_queue and self._may_dial():
            route = self._dial_queue.popleft()
            route.is_dial_queued = False
            address = self.address_of(route.peer_id) if route.waiting and route.connection is None else None
            if address is None:
                self._advance(route)
                self._forget_if_unused(route)
                continue
            self._dial_tokens -= 1
            settings = self._peer.settings
            route.exchange = OutgoingExchange(
                self._peer,
                PeerInfo(route.peer_id, address),
                DirectOpen(DIRECT_VERSION, settings.direct_inflight_max, settings.direct_request_bytes_max),
                lambda exchange, response, route=route: self._on_response(route, exchange, response),  # type: ignore[misc]
                lambda reason, route=route, address=address: self._on_dial_failed(route, address, reason),  # type: ignore[misc]
            )

    def _may_dial(self) -> bool:
        """Whether there is room for another connection and the rate allows it; if not now, it is tried again."""
        settings, now = self._peer.settings, self._peer.runtime.now()
        elapsed_s, self._dial_tokens_at = now - self._dial_tokens_at, now
        self._dial_tokens = min(settings.direct_out_max, self._dial_tokens + elapsed_s * settings.direct_dials_per_s)
        if self._dial_tokens < 1:
            if not self._dials_are_scheduled:
                self._dials_are_scheduled = True
                delay_s = max(DIAL_POLL_S, (1 - self._dial_tokens) / settings.direct_dials_per_s)
                self._peer.runtime.call_later(delay_s, self._on_dials_due)
            return False
        if self.dialed_count < settings.direct_out_max:
            return True
        return self._close_least_recently_used(is_initiator=True)

    def _on_dials_due(self) -> None:
        self._dials_are_scheduled = False
        self._dial_queued()

    def _close_least_recently_used(self, *, is_initiator: bool) -> bool:
        """Make room: close an idle connection, if there is one. One with requests that wait for the quota is not: it
        would be dialed again."""
        open_ones = [each for each in self._connections if each.is_initiator == is_initiator and not each.is_closing]
        idle = [each for each in open_ones if each.is_idle and not self._waits_for_quota(each.peer_id)]
        if idle:
            min(idle, key=lambda each: each.used_at).begin_close()
        return bool(idle)

    def _on_response(self, route: Route, exchange: "Exchange", response: "WireMessage") -> None:
        route.exchange = None
        if self._is_closed or not isinstance(response, DirectAccept):
            exchange.close()
            self._end_waiting(route, _gone("it does not accept direct connections"))
            return
        connection = DirectConnection(self._peer, exchange.release(), exchange.remote, response, is_initiator=True)
        self._adopt(connection)

    def _on_dial_failed(self, route: Route, address: Address, reason: RejectReason | None) -> None:
        text = route.exchange.failure if route.exchange is not None else ""
        route.exchange = None
        if reason in _REFUSALS:
            outcome = Outcome(OutcomeKind.REFUSED, text=text, status=_REFUSALS[reason])
        else:
            now = self._peer.runtime.now()
            if len(self._failed) >= FAILED_ADDRESSES_MAX:
                self._failed = {each: until for each, until in self._failed.items() if until > now}
            self._failed[address] = now + self._peer.settings.direct_redial_s
            outcome = _gone(f"{address}: {text}")
        if route.connection is None:
            self._end_waiting(route, outcome)
        self._forget_if_unused(route)
        self._dial_queued()

    def on_direct_open(self, exchange: "IncomingExchange", message: DirectOpen) -> None:
        """Another peer dials us."""
        settings = self._peer.settings
        if self.is_leaving or not self._peer.is_present:
            exchange.reject(RejectReason.LEAVING, "this peer is leaving the channel")
            return
        if not self._peer.is_member:
            exchange.reject(RejectReason.NOT_CONNECTED, "this peer has not joined the channel yet")
            return
        is_full = self.accepted_count >= settings.direct_in_max
        if is_full and not self._close_least_recently_used(is_initiator=False):
            exchange.reject(RejectReason.BUSY, "too many direct connections")
            return
        exchange.respond(DirectAccept(DIRECT_VERSION, settings.direct_inflight_max, settings.direct_request_bytes_max))
        remote = exchange.remote
        self._adopt(DirectConnection(self._peer, exchange.release(), remote, message, is_initiator=False))

    def _adopt(self, connection: DirectConnection) -> None:
        """Use the connection, unless both sides dialed and the other one is preferred."""
        self._connections[connection] = None
        route = self._routes.setdefault(connection.peer_id, Route(connection.peer_id))
        current, route.connection = route.connection, connection
        if current is not None:
            if current.is_initiator != connection.is_initiator and self._is_preferred(current):
                route.connection, current = current, connection
            current.begin_close()
        self._advance(route)

    def _is_preferred(self, connection: DirectConnection) -> bool:
        return connection.is_initiator == (self._peer.me.peer_id < connection.peer_id)

    # -- called by connections

    def on_request(self, request: IncomingRequest) -> None:
        self._peer.counters.requests_received += 1
        if self.is_leaving or not self._peer.is_present:
            request.refuse(RequestStatus.LEAVING, "this peer is leaving the channel")
        elif self._peer.broadcaster.quotas is None or self._peer.broadcaster.quotas.admit_request(request):
            self.handlers.dispatch(request)
        else:
            self._peer.counters.quota_refused_requests += 1
            request.refuse(RequestStatus.BUSY, "more requests than the quota of the caller allows")

    def on_room(self, connection: DirectConnection) -> None:
        """A request has ended, or the connection is writable again."""
        route = self._routes.get(connection.peer_id)
        if route is not None and route.waiting and route.connection is connection:
            self._advance(route)
        if self._dial_queue and connection.is_idle:
            self._dial_queued()

    def on_closing(self, connection: DirectConnection) -> None:
        """No further request is sent over it."""
        route = self._routes.get(connection.peer_id)
        if route is not None and route.connection is connection:
            route.connection = None
            self._advance(route)

    def on_closed(self, connection: DirectConnection) -> None:
        self._connections.pop(connection, None)
        route = self._routes.get(connection.peer_id)
        if route is not None:
            if route.connection is connection:
                route.connection = None
                for request in list(route.waiting):
                    if request.was_lost:
                        self.end_queued(request, _gone("the connection was lost twice"))
                    request.was_lost = True
                self._advance(route)
            self._forget_if_unused(route)
        self._dial_queued()

    def end_queued(self, request: OutgoingRequest, outcome: Outcome) -> None:
        """End a request that was not sent, unless it was given up because of the outcome of another one."""
        self._remove_waiting(request)
        if request.state is not RequestState.ENDED:
            request.end(outcome)

    # -- ends

    def tick(self, now: float) -> None:
        for connection in list(self._connections):
            connection.tick(now)

    def _on_deadline(self, request: OutgoingRequest) -> None:
        outcome = Outcome(OutcomeKind.NO_ANSWER, sent=request.state is RequestState.SENT)
        if not outcome.sent and self._waits_for_quota(request.peer_id):
            outcome = Outcome(OutcomeKind.BUSY, text="the quota on the channel's card does not allow it in time")
        self._withdraw(request)
        request.end(outcome)

    def _withdraw(self, request: OutgoingRequest) -> None:
        """Remove it from wherever it is."""
        if request.state is RequestState.QUEUED:
            self._remove_waiting(request)
        elif request.state is RequestState.SENT and request.connection is not None:
            request.connection.caller.cancel(request)

    def _remove_waiting(self, request: OutgoingRequest) -> None:
        route = self._routes.get(request.peer_id)
        if route is not None and request in route.waiting:
            route.waiting.remove(request)
            self._waiting_count -= 1
            self._forget_if_unused(route)

    def _end_waiting(self, route: Route, outcome: Outcome) -> None:
        for request in list(route.waiting):
            self.end_queued(request, outcome)
        self._forget_if_unused(route)

    def _forget_if_unused(self, route: Route) -> None:
        is_used = route.waiting or route.connection is not None or route.exchange is not None or route.is_dial_queued
        if not is_used and self._routes.get(route.peer_id) is route:
            del self._routes[route.peer_id]


def _gone(text: str) -> Outcome:
    return Outcome(OutcomeKind.GONE, text=text)
