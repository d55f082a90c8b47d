"""Broadloom: any number of programs share one channel, with no server.

Each program that joins can broadcast, and each gets every message, once, in order.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0"

if TYPE_CHECKING:
    from broadloom.channel import (
        Channel,
        ConnectError,
        InboxOverflowError,
        MessageTooLargeError,
        NeighborStatus,
        NotConnectedError,
        NotPermittedError,
        Overflow,
        RejectedError,
        Status,
        connect,
    )
    from broadloom.channel.status_socket import expose_status
    from broadloom.errors import BroadloomError
    from broadloom.protocol import ChannelName, ChannelSettings, PeerState
    from broadloom.protocol.events import (
        Batch,
        LinkDown,
        LinkDownReason,
        LinkUp,
        Message,
        Missed,
        Rejected,
        StateChanged,
        TraceEvent,
    )
    from broadloom.protocol.identity import Identity, Role
    from broadloom.security import Authority, InvalidKeyError, Ticket, generate_key
    from broadloom.transport import Limits
    from broadloom.wire.broadcast_frame import Priority
    from broadloom.wire.exchange_messages import RejectReason
    from broadloom.wire.file_payload import File

__all__ = [
    "Authority",
    "Batch",
    "BroadloomError",
    "Channel",
    "ChannelName",
    "ChannelSettings",
    "ConnectError",
    "File",
    "Identity",
    "InboxOverflowError",
    "InvalidKeyError",
    "Limits",
    "LinkDown",
    "LinkDownReason",
    "LinkUp",
    "Message",
    "MessageTooLargeError",
    "Missed",
    "NeighborStatus",
    "NotConnectedError",
    "NotPermittedError",
    "Overflow",
    "PeerState",
    "Priority",
    "RejectReason",
    "Rejected",
    "RejectedError",
    "Role",
    "StateChanged",
    "Status",
    "Ticket",
    "TraceEvent",
    "__version__",
    "connect",
    "expose_status",
    "generate_key",
]

# Where each name comes from. Imported at first use: the simulator and `broadloom --help` need no sockets and no keys.
_HOMES = {
    "broadloom.channel": (
        "Channel ConnectError InboxOverflowError MessageTooLargeError NeighborStatus NotConnectedError "
        "NotPermittedError Overflow RejectedError Status connect"
    ),
    "broadloom.channel.status_socket": "expose_status",
    "broadloom.errors": "BroadloomError",
    "broadloom.protocol": "ChannelName ChannelSettings PeerState",
    "broadloom.protocol.events": (
        "Batch LinkDown LinkDownReason LinkUp Message Missed Rejected StateChanged TraceEvent"
    ),
    "broadloom.protocol.identity": "Identity Role",
    "broadloom.transport": "Limits",
    "broadloom.security": "Authority InvalidKeyError Ticket generate_key",
    "broadloom.wire.broadcast_frame": "Priority",
    "broadloom.wire.exchange_messages": "RejectReason",
    "broadloom.wire.file_payload": "File",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'broadloom' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
