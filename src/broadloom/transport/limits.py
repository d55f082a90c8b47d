"""`Limits`: the internal constants of the sockets, each with its unit and its reason.

Not public: applications use `ChannelSettings`. Tests override limits by passing a `TcpTuning` as settings.
"""

from dataclasses import dataclass

from broadloom.protocol.constants import Tuning


@dataclass(frozen=True, slots=True)
class Limits:
    high_water_bytes: int = 256 << 10
    """A connection with a longer send queue is congested: messages go to the send backlog, and `broadcast` waits."""
    notsent_lowat_bytes: int = 64 << 10
    """Unsent bytes per connection in the kernel. The rest waits in the process, where priorities still apply."""
    slow_peer_budget_s: float = 0.25
    """How long one slow neighbor may delay `broadcast`; after that `broadcast` no longer waits for it."""
    slow_peer_refill_ratio: float = 0.05
    """Share of the elapsed time that is credited to a used-up budget."""
    stall_grace_s: float = 0.1
    """`broadcast` does not wait for a congested neighbor that has read nothing for this long, whatever its budget."""
    stall_timeout_s: float = 5.0
    """A congested neighbor that has read nothing for this long is dropped."""
    handshake_timeout_s: float = 5.0
    """Time limit for the TLS handshake of an incoming connection."""
    pending_handshakes_max: int = 128
    """Unauthenticated connections at a time. The oldest makes room for one more: an honest handshake takes
    milliseconds."""
    connections_per_s: float = 200.0
    """Sustained rate of connections from one address. Generous, because one host may run hundreds of peers."""
    connections_burst: int = 400
    """Connections from one address that may arrive at once."""
    close_timeout_s: float = 3.0
    """A closing connection is aborted if the other end has not closed it by then."""
    listen_ports_max: int = 4096
    """Ports to try to listen on, in the channel's port order."""
    listen_backlog: int = 512
    """Connections that the kernel queues while the process is busy."""
    listen_retry_s: float = 1.0
    """How often a peer that searches do not find tries to get one of the ports where they look."""
    bootstrap_check_s: float = 5.0
    """How often the file with bootstrap hosts is read again."""
    credential_check_s: float = 5.0
    """How often the tickets of neighbors are checked again: they expire and are revoked."""


@dataclass(frozen=True, slots=True)
class TcpTuning(Tuning):
    """Overrides limits of the sockets too."""

    limits: Limits = Limits()
