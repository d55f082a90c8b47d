"""Finding the channel: searching portals by depth, meeting fellow seekers, and founding it if nobody is there.

Seekers who meet share how deep they have looked and whom they have met, and never form a fabric together before
the search is exhausted. Then the one with the lowest id that can be found at a portal founds the channel, the others
wait for its word. So peers that start at the same moment end in one fabric.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from broadloom.protocol.channel_name import PortOrder, search_order
from broadloom.protocol.events import PeerState, Rejected
from broadloom.protocol.exchange import Exchange, IncomingExchange, OutgoingExchange
from broadloom.wire import Address, PeerId, PeerInfo
from broadloom.wire.codec import WireMessage
from broadloom.wire.exchange_messages import DiscoverRequest, DiscoverResponse, RejectReason, SeekerJoined

if TYPE_CHECKING:
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.runtime import Timer

SEEKERS_MAX = 32
"""Fellow seekers remembered."""
SEEKERS_SHARED = 8
"""Fellow seekers told to another: those with the lowest ids, one of whom would found the channel."""
PARALLEL_TRIES = 3
BOOTSTRAP_TRIES = 3
PORT_TRIES = 4
"""Portals, and ports of each, that a member looks at in one go."""

REJECTING_REASONS = {
    RejectReason.WRONG_KEY: "is on this channel, but has another key",
    RejectReason.TICKET_EXPIRED: (
        "says that a ticket has expired; ask the channel's owner for a new one, and look at the clocks"
    ),
    RejectReason.TICKET_REVOKED: "says that this ticket was revoked by the channel's owner",
    RejectReason.SIGNING_MISMATCH: "is on this channel, but one side signs its messages and the other does not",
    RejectReason.TLS_MISMATCH: "speaks plain TCP where this peer speaks TLS, or the other way round",
    RejectReason.WRONG_VERSION: "speaks another version of the protocol",
    RejectReason.WRONG_CHANNEL: "is on another channel; check type and instance",
    RejectReason.WRONG_PROTOCOL: "is no Broadloom peer",
}
REJECTING_REASONS_ANYWHERE = (
    RejectReason.WRONG_KEY,
    RejectReason.TICKET_EXPIRED,
    RejectReason.TICKET_REVOKED,
    RejectReason.SIGNING_MISMATCH,
)


class Discovery:
    """`portals` are host names (searched along the port order) or whole addresses (port given)."""

    def __init__(self, peer: "Peer", bootstrap: tuple[Address, ...]) -> None:
        self._peer = peer
        self._order = PortOrder(peer.channel_id)
        self._bootstrap = bootstrap
        self._indices: list[int] = []
        self._step = 0
        self._pending = 0
        """Calls of this search that are under way."""
        self._searched_indices: dict[int, None] = {}
        """Indices of the port order at which all portals were tried."""
        self._all_depths_tried = False
        """All depths have been tried; what is unanswered may still bring somebody."""
        self._round = 0
        self.search_depth = 0
        """All portals have been tried to this depth, by this peer or one it met."""
        self._is_on_bootstrap = False
        self._seekers: dict[PeerId, PeerInfo] = {}
        self._seekers_on_bootstrap: dict[PeerId, None] = {}
        """Fellows that answered at a portal, so that they could found the channel."""
        self._members: dict[PeerId, PeerInfo] = {}
        """Connected peers that could be asked to weave us in."""
        self._is_joining = False
        self._is_accepted = False
        """A connected peer has started to weave us in."""
        self._cache_tried = False
        self._rejected: Rejected | None = None
        self._next_port_index = 0
        self._timer: Timer | None = None

    # -- the search

    def start(self) -> None:
        """Begin, or begin again."""
        self._round += 1
        self._cache_tried = False
        self._rejected = None
        self._pending = 0
        self._all_depths_tried = False
        self._searched_indices.clear()
        self.search_depth = 0
        self._indices = search_order(self._peer.settings.discovery_ports, self._peer.runtime.random)
        self._step = 0
        with_port = [bootstrap_host for bootstrap_host in self._bootstrap if bootstrap_host.port]
        self._try_all(with_port)

    @property
    def is_active(self) -> bool:
        return self._peer.state is PeerState.DISCOVERING and not len(self._peer.links)

    def _try_all(self, addresses: list[Address], index: int | None = None) -> None:
        """All portals at one depth at once; then the next depth. A portal that does not answer, because its host is
        dead or its peer is stopped, delays the search but does not hold it up."""
        round_number, step = self._round, self._step
        remaining = len(addresses)
        self._pending += remaining

        def continue_search() -> None:
            if (round_number, step) == (self._round, self._step) and not self._all_depths_tried:
                self._next_depth()

        def on_tried() -> None:
            nonlocal remaining
            remaining -= 1
            if round_number != self._round:
                return
            self._pending -= 1
            if remaining == 0 and index is not None:
                self._searched_indices[index] = None
            if not self._all_depths_tried:
                if remaining == 0:
                    continue_search()
            elif self._pending == 0:
                self._on_exhausted()

        if not addresses:
            continue_search()
            return
        self._peer.runtime.call_later(self._peer.settings.discovery_attempt_s, continue_search)
        for address in addresses:
            self._try(address, on_tried)

    def _try(self, address: Address | PeerInfo, on_tried: Callable[[], None]) -> None:
        def on_response(exchange: Exchange, response: WireMessage) -> None:
            if isinstance(response, DiscoverResponse):
                self._on_response(exchange.remote, response, on_bootstrap=isinstance(address, Address))
            on_tried()

        def on_failure(reason: RejectReason | None) -> None:
            if reason is RejectReason.SELF_CONNECTION:
                self._is_on_bootstrap = True
            if isinstance(address, Address) and reason in self._rejecting_reasons(address):
                self._rejected = Rejected(reason, f"{address}: {REJECTING_REASONS[reason]}")
            if isinstance(address, PeerInfo):
                self._seekers.pop(address.peer_id, None)
            on_tried()

        OutgoingExchange(self._peer, address, self._request(), on_response, on_failure)

    def _request(self) -> DiscoverRequest:
        return DiscoverRequest(self._peer.state is PeerState.CONNECTED, self.search_depth, self._shared_seekers())

    def _shared_seekers(self) -> tuple[PeerInfo, ...]:
        return tuple(self._seekers[peer_id] for peer_id in sorted(self._seekers)[:SEEKERS_SHARED])

    def _next_depth(self) -> None:
        if not self.is_active or self._is_joining or self._is_accepted:
            return
        self.search_depth = max(self.search_depth, self._contiguous_depth())
        while self._step < len(self._indices) and self._can_skip_depth(self._indices[self._step]):
            self._step += 1
        hosts = [bootstrap_host.host for bootstrap_host in self._bootstrap if not bootstrap_host.port]
        if self._step >= len(self._indices) or not hosts:
            self._all_depths_tried = True
            if self._pending == 0:
                self._on_exhausted()
            return
        index = self._indices[self._step]
        self._step += 1
        self._try_all([Address(host, self._order[index]) for host in hosts], index)

    def _can_skip_depth(self, index: int) -> bool:
        """A fellow has looked there. But at our own port only we can find out whether we are at a portal ourselves."""
        return index < self.search_depth and (self._is_on_bootstrap or self._order[index] != self._peer.me.address.port)

    def _contiguous_depth(self) -> int:
        """The depth below which every call was answered, or failed: the first eight are tried in a random order."""
        depth = 0
        while depth in self._searched_indices:
            depth += 1
        return depth

    def _on_response(self, remote: PeerInfo, response: DiscoverResponse, *, on_bootstrap: bool) -> None:
        if response.is_connected:
            self.on_member_found(remote)
            return
        self._add_seeker(remote)
        if on_bootstrap:
            self._seekers_on_bootstrap[remote.peer_id] = None
        self.search_depth = max(self.search_depth, min(response.search_depth, len(self._indices)))
        for seeker in response.seekers:
            if self.is_active and self._add_seeker(seeker):
                self._try(seeker, lambda: None)  # so that it knows of us as well

    def _add_seeker(self, seeker: PeerInfo) -> bool:
        """Whether it was news. Nobody is remembered beyond the limit, so seekers do not call each other for ever."""
        if (
            seeker.peer_id == self._peer.me.peer_id
            or seeker.peer_id in self._seekers
            or len(self._seekers) >= SEEKERS_MAX
        ):
            return False
        self._seekers[seeker.peer_id] = seeker
        return True

    def on_discover_request(self, exchange: IncomingExchange, request: DiscoverRequest) -> None:
        if not self._peer.is_present:
            exchange.reject(RejectReason.LEAVING, "this peer is leaving the channel")
            return
        is_connected = self._peer.state is PeerState.CONNECTED
        exchange.respond(
            DiscoverResponse(is_connected, self.search_depth, () if is_connected else self._shared_seekers())
        )
        if request.is_connected:
            self.on_member_found(exchange.remote)
        elif not is_connected:
            self._add_seeker(exchange.remote)

    # -- somebody is connected

    def on_seeker_joined(self, exchange: IncomingExchange, _statement: SeekerJoined) -> None:
        exchange.respond(SeekerJoined())
        self.on_member_found(exchange.remote)

    def on_member_found(self, member: PeerInfo) -> None:
        """This one can weave us in."""
        if not self.is_active or len(self._members) >= SEEKERS_MAX:
            return
        self._round += 1  # the search is over; what it still brings does not count
        self._seekers.pop(member.peer_id, None)
        self._members[member.peer_id] = member
        self._join_next()

    def _join_next(self) -> None:
        if self._is_joining or self._is_accepted or not self._members:
            return
        member = self._members.pop(next(iter(self._members)))
        self._is_joining = True

        def on_finished(accepted: bool) -> None:
            self._is_joining = False
            self._is_accepted = accepted
            if accepted:
                self._schedule(self._peer.settings.join_timeout_s, self._retry)
            elif self.is_active:
                self._schedule(self._retry_delay_s(), self._retry)

        self._peer.join_protocol.join_via(member, on_finished)

    def _retry(self) -> None:
        """No neighbour came of it. Ask one other peer that we have heard of, and if that does not help search again."""
        self._is_accepted = False
        if not self.is_active:
            return
        if not self._members and not self._cache_tried:
            self._cache_tried = True
            peer_info = self._peer.peer_cache.pick(self._seekers)
            if peer_info is not None:
                self._members[peer_info.peer_id] = peer_info
        if self._members:
            self._join_next()
        else:
            self.start()

    def _rejecting_reasons(self, address: Address) -> tuple[RejectReason, ...]:
        """Answers that keep us out for good. Along the port order, other channels and programs are to be expected;
        at an address that was given with its port, they are a mistake that a person must hear of."""
        return tuple(REJECTING_REASONS) if address in self._bootstrap else REJECTING_REASONS_ANYWHERE

    # -- nobody is connected

    def _on_exhausted(self) -> None:
        """Found the channel, or leave it to a fellow that goes before us. If somebody is there who does not let us in,
        then we are not the first, and a second channel of the same name would be in nobody's interest."""
        if not self.is_active or self._is_joining or self._is_accepted:
            return
        if self._rejected is not None:
            self._peer.emit(self._rejected)
            self._schedule(self._retry_delay_s(), self._search_again)
            return
        self.search_depth = len(self._indices)
        precedes_us = (
            each.peer_id < self._peer.me.peer_id and self._can_found(each) for each in self._seekers.values()
        )
        if self._is_on_bootstrap and not any(precedes_us):
            self._peer.found_channel()
            return
        self._schedule(self._retry_delay_s(), self._search_again)

    def _can_found(self, seeker: PeerInfo) -> bool:
        """Whether it can be found at a portal: it answered there, or listens where one would be looked for. One that
        listens deeper than anybody looks cannot, and must not be waited for."""
        address = seeker.address
        in_reach = any(self._order[index] == address.port for index in range(self._peer.settings.discovery_ports))
        return seeker.peer_id in self._seekers_on_bootstrap or any(
            address == bootstrap_host or (bootstrap_host.host == address.host and not bootstrap_host.port and in_reach)
            for bootstrap_host in self._bootstrap
        )

    def _search_again(self) -> None:
        if self.is_active and not self._is_joining and not self._is_accepted:
            for peer_id in sorted(self._seekers)[:PARALLEL_TRIES]:  # who goes before us: if it is dead, we must know
                self._try(self._seekers[peer_id], lambda: None)
            self.start()

    def _retry_delay_s(self) -> float:
        return self._peer.settings.discovery_retry_s * (0.5 + self._peer.runtime.random.random())

    def _schedule(self, delay_s: float, callback: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._peer.runtime.call_later(delay_s, callback)

    def contact_bootstrap_hosts(self, on_member: Callable[[PeerInfo], None]) -> None:
        """For a member that nobody of its cache answers: look at some of the portals' ports, next time at others."""

        def on_response(exchange: Exchange, response: WireMessage) -> None:
            if isinstance(response, DiscoverResponse) and response.is_connected:
                on_member(exchange.remote)

        for bootstrap_host in self._bootstrap[:BOOTSTRAP_TRIES]:
            if bootstrap_host.port:
                OutgoingExchange(self._peer, bootstrap_host, self._request(), on_response)
                continue
            for step in range(PORT_TRIES):
                index = (self._next_port_index + step) % self._peer.settings.discovery_ports
                OutgoingExchange(
                    self._peer, Address(bootstrap_host.host, self._order[index]), self._request(), on_response
                )
        self._next_port_index += PORT_TRIES

    def notify_seekers(self) -> None:
        """We are connected: whoever still seeks may come through us."""
        for seeker in self._seekers.values():
            OutgoingExchange(self._peer, seeker, SeekerJoined(), lambda _call, _answer: None)
        self._seekers.clear()
