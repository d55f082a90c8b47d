"""Every number that the sockets go by, with its unit and its reason."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """One peer's own business; others need not agree."""

    send_queue_bytes_max: int = 16 << 20
    """Waiting in one line. Messages are kept back long before; a neighbour that asks for so much else is given up."""
    high_water_bytes: int = 256 << 10
    """With so much waiting in a line it is full: messages are kept back until there is room, and `broadcast` waits."""
    notsent_lowat_bytes: int = 64 << 10
    """Of one line, in the kernel and not under way: what is more waits with us, where it can still be chosen."""
    socket_buffer_bytes: int = 512 << 10
    """Of one line, received by the kernel and not yet read. On links that are long and fast (a gigabit over 100 ms),
    more would carry more."""
    slow_peer_budget_s: float = 0.25
    """So long may one neighbour that is behind hold up our own `broadcast`; then it is not waited for."""
    slow_peer_refill_ratio: float = 0.05
    """This share of the time that passes is given back to a neighbour that is not waited for."""
    stall_grace_s: float = 0.1
    """One that is behind and has taken nothing at all for so long is not waited for, whatever patience is left."""
    stall_timeout_s: float = 5.0
    """A neighbour that is behind and takes nothing at all for so long is given up."""
    handshake_timeout_s: float = 5.0
    """A caller that has not shown its certificate by then is hung up on."""
    pending_handshakes_max: int = 128
    """Callers at a time that have not shown a certificate; for one more, the one that has taken longest is hung up
    on: an honest handshake takes milliseconds."""
    connections_per_s: float = 200.0
    """Calls from one address, in the long run. Generous, because a host may hold hundreds of peers."""
    connections_burst: int = 400
    """Calls from one address that may come at once."""
    close_timeout_s: float = 3.0
    """A line that we hung up on, and whose other end does not, is broken off after this."""
    listen_ports_max: int = 4096
    """Ports of the channel's order that are tried to listen on."""
    listen_backlog: int = 512
    """Calls that the kernel holds for us when we are busy."""
    credential_check_s: float = 5.0
    """How often the tickets of neighbours are looked at again: they expire and are revoked."""
