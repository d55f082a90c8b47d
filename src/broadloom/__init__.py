"""Broadloom: shared channels without a server.

Each program that joins a channel can broadcast, and receives every message exactly once, in order per author.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0"

if TYPE_CHECKING:
    from broadloom.channel import (
        Channel,
        ChannelEvent,
        ConnectOptions,
        DirectRequest,
        Layer,
        NeighborStatus,
        Overflow,
        Reply,
        Status,
        Subscription,
        SubscriptionOverflow,
        connect,
    )
    from broadloom.channel.status_socket import expose_status
    from broadloom.errors import (
        AlreadyRepliedError,
        BroadloomError,
        BusyError,
        ConnectError,
        InboxOverflowError,
        InvalidKeyError,
        MessageTooLargeError,
        NoAnswerError,
        NotConnectedError,
        NotPermittedError,
        PeerGoneError,
        RefusedError,
        RejectedError,
        RequestError,
        UnknownPeerError,
    )
    from broadloom.protocol import ChannelName, ChannelSettings, PeerState
    from broadloom.protocol.events import (
        AuthorWarning,
        AuthorWarningReason,
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
    from broadloom.protocol.receipts.receipts import Receipt
    from broadloom.protocol.roster.member import (
        LossCause,
        Member,
        MemberJoined,
        MemberLeft,
        MemberLost,
        Merged,
        Partitioned,
    )
    from broadloom.security import Authority, Ticket, generate_key
    from broadloom.wire import PeerId
    from broadloom.wire.broadcast_frame import Priority
    from broadloom.wire.exchange_messages import RejectReason
    from broadloom.wire.file_payload import File

__all__ = [
    "AlreadyRepliedError",
    "AuthorWarning",
    "AuthorWarningReason",
    "Authority",
    "Batch",
    "BroadloomError",
    "BusyError",
    "Channel",
    "ChannelEvent",
    "ChannelName",
    "ChannelSettings",
    "ConnectError",
    "ConnectOptions",
    "DirectRequest",
    "File",
    "Identity",
    "InboxOverflowError",
    "InvalidKeyError",
    "Layer",
    "LinkDown",
    "LinkDownReason",
    "LinkUp",
    "LossCause",
    "Member",
    "MemberJoined",
    "MemberLeft",
    "MemberLost",
    "Merged",
    "Message",
    "MessageTooLargeError",
    "Missed",
    "NeighborStatus",
    "NoAnswerError",
    "NotConnectedError",
    "NotPermittedError",
    "Overflow",
    "Partitioned",
    "PeerGoneError",
    "PeerId",
    "PeerState",
    "Priority",
    "Receipt",
    "RefusedError",
    "RejectReason",
    "Rejected",
    "RejectedError",
    "Reply",
    "RequestError",
    "Role",
    "StateChanged",
    "Status",
    "Subscription",
    "SubscriptionOverflow",
    "Ticket",
    "TraceEvent",
    "UnknownPeerError",
    "__version__",
    "connect",
    "expose_status",
    "generate_key",
]

# Imported on first use: the simulator and `broadloom --help` need neither sockets nor cryptography.
_NAMES_BY_MODULE = {
    "broadloom.channel": (
        "Channel ChannelEvent ConnectOptions DirectRequest Layer NeighborStatus Overflow Reply Status Subscription "
        "SubscriptionOverflow connect"
    ),
    "broadloom.channel.status_socket": "expose_status",
    "broadloom.errors": (
        "AlreadyRepliedError BroadloomError BusyError ConnectError InboxOverflowError InvalidKeyError "
        "MessageTooLargeError NoAnswerError NotConnectedError NotPermittedError PeerGoneError RefusedError "
        "RejectedError RequestError UnknownPeerError"
    ),
    "broadloom.protocol": "ChannelName ChannelSettings PeerState",
    "broadloom.protocol.events": (
        "AuthorWarning AuthorWarningReason Batch LinkDown LinkDownReason LinkUp Message Missed Rejected StateChanged "
        "TraceEvent"
    ),
    "broadloom.protocol.identity": "Identity Role",
    "broadloom.protocol.receipts.receipts": "Receipt",
    "broadloom.protocol.roster.member": ("LossCause Member MemberJoined MemberLeft MemberLost Merged Partitioned"),
    "broadloom.security": "Authority Ticket generate_key",
    "broadloom.wire": "PeerId",
    "broadloom.wire.broadcast_frame": "Priority",
    "broadloom.wire.exchange_messages": "RejectReason",
    "broadloom.wire.file_payload": "File",
}
_MODULE_OF = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'broadloom' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
