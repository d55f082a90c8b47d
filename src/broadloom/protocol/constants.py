"""`Tuning`: the internal constants of the protocol, each with its unit and its reason.

Not public: applications use `ChannelSettings`. Tests and scenarios override constants by passing a `Tuning` instead.
"""

from dataclasses import dataclass, fields

from broadloom.protocol.settings import ChannelSettings
from broadloom.wire.fields import AUTHORS_MAX, MEMBERS_MAX


@dataclass(frozen=True, slots=True)
class Tuning(ChannelSettings):
    """All that one peer's protocol depends on: the public settings and the constants below them."""

    # Joining and links

    discovery_attempt_s: float = 0.5
    """Time to wait for one port before the search also tries the next; a late answer still counts."""
    discovery_retry_s: float = 1.0
    """Pause before other seekers are asked again, or a search without result is repeated."""
    exchanges_max: int = 256
    """Incoming exchanges at a time. The oldest makes room for one more: honest peers answer within milliseconds."""
    slot_reservation_s: float = 2.5
    """A slot reserved for an announced peer is free again after this time."""
    announced_dial_s: float = 0.3
    """A peer that was announced usually dials within this time; then it is dialed instead."""
    edge_reservation_s: float = 6.0
    """An edge on offer may be offered again after this time. Longer than `exchange_timeout_s`, so no edge is pinned
    twice."""
    join_timeout_s: float = 2.0
    """How long a newcomer keeps its free slots for the walks that were started for it. In a full mesh it is connected
    after this time at the latest."""
    unlink_timeout_s: float = 4.0
    """A link that is being drained is closed after this time even without an acknowledgement."""
    leave_timeout_s: float = 15.0
    """Maximum time for slow neighbors to read what was sent before this peer left."""
    leave_linger_s: float = 0.3
    """Frames of a leaving neighbor are read for this long: it may relay the last messages of another leaving peer."""
    tick_s: float = 1.0
    """Interval of periodic checks."""

    # Broadcast

    reorder_buffer_bytes_max: int = 16 << 20
    """Frames held until an earlier one arrives. Frames beyond this are dropped and requested again later."""
    authors_max: int = 20_000
    """Authors tracked. Messages of more authors are dropped and counted, so invented ids cannot exhaust memory."""
    gap_repair_delay_s: float = 0.5
    """A gap that has not closed by itself after this time is requested from one neighbor after another."""
    flood_frames_per_s_max: int = 10
    """Authors with a higher rate use the tree for all frames: it is fresh, and frequent floods are expensive. They send
    single messages before the turn ends."""
    fast_path: bool = True
    """Single messages take a shorter way through the code, with the same effects. Off only to test that they are."""
    ihave_interval_s: float = 0.1
    """`IHave` entries for lazy links are collected for this long after something was missing or a tree changed."""
    ihave_interval_s_max: float = 0.4
    """The same while nothing is missing: each interval is twice the one before, up to this."""
    bundle_bytes: int = 256 << 10
    """Messages sent within one turn of the event loop are packed into frames of about this size."""
    bundle_linger_s: float = 0.005
    """Busy authors collect messages for this long; authors of single messages never wait for it."""
    send_window_s: float = 0.5
    """`broadcast` waits when more is in flight than the receivers acknowledge in this time. A time and not a size,
    because a fixed size means many seconds of delay where receivers are slow."""
    send_window_bytes_max: int = 4 << 20
    """Upper bound of the send window."""
    send_window_bytes_min: int = 128 << 10
    """Lower bound of the send window."""
    straggler_timeout_s: float = 0.4
    """A receiver far behind the others for this long no longer holds up the author. Do not lower it: on a busy machine
    every process is late by 0.1 s now and then, and a receiver that nobody waits for falls behind for good."""
    backlog_shed_bytes: int = 2 << 20
    """Low-priority messages are skipped for a neighbor with a larger backlog."""
    backlog_lazy_bytes: int = 8 << 20
    """A link with a larger backlog for longer than `straggler_timeout_s` becomes lazy: it gets `IHave` only."""

    # Direct requests

    direct_inflight_max: int = 128
    """Requests of one caller that are open at a time. A caller that sends more is disconnected."""
    direct_request_bytes_max: int = 4 << 20
    """Size of the open requests of one caller, and so of one request; the same for replies."""
    direct_bytes_max: int = 64 << 20
    """Requests of all callers that are held, and replies that wait to be sent. Beyond it, requests get BUSY."""
    direct_waiting_max: int = 1024
    """Requests of this peer that wait for a connection, and those of others that wait for a handler."""
    direct_out_max: int = 64
    """Direct connections dialed by this peer. The least recently used idle one is closed for another."""
    direct_in_max: int = 256
    """Direct connections dialed by others."""
    direct_dials_per_s: int = 20
    """Sustained rate of dials; the burst is `direct_out_max`. Addresses come from other members, who could name a
    victim."""
    direct_redial_s: float = 1.0
    """A peer that could not be dialed is not dialed again for this time."""
    direct_resolve_s: float = 1.0
    """How long to wait for the address of a peer that is not known yet: it may have just joined."""
    direct_keep_s: float = 30.0
    """An idle direct connection is closed after this time."""
    handlers_max: int = 256
    """Handlers of requests that run at a time, of all layers together."""
    tells_waiting_max: int = 128
    """One-way messages of one connection that wait for a handler; then the connection is not read."""

    # Repair

    repair_delay_s: float = 0.25
    """Delay of the first attempt to fill a free slot, so that the other neighbors notice the loss too."""
    repair_backoff_s: float = 0.4
    """Pause after the first two attempts, doubled after every two more."""
    repair_backoff_alert_s_max: float = 4.0
    """Longest pause while the loss of a neighbor is recent."""
    repair_backoff_s_max: float = 20.0
    """Longest pause otherwise: a slot that cannot be filled (odd degree, odd number of peers) costs next to nothing."""
    walk_extra_steps: int = 8
    """Steps a random walk may add when it ends at an unsuitable edge."""
    neighbor_list_delay_s: float = 0.05
    """Changes of the neighbor list within this time are announced together."""
    decluster_interval_s: float = 4.0
    """How often a peer in a cluster tries to swap an edge."""

    # Roster

    roster_max: int = MEMBERS_MAX
    """Members whose records are kept; 0: no roster, for simulations of many thousand peers."""
    roster_publish_s: float = 0.25
    """Changes of our links within this time are published together. The loss of a neighbor is published at once, if
    the last record is older."""
    roster_gather_s: float = 0.05
    """Records that arrive within this time after others are relayed together."""
    roster_grace_s: float = 1.0
    """A member that cannot be reached for this long is lost. Exchanges of edges and repairs are faster."""
    roster_stale_s: float = 10.0
    """A member that most of its neighbors have dropped for this long is lost, even if one still lists it."""
    roster_forget_s: float = 600.0
    """Records of members that are gone are kept for this long, to recognize them when a partition heals."""

    # Partitions

    peer_cache_max: int = 128
    """Addresses of other peers, in case all neighbors die."""
    peer_sample_size: int = 16
    """Cached addresses sent along with a response or a digest."""
    beacon_interval_s: float = 3.0
    """How often one peer of the fabric sends a beacon."""
    probe_interval_s: float = 10.0
    """How often a peer asks a cached one whether both are in the same fabric."""
    probe_interval_alert_s: float = 2.0
    """The same while the peer is on alert or has no neighbor."""
    alert_s: float = 60.0
    """How long a peer is on alert after it lost a neighbor ungracefully."""

    def __post_init__(self) -> None:
        ChannelSettings.__post_init__(self)
        if self.authors_max >= AUTHORS_MAX:
            raise ValueError(f"authors_max must be below {AUTHORS_MAX}, the limit of a digest, not {self.authors_max}")

    @classmethod
    def of(cls, settings: ChannelSettings | None) -> "Tuning":
        """Add the constants to the settings of a user.

        Steps of joining that last about as long as an exchange get the same factor as `exchange_timeout_s` where that
        is longer than the default; with shorter reservations a slow network never forms a fabric.
        """
        if isinstance(settings, Tuning):
            return settings
        if settings is None:
            return cls()
        public = {each.name: getattr(settings, each.name) for each in fields(ChannelSettings)}
        default = cls()
        factor = max(1.0, settings.exchange_timeout_s / default.exchange_timeout_s)
        return cls(
            **public,
            slot_reservation_s=factor * default.slot_reservation_s,
            announced_dial_s=factor * default.announced_dial_s,
            edge_reservation_s=factor * default.edge_reservation_s,
            join_timeout_s=factor * default.join_timeout_s,
        )

    @property
    def author_eviction_s(self) -> float:
        """An author idle for this long may be evicted if there are too many: no copy of its messages is left."""
        return 2 * self.retention_s

    @property
    def beacon_timeout_s(self) -> float:
        """Without a beacon for this long, this part of the fabric has lost its sender."""
        return 3 * self.beacon_interval_s
