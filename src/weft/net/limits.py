"""Every number that the sockets go by, with its unit and its reason."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """One peer's own business; others need not agree."""

    queue_bytes_max: int = 64 << 20
    """Waiting for one neighbour. One that lets more pile up is given up, so that it harms only itself. More than is
    retained (`Settings.retention_bytes_max`): a neighbour that was cut off for long may lack all of it."""
    congested_bytes: int = 256 << 10
    """With so much waiting for a neighbour, `broadcast` waits: the author outruns its links."""
    stall_s: float = 5.0
    """A neighbour that kept us waiting for so long, while most others did not, is not waited for any more. One that
    took nothing at all for so long is given up."""
    handshake_s: float = 5.0
    """A caller that has not shown its certificate by then is hung up on."""
    handshakes_max: int = 128
    """Callers at a time that have not shown a certificate; for one more, the one that has taken longest is hung up
    on: an honest handshake takes milliseconds."""
    calls_per_s: float = 200.0
    """Calls from one address, in the long run. Generous, because a host may hold hundreds of peers."""
    calls_burst: int = 400
    """Calls from one address that may come at once."""
    close_s: float = 3.0
    """A line that we hung up on, and whose other end does not, is broken off after this."""
    ports_tried: int = 4096
    """Ports of the channel's order that are tried to listen on."""
    backlog: int = 512
    """Calls that the kernel holds for us when we are busy."""
    admission_s: float = 5.0
    """How often the tickets of neighbours are looked at again: they expire and are revoked."""
