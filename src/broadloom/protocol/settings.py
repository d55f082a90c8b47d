"""`ChannelSettings`: the settings of a channel that users may change, with a profile for each kind of network.

Everything else is an internal constant (`constants.py`).
"""

from dataclasses import dataclass
from typing import Self

from broadloom.protocol.channel_name import PORTS

DEGREE_MIN = 3
DEGREE_MAX = 32
_BYTES_MAX = 1 << 40
_RANGES: dict[str, tuple[float, float]] = {
    "degree": (DEGREE_MIN, DEGREE_MAX),
    "discovery_ports": (1, PORTS),
    "heartbeat_s": (0.01, 3600.0),
    "heartbeat_timeout_s": (0.02, 1e9),
    "exchange_timeout_s": (0.01, 3600.0),
    "retention_s": (0.1, 86400.0),
    "retention_bytes_max": (0, _BYTES_MAX),
    "message_bytes_max": (1, _BYTES_MAX),
    "flood_bytes_max": (0, _BYTES_MAX),
    "send_queue_bytes_max": (64 << 10, _BYTES_MAX),
    "socket_buffer_bytes": (4 << 10, 1 << 30),
}


def check_ranges(settings: object, ranges: dict[str, tuple[float, float]]) -> None:
    """Raise an error if one of these attributes is not a number in its range. Two whole numbers require a third."""
    for name, (least, most) in ranges.items():
        value = getattr(settings, name)
        whole = isinstance(least, int)
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            raise TypeError(f"{name} must be {'a whole number' if whole else 'a number'}, not {value!r}")
        if not least <= value <= most:
            raise ValueError(f"{name} must be between {least:,} and {most:,}, not {value:,}")


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """Settings of one peer. The defaults suit a local network.

    All peers of a channel should use the same `degree`, `retention_s` and `message_bytes_max`; the other settings may
    differ from peer to peer.
    """

    degree: int = 4
    """Number of neighbors. Raise it to survive more simultaneous crashes, or for fewer hops in a channel with hundreds
    of members, at the price of more traffic."""
    discovery_ports: int = 16
    """Ports to search on each bootstrap host. Raise it if a host runs many other peers or channels."""
    heartbeat_s: float = 2.0
    """Maximum silence on a link before a heartbeat is sent. Raise it where idle traffic is expensive."""
    heartbeat_timeout_s: float = 7.0
    """A silent neighbor is considered dead after this time. Raise it where connections stall but recover."""
    exchange_timeout_s: float = 4.0
    """Time limit for one request and its response. Raise it where round trips take longer than two seconds; the other
    time limits of joining grow in proportion."""
    retention_s: float = 120.0
    """How long messages are kept for gap repair. Raise it if partitions last longer."""
    retention_bytes_max: int = 48 << 20
    """Memory for retained messages; the oldest are dropped first. Raise it for high data rates, lower it for small
    machines."""
    message_bytes_max: int = 64 << 20
    """The largest message that is sent or reassembled. Lower it to save memory, raise it for larger files."""
    flood_bytes_max: int = 1024
    """Frames smaller than this are flooded to all neighbors, larger ones use the broadcast tree. Lower it to save
    bandwidth, raise it for lower latency; 0 disables flooding."""
    accept_channel_close: bool | None = None
    """Whether another member may close the channel for everyone. `None`: only on channels without signed messages. Set
    it to `False` if you do not trust every member."""
    send_queue_bytes_max: int = 16 << 20
    """A neighbor whose send queue grows beyond this is dropped. Lower it to save memory."""
    socket_buffer_bytes: int = 512 << 10
    """TCP receive window per connection. Raise it for fast long-distance links: a gigabit over 100 ms needs 12 MiB."""

    def __post_init__(self) -> None:
        check_ranges(self, _RANGES)
        if self.accept_channel_close not in (None, True, False):
            raise TypeError(f"accept_channel_close must be True, False or None, not {self.accept_channel_close!r}")
        if self.heartbeat_timeout_s < 2 * self.heartbeat_s:
            raise ValueError(
                f"heartbeat_timeout_s must be at least twice heartbeat_s ({self.heartbeat_s:g}), or idle neighbors are "
                f"taken for dead; not {self.heartbeat_timeout_s:g}"
            )

    @classmethod
    def lan(cls) -> Self:
        """One data center or local network: the defaults."""
        return cls()

    @classmethod
    def wan(cls) -> Self:
        """Peers on several continents: longer timeouts, larger socket buffers, less redundant traffic."""
        return cls(
            heartbeat_s=5.0,
            heartbeat_timeout_s=20.0,
            exchange_timeout_s=10.0,
            retention_s=300.0,
            flood_bytes_max=256,
            socket_buffer_bytes=8 << 20,
        )

    @classmethod
    def many_small(cls) -> Self:
        """Hundreds of quiet peers per host: little memory for each, and more ports to search."""
        return cls(
            discovery_ports=64,
            heartbeat_s=5.0,
            heartbeat_timeout_s=20.0,
            exchange_timeout_s=8.0,
            retention_bytes_max=4 << 20,
            message_bytes_max=4 << 20,
            flood_bytes_max=256,
            send_queue_bytes_max=2 << 20,
            socket_buffer_bytes=128 << 10,
        )
