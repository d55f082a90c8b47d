"""`PeerCounters`: what one peer has counted since it started, for its status and for tests."""

from dataclasses import dataclass


@dataclass(slots=True)
class PeerCounters:
    sent: int = 0
    """Messages of this peer."""
    delivered: int = 0
    """Messages delivered to the application."""
    duplicates: int = 0
    """Messages received more than once."""
    expired_copies: int = 0
    """Frames older than `retention_s`, ignored."""
    authors_rejected: int = 0
    """Messages and credentials of authors beyond `authors_max`."""
    reorder_buffer_full: int = 0
    """Frames dropped because the reorder buffer was full; they are requested again."""
    claims_rejected: int = 0
    """Implausible sequence numbers that a neighbor claimed to exist."""
    claims_unproven: int = 0
    """Claims of neighbors, on a signed channel, that messages exist which nobody could send or prove."""
    false_positions: int = 0
    """Starting positions, on a signed channel, that turned out to be false."""
    stale_messages: int = 0
    """First messages of an author whose signed time is long ago: replayed, or its clock is wrong."""
    equivocations: int = 0
    """Frames of authors, on a signed channel, that contradict another frame of theirs."""
    missed: int = 0
    """Messages reported as `Missed`."""
    ttl_expired: int = 0
    """Missed messages that arrived after their TTL."""
    malformed_frames: int = 0
    """Frames that could not be decoded."""
    malformed_headers: int = 0
    """Messages dropped because their headers could not be decoded."""
    unknown_messages: int = 0
    """Frames with an unknown message number."""
    foreign_connections: int = 0
    """Incoming connections with another protocol, version or channel."""
    exchanges_rejected: int = 0
    """Incoming exchanges closed because there were too many, or after leaving."""
    peer_id_mismatches: int = 0
    """Incoming connections of peers that claimed the id of another."""
    bad_signatures: int = 0
    """Messages with an invalid signature."""
    role_violations: int = 0
    """Messages of authors without permission to send."""
    bad_credentials: int = 0
    """Invalid credentials of authors."""
    revoked_links: int = 0
    """Links to members whose ticket was revoked, closed."""
    owner_forgeries: int = 0
    """Cards and revocation lists that the owner has not signed."""
    owner_rollbacks: int = 0
    """Cards and revocation lists with a lower number than the one in force, refused."""
    owner_conflicts: int = 0
    """Cards and revocation lists with the number of the one in force and other contents."""
    owner_undelivered: int = 0
    """Cards and revocation lists that a neighbor announced and did not deliver."""
    quota_held: int = 0
    """Frames held back because their author was ahead of its quota."""
    quota_cuts: int = 0
    """Members cut off because they were far ahead of their quota."""
    quota_refused_requests: int = 0
    """Direct requests beyond the quota of the caller, refused."""
    roster_records_dropped: int = 0
    """Records of members beyond a limit, or without a valid credential."""
    backlog_shed: int = 0
    """Low-priority messages skipped for a neighbor with a long backlog."""
    links_switched_to_lazy: int = 0
    """Times a neighbor was so far behind that its link became lazy."""
    slow_neighbors_dropped: int = 0
    """Neighbors dropped because they did not read what they were sent."""
    requests_sent: int = 0
    """Direct requests and one-way messages of this peer."""
    requests_received: int = 0
    """Direct requests and one-way messages of other peers."""
    late_replies: int = 0
    """Replies to requests that had been given up."""
    tells_dropped: int = 0
    """One-way messages without a handler, or that arrived too fast."""
