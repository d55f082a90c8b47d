"""Every number that a peer goes by, with its unit and its reason."""

from dataclasses import dataclass

from broadloom.wire.fields import AUTHORS_MAX

DEGREE_MIN = 3
DEGREE_MAX = 32


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """One channel's peers should agree on `degree`; all else is each peer's own business."""

    degree: int = 4
    """Links each peer keeps."""

    discovery_ports: int = 16
    """Ports of the channel's order that a seeker tries on each portal."""
    discovery_attempt_s: float = 0.5
    """A portal that has not answered by then is still listened to, but the search goes on to the next port."""
    discovery_retry_s: float = 1.0
    """Pause before fellow seekers are asked again, or a search that found nobody is repeated."""

    exchange_timeout_s: float = 4.0
    """A call that has not been answered by then is given up."""
    exchanges_max: int = 256
    """Calls under way from others; for one more, the oldest is hung up on."""
    slot_reservation_s: float = 2.5
    """A place kept for a peer that was announced lapses after this."""
    edge_reservation_s: float = 6.0
    """An edge on offer is free again after this, whatever happened to the offer. Longer than a call."""
    unlink_timeout_s: float = 4.0
    """A link that was cut is closed after this even if its other end says nothing."""
    leave_linger_s: float = 0.3
    """A neighbour that leaves is listened to for so long: it may pass on what another one that leaves said last."""
    join_timeout_s: float = 2.0
    """How long an invitation is waited for, and after which a newcomer with any neighbour counts as connected."""

    heartbeat_s: float = 2.0
    """A link is never silent for longer than this from our side."""
    heartbeat_timeout_s: float = 7.0
    """A link that we hear nothing on for so long is dead."""
    tick_s: float = 1.0
    """How often a peer looks at its clocks."""

    retention_s: float = 120.0
    """How long a message is kept for those who may lack it. Copies older than this are not taken for new."""
    retention_bytes_max: int = 48 << 20
    """Kept at most, oldest dropped first."""
    reorder_buffer_bytes_max: int = 16 << 20
    """Messages that wait for an earlier one of their author; what is more is taken as not come, and asked for later."""
    authors_max: int = 20_000
    """Authors tracked; the messages of more are dropped and counted, so that nobody can exhaust us with names."""
    gap_repair_delay_s: float = 0.5
    """A gap that did not close by itself is asked for after this, from one neighbour after the other."""

    flood_bytes_max: int = 1024
    """Frames with less than this in them go to all neighbours: fastest and most robust. Larger ones,
    and so the bundles of an author under load, spread by announce and pull. 0: everything does."""
    flood_frames_per_s_max: int = 10
    """An author that says more frames than this in a second spreads all of them by announce and pull."""
    ihave_interval_s: float = 0.1
    """Names for neighbours that get the messages another way are collected for so long."""
    bundle_bytes: int = 256 << 10
    """What an author says within one turn is packed into frames of about this size."""
    bundle_linger_s: float = 0.005
    """An author that says many things turn after turn packs for so long; one that does not never waits."""

    send_window_s: float = 0.5
    """An author may have said as much more than all have, of those that keep up, as they get in this time; beyond, its
    `broadcast` waits."""
    send_window_bytes_max: int = 4 << 20
    """But at most so much,"""
    send_window_bytes_min: int = 128 << 10
    """and always so much."""
    straggler_timeout_s: float = 0.4
    """One that has been far behind those around it for so long does not count any more, so that it slows nobody."""
    stall_grace_s: float = 0.1
    """One that is far behind, and has not come nearer at all for so long, does not count either."""
    backlog_shed_bytes: int = 2 << 20
    """A neighbour that is owed so much is spared what has low priority."""
    backlog_lazy_bytes: int = 8 << 20
    """A neighbour that is owed so much, and not just for a moment, gets only names, and asks for the rest."""
    message_bytes_max: int = 64 << 20
    """The largest message, sent in parts. A larger one is neither sent nor put together."""

    repair_delay_s: float = 0.25
    """The first attempt to fill a hole comes within this time: a moment for the others to notice the loss too."""
    repair_backoff_s: float = 0.75
    """Pause after the first two attempts; after each further two twice as long."""
    repair_backoff_alert_s_max: float = 4.0
    """Longest pause while the loss of a neighbour is recent."""
    repair_backoff_s_max: float = 20.0
    """Longest pause between attempts: a hole that cannot be filled (odd degree, odd number) costs next to nothing."""
    walk_extra_steps: int = 8
    """Further steps that a walk may take when it ends at an edge that is of no use."""

    accept_channel_close: bool | None = None
    """Whether a neighbour's word that the channel is closed for all is followed. Unless told: only if messages are not
    signed, because any member may say so in anybody's name."""
    neighbor_list_delay_s: float = 0.2
    """Changes of neighbours within this time are told to the others together."""
    decluster_interval_s: float = 4.0
    """How often a peer that sits in a dense spot tries to exchange an edge there."""

    peer_cache_max: int = 128
    """Addresses of other peers kept for the case that all neighbours die."""
    peer_sample_size: int = 16
    """Addresses told to another peer at each occasion."""

    beacon_interval_s: float = 3.0
    """One peer of the fabric sends a beacon this often."""
    probe_interval_s: float = 10.0
    """How often a peer asks a cached one whether they are still of one fabric."""
    probe_interval_alert_s: float = 2.0
    """The same, while it is alarmed or has no neighbour at all."""
    alert_s: float = 60.0
    """How long a peer is alarmed after it lost a neighbour without a word."""

    def __post_init__(self) -> None:
        if not DEGREE_MIN <= self.degree <= DEGREE_MAX:
            raise ValueError(f"degree {self.degree}: a peer keeps {DEGREE_MIN} to {DEGREE_MAX} links")
        if self.authors_max >= AUTHORS_MAX:
            raise ValueError(f"authors_max {self.authors_max}: a greeting has room for fewer than {AUTHORS_MAX}")

    @property
    def author_eviction_s(self) -> float:
        """An author that was silent for so long may be forgotten, if there are too many: no copy of it is left."""
        return 2 * self.retention_s

    @property
    def beacon_timeout_s(self) -> float:
        """No beacon for so long: this part of the fabric has lost its beaconer."""
        return 3 * self.beacon_interval_s
