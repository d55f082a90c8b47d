"""Find the channel: search the bootstrap hosts by depth of the port order, meet other seekers, elect the creator.

Seekers that meet share how deep they have searched and which other seekers they know, and never link to each other
before the search is exhausted. Then the seeker with the lowest id that can be found on a bootstrap host creates the
channel, and the others wait for its `SeekerJoined`. So peers that start at the same moment end up in one fabric.

The states and what leads from one to the next are in `join_states.DISCOVERY`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from broadloom.protocol.channel_name import PortOrder, search_order
from broadloom.protocol.events import PeerState, Rejected
from broadloom.protocol.exchange import Exchange, IncomingExchange, OutgoingExchange
from broadloom.protocol.membership.join_states import DISCOVERY, DiscoveryEvent, DiscoveryState, bind
from broadloom.wire import Address, PeerId, PeerInfo
from broadloom.wire.codec import WireMessage
from broadloom.wire.exchange_messages import DiscoverRequest, DiscoverResponse, RejectReason, SeekerJoined

if TYPE_CHECKING:
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.runtime import Timer

SEEKERS_MAX = 32
"""Seekers remembered."""
SEEKERS_SHARED = 8
"""Seekers named to another one: those with the lowest ids, one of which would create the channel."""
SEEKERS_PROBED = 3
FOREIGN_MAX = 16
"""Foreign programs remembered, for error messages."""
BOOTSTRAP_TRIES = 3
"""Bootstrap hosts that a member contacts at a time; the next time, others."""
PORT_TRIES = 4
"""Ports of each: always the first one of the port order, where a peer is most likely, and others each time."""

REJECTION_TEXTS = {
    RejectReason.WRONG_KEY: "is on this channel, but has another key; use the key of the other members",
    RejectReason.TICKET_EXPIRED: (
        "reports an expired ticket; ask the owner of the channel for a new one, and check both clocks"
    ),
    RejectReason.TICKET_REVOKED: "reports that this ticket was revoked; ask the owner of the channel for a new one",
    RejectReason.SIGNING_MISMATCH: (
        "is on this channel, but only one side signs its messages; set signed (--signed) on all members or on none"
    ),
    RejectReason.TLS_MISMATCH: (
        "uses plain TCP where this peer uses TLS, or the other way round; use the same tls setting on all members"
    ),
    RejectReason.CHANNEL_TLS_MISMATCH: (
        "is on this channel, but uses plain TCP where this peer uses TLS, or the other way round; use the same tls "
        "setting on all members"
    ),
    RejectReason.CHANNEL_CLOSED: "reports that the owner has closed this channel",
    RejectReason.QUOTA_EXCEEDED: "does not admit this ticket for a while: its holder has exceeded its quota",
    RejectReason.WRONG_VERSION: (
        "uses another version of the protocol; install the same version of Broadloom everywhere"
    ),
    RejectReason.WRONG_CHANNEL: "is on another channel; check type and instance",
    RejectReason.WRONG_PROTOCOL: "is {foreign}, not a Broadloom peer; check host and port",
}
REJECTING_REASONS_ANYWHERE = (
    RejectReason.WRONG_KEY,
    RejectReason.TICKET_EXPIRED,
    RejectReason.TICKET_REVOKED,
    RejectReason.SIGNING_MISMATCH,
    RejectReason.CHANNEL_TLS_MISMATCH,
    RejectReason.CHANNEL_CLOSED,
    RejectReason.QUOTA_EXCEEDED,
)


@dataclass(slots=True, eq=False)
class _Search:
    """One pass over the bootstrap hosts. A later pass, or the first member that is found, replaces it."""

    indices: list[int]
    """Indices into the port order, as this pass tries them."""
    step: int = 0
    pending: int = 0
    """Probes under way."""
    depth: "_Depth | None" = None
    """The depth being probed."""
    searched: dict[int, None] = field(default_factory=dict)
    """Indices at which every host has answered or failed."""
    all_depths_probed: bool = False
    """No depth is left, but a pending probe may still find a member."""


@dataclass(slots=True, eq=False)
class _Depth:
    """The probes of all hosts at one index of the port order (None: at the ports that were given)."""

    search: _Search
    index: int | None
    pending: int


class Discovery:
    """Bootstrap hosts without a port are searched along the port order."""

    def __init__(self, peer: "Peer", bootstrap: tuple[Address, ...]) -> None:
        self._peer = peer
        self._state = DiscoveryState.IDLE
        self._transitions = bind(DISCOVERY, self)
        self._order = PortOrder(peer.channel_id)
        self._bootstrap = bootstrap
        self._search: _Search | None = None
        self.search_depth = 0
        """Every bootstrap host was probed to this depth, by this peer or by a seeker it met."""
        self._is_on_bootstrap = False
        self._own_ports = {peer.me.address.port: None}
        self._seekers: dict[PeerId, PeerInfo] = {}
        self._seekers_on_bootstrap: dict[PeerId, None] = {}
        """Seekers that answered on a bootstrap host, so they could create the channel."""
        self._members: dict[PeerId, PeerInfo] = {}
        """Connected peers not yet asked to admit this one."""
        self._open_probe: OutgoingExchange | None = None
        """The probe that has just found a member, which can be asked over the same connection."""
        self._cache_tried = False
        self._rejected: Rejected | None = None
        self.foreign: dict[Address, str] = {}
        """Programs that are not members of the channel, found where members were expected, and what they are."""
        self._next_contact = peer.me.peer_id  # peers begin at different hosts
        self._timer: Timer | None = None

    def start(self) -> None:
        self._fire(DiscoveryEvent.START)

    def on_listening(self, port: int) -> None:
        """This peer listens on one more port, where searches find it."""
        self._own_ports[port] = None

    @property
    def is_active(self) -> bool:
        return self._peer.state is PeerState.DISCOVERING and not len(self._peer.links)

    def _fire(self, event: DiscoveryEvent) -> None:
        transition = self._transitions.get((self._state, event))
        if transition is None:
            return
        action, next_state = transition
        if next_state is not self._state:
            self._cancel_timer()
            self._state = next_state
        if action is not None:
            action()

    # -- search

    def _start_search(self) -> None:
        self._cache_tried = False
        self._rejected = None
        self.search_depth = 0
        self._search = _Search(search_order(self._peer.settings.discovery_ports, self._peer.runtime.random))
        self._probe(self._search, [host for host in self._bootstrap if host.port])

    def _search_again(self) -> None:
        for peer_id in sorted(self._seekers)[:SEEKERS_PROBED]:  # a dead seeker with a lower id must not block creating
            self._send_request(self._seekers[peer_id])
        self._start_search()

    def _probe(self, search: _Search, addresses: list[Address], index: int | None = None) -> None:
        """Probe all hosts at one depth in parallel. A host that does not answer delays the search but does not
        stall it."""
        depth = search.depth = _Depth(search, index, len(addresses))
        search.pending += depth.pending
        if not addresses:
            self._on_depth_probed(depth)
            return
        delay_s = self._peer.pacing.stretched(self._peer.settings.discovery_attempt_s)
        self._peer.runtime.call_later(delay_s, self._on_depth_probed, depth)
        for address in addresses:
            self._send_request(address, depth)

    def _on_depth_probed(self, depth: _Depth) -> None:
        search = depth.search
        if search is self._search and depth is search.depth and not search.all_depths_probed and self.is_active:
            self._fire(DiscoveryEvent.DEPTH_PROBED)

    def _on_probe_ended(self, depth: _Depth) -> None:
        search = depth.search
        depth.pending -= 1
        if search is not self._search:
            return
        search.pending -= 1
        if depth.pending == 0 and depth.index is not None:
            search.searched[depth.index] = None
        if search.all_depths_probed:
            self._check_exhausted(search)
        elif depth.pending == 0:
            self._on_depth_probed(depth)

    def _check_exhausted(self, search: _Search) -> None:
        if search.pending == 0 and self.is_active:
            self._fire(DiscoveryEvent.EXHAUSTED)

    def _probe_next_depth(self) -> None:
        search = self._search
        assert search is not None, "only a search reports that a depth was probed"
        self.search_depth = max(self.search_depth, _contiguous_depth(search))
        while search.step < len(search.indices) and self._can_skip(search.indices[search.step]):
            search.step += 1
        hosts = [address.host for address in self._bootstrap if not address.port]
        if search.step >= len(search.indices) or not hosts:
            search.all_depths_probed = True
            self._check_exhausted(search)
            return
        index = search.indices[search.step]
        search.step += 1
        self._probe(search, [Address(host, self._order[index]) for host in hosts], index)

    def _can_skip(self, index: int) -> bool:
        """Another seeker has searched this depth. At our own port, only our own probe shows that we are on a
        bootstrap host."""
        return index < self.search_depth and (self._is_on_bootstrap or self._order[index] not in self._own_ports)

    def _send_request(self, target: Address | PeerInfo, depth: _Depth | None = None) -> None:
        on_response = partial(self._on_response, target, depth)
        on_failure = partial(self._on_failure, target, depth)
        # A join request goes along with a probe while it is the only one, so that only one member is asked.
        is_alone = depth is not None and depth.search.pending == 1
        follow_up = self._peer.join_protocol.join_request() if is_alone else None
        OutgoingExchange(self._peer, target, self._request(), on_response, on_failure, follow_up=follow_up)

    def _request(self) -> DiscoverRequest:
        return DiscoverRequest(self._peer.state is PeerState.CONNECTED, self.search_depth, self._shared_seekers())

    def _shared_seekers(self) -> tuple[PeerInfo, ...]:
        return tuple(self._seekers[peer_id] for peer_id in sorted(self._seekers)[:SEEKERS_SHARED])

    def _on_response(
        self, target: Address | PeerInfo, depth: _Depth | None, exchange: OutgoingExchange, response: WireMessage
    ) -> None:
        if isinstance(response, DiscoverResponse):
            if response.is_connected:
                self._open_probe = exchange
                self.on_member_found(exchange.remote)
                self._open_probe = None
            else:
                self._on_seeker_found(exchange.remote, response, on_bootstrap=isinstance(target, Address))
        if depth is not None:
            self._on_probe_ended(depth)

    def _on_failure(self, target: Address | PeerInfo, depth: _Depth | None, reason: RejectReason | None) -> None:
        if reason is RejectReason.SELF_CONNECTION:
            self._is_on_bootstrap = True
        if isinstance(target, PeerInfo):
            self._seekers.pop(target.peer_id, None)
        elif reason in self._rejecting_reasons(target):
            text = REJECTION_TEXTS[reason].format(foreign=self.foreign.get(target, "another program"))
            self._rejected = Rejected(reason, f"{target}: {text}")
        if depth is not None:
            self._on_probe_ended(depth)

    def on_foreign_found(self, address: Address, foreign: str) -> None:
        if len(self.foreign) < FOREIGN_MAX:
            self.foreign[address] = foreign

    def _rejecting_reasons(self, address: Address) -> tuple[RejectReason, ...]:
        """Reasons that keep us out for good. Other channels and programs are to be expected along the port order;
        at an address given with its port they are a mistake, which is reported."""
        return tuple(REJECTION_TEXTS) if address in self._bootstrap else REJECTING_REASONS_ANYWHERE

    # -- other seekers

    def _on_seeker_found(self, seeker: PeerInfo, response: DiscoverResponse, *, on_bootstrap: bool) -> None:
        self._add_seeker(seeker)
        if on_bootstrap:
            self._seekers_on_bootstrap[seeker.peer_id] = None
        self.search_depth = max(self.search_depth, min(response.search_depth, self._peer.settings.discovery_ports))
        for other in response.seekers:
            if self.is_active and self._add_seeker(other):
                self._send_request(other)  # so that it learns of us, too

    def _add_seeker(self, seeker: PeerInfo) -> bool:
        """Whether the seeker is new. The limit also ends the chain of seekers that contact each other."""
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
        elif is_connected:
            exchange.await_join_request()
        else:
            self._add_seeker(exchange.remote)

    def on_seeker_joined(self, exchange: IncomingExchange, _message: SeekerJoined) -> None:
        exchange.respond(SeekerJoined())
        self.on_member_found(exchange.remote)

    def notify_seekers(self) -> None:
        """This peer is connected: the seekers it knows can join through it."""
        for seeker in self._seekers.values():
            OutgoingExchange(self._peer, seeker, SeekerJoined(), lambda _exchange, _response: None)
        self._seekers.clear()

    # -- join through a member

    def on_member_found(self, member: PeerInfo) -> None:
        if not self.is_active or len(self._members) >= SEEKERS_MAX:
            return
        self._search = None
        self._seekers.pop(member.peer_id, None)
        self._members[member.peer_id] = member
        self._fire(DiscoveryEvent.MEMBER_FOUND)

    def _request_join(self) -> None:
        member = self._members.pop(next(iter(self._members)))
        probe = self._open_probe
        if probe is not None and probe.remote.peer_id != member.peer_id:
            probe = None
        on_finished = partial(self._on_join_finished, member if probe is not None else None)
        self._peer.join_protocol.join_via(member, on_finished, over=probe)

    def _on_join_finished(self, probed: PeerInfo | None, accepted: bool) -> None:
        """`probed`: the member was asked over the connection of a probe, which it may have closed meanwhile. So it is
        asked again."""
        if accepted:
            self._fire(DiscoveryEvent.JOIN_ACCEPTED)
        else:
            if probed is not None:
                self._members[probed.peer_id] = probed
            self._fire(DiscoveryEvent.JOIN_FAILED if self.is_active else DiscoveryEvent.SUPERSEDED)

    def _await_links(self) -> None:
        self._start_timer(self._peer.settings.join_timeout_s)

    def _choose_member(self) -> None:
        """Another member that was found, else one peer of the cache per search."""
        if not self._members and not self._cache_tried:
            self._cache_tried = True
            peer_info = self._peer.peer_cache.pick(self._seekers)
            if peer_info is not None:
                self._members[peer_info.peer_id] = peer_info
        self._fire(DiscoveryEvent.MEMBER_FOUND if self._members else DiscoveryEvent.NO_MEMBER_LEFT)

    # -- no member found

    def _elect_creator(self) -> None:
        """The seeker with the lowest id creates the channel. A member that rejects us proves that the channel exists:
        so no second one of the same name is created."""
        if self._rejected is not None:
            self._fire(DiscoveryEvent.REJECTED)
            return
        self.search_depth = self._peer.settings.discovery_ports
        is_preceded = any(
            seeker.peer_id < self._peer.me.peer_id and self._can_create(seeker) for seeker in self._seekers.values()
        )
        may_create = self._is_on_bootstrap and not is_preceded
        self._fire(DiscoveryEvent.MAY_CREATE if may_create else DiscoveryEvent.MUST_WAIT)

    def _can_create(self, seeker: PeerInfo) -> bool:
        """Whether others can find the seeker on a bootstrap host: it answered there, or listens where a search looks.
        A seeker on a port beyond every search must not be waited for."""
        address = seeker.address
        in_reach = any(self._order[index] == address.port for index in range(self._peer.settings.discovery_ports))
        return seeker.peer_id in self._seekers_on_bootstrap or any(
            address == host or (host.host == address.host and not host.port and in_reach) for host in self._bootstrap
        )

    def _create_channel(self) -> None:
        self._peer.create_channel()

    def _report_rejection(self) -> None:
        assert self._rejected is not None
        self._peer.emit(self._rejected)
        self._pause()

    # -- timer of the current state

    def _pause(self) -> None:
        self._start_timer(self._peer.settings.discovery_retry_s * (0.5 + self._peer.runtime.random.random()))

    def _start_timer(self, delay_s: float) -> None:
        self._timer = self._peer.runtime.call_later(self._peer.pacing.stretched(delay_s), self._on_timer)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self._fire(DiscoveryEvent.TIMED_OUT if self.is_active else DiscoveryEvent.SUPERSEDED)

    # -- for members

    def set_bootstrap(self, bootstrap: tuple[Address, ...]) -> None:
        """Use these bootstrap hosts from now on. A search starts again; a member contacts the new hosts first."""
        added = next((index for index, address in enumerate(bootstrap) if address not in self._bootstrap), 0)
        self._bootstrap, self._next_contact = bootstrap, added
        if self.is_active and self._state in (DiscoveryState.SEARCHING, DiscoveryState.PAUSED):
            self._fire(DiscoveryEvent.START)

    def contact_bootstrap_hosts(self, on_member: Callable[[PeerInfo], None]) -> None:
        """For a member whose cached peers may not lead to all others: try a few ports of a few bootstrap hosts.
        Repeated calls try all of them."""

        def on_response(exchange: Exchange, response: WireMessage) -> None:
            if isinstance(response, DiscoverResponse) and response.is_connected:
                on_member(exchange.remote)

        for _ in range(min(BOOTSTRAP_TRIES, len(self._bootstrap))):
            for target in self._contact_targets(self._next_contact):
                OutgoingExchange(self._peer, target, self._request(), on_response)
            self._next_contact += 1

    def _contact_targets(self, contact: int) -> list[Address]:
        """Contact after contact goes through all hosts with some of their ports, then again with the next ports."""
        ports_pass, position = divmod(contact, len(self._bootstrap))
        address = self._bootstrap[position]
        if address.port:
            return [address]
        others, tries = self._peer.settings.discovery_ports - 1, PORT_TRIES - 1
        indices = [0, *(1 + (ports_pass * tries + step) % others for step in range(min(tries, others)))]
        return [Address(address.host, self._order[index]) for index in indices]


def _contiguous_depth(search: _Search) -> int:
    """The depth up to which every probe has ended; the first eight indices are tried in random order."""
    depth = 0
    while depth in search.searched:
        depth += 1
    return depth
