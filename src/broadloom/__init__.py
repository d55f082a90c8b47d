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
        StateSnapshot,
        Status,
        Subscription,
        SubscriptionOverflow,
        connect,
    )
    from broadloom.channel.status_socket import expose_status
    from broadloom.errors import (
        AccessLostError,
        AlreadyRepliedError,
        BroadloomError,
        BusyError,
        ChannelClosedError,
        ConnectError,
        HeldError,
        InboxOverflowError,
        InvalidKeyError,
        MessageTooLargeError,
        NoAnswerError,
        NoMajorityError,
        NotAStoreError,
        NotConnectedError,
        NotPermittedError,
        NotSentError,
        OrderTimeoutError,
        PeerGoneError,
        QuotaExceededError,
        RefusedError,
        RejectedError,
        RequestError,
        RulesError,
        StateUnavailableError,
        StoreCorruptError,
        StoreError,
        StoreFullError,
        StoreLockedError,
        StoreReadOnlyError,
        StoreVersionError,
        UnknownPeerError,
    )
    from broadloom.order import Order, ordered
    from broadloom.protocol import ChannelName, ChannelSettings, PeerState
    from broadloom.protocol.events import (
        AuthorWarning,
        AuthorWarningReason,
        Batch,
        CardChanged,
        ChannelClosed,
        LinkDown,
        LinkDownReason,
        LinkUp,
        Message,
        Missed,
        QuotaExceeded,
        Rejected,
        Revoked,
        StateChanged,
        TraceEvent,
    )
    from broadloom.protocol.identity import Identity, Role
    from broadloom.protocol.owner.card import CardState, ChannelCard, Quota, SecurityLevel
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
    from broadloom.security import Authority, RevocationList, SignedCard, Ticket, generate_key
    from broadloom.wire import PeerId
    from broadloom.wire.broadcast_frame import Priority
    from broadloom.wire.exchange_messages import RejectReason
    from broadloom.wire.file_payload import File

__all__ = [
    "AccessLostError",
    "AlreadyRepliedError",
    "AuthorWarning",
    "AuthorWarningReason",
    "Authority",
    "Batch",
    "BroadloomError",
    "BusyError",
    "CardChanged",
    "CardState",
    "Channel",
    "ChannelCard",
    "ChannelClosed",
    "ChannelClosedError",
    "ChannelEvent",
    "ChannelName",
    "ChannelSettings",
    "ConnectError",
    "ConnectOptions",
    "DirectRequest",
    "File",
    "HeldError",
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
    "NoMajorityError",
    "NotAStoreError",
    "NotConnectedError",
    "NotPermittedError",
    "NotSentError",
    "Order",
    "OrderTimeoutError",
    "Overflow",
    "Partitioned",
    "PeerGoneError",
    "PeerId",
    "PeerState",
    "Priority",
    "Quota",
    "QuotaExceeded",
    "QuotaExceededError",
    "Receipt",
    "RefusedError",
    "RejectReason",
    "Rejected",
    "RejectedError",
    "Reply",
    "RequestError",
    "RevocationList",
    "Revoked",
    "Role",
    "RulesError",
    "SecurityLevel",
    "SignedCard",
    "StateChanged",
    "StateSnapshot",
    "StateUnavailableError",
    "Status",
    "StoreCorruptError",
    "StoreError",
    "StoreFullError",
    "StoreLockedError",
    "StoreReadOnlyError",
    "StoreVersionError",
    "Subscription",
    "SubscriptionOverflow",
    "Ticket",
    "TraceEvent",
    "UnknownPeerError",
    "__version__",
    "connect",
    "expose_status",
    "generate_key",
    "ordered",
]

# Imported on first use: the simulator and `broadloom --help` need neither sockets nor cryptography.
_NAMES_BY_MODULE = {
    "broadloom.channel": (
        "Channel ChannelEvent ConnectOptions DirectRequest Layer NeighborStatus Overflow Reply StateSnapshot Status "
        "Subscription SubscriptionOverflow connect"
    ),
    "broadloom.channel.status_socket": "expose_status",
    "broadloom.errors": (
        "AccessLostError AlreadyRepliedError BroadloomError BusyError ChannelClosedError ConnectError HeldError "
        "InboxOverflowError InvalidKeyError MessageTooLargeError NoAnswerError NoMajorityError NotAStoreError "
        "NotConnectedError NotPermittedError NotSentError OrderTimeoutError PeerGoneError QuotaExceededError "
        "RefusedError RejectedError RequestError RulesError StateUnavailableError StoreCorruptError StoreError "
        "StoreFullError StoreLockedError StoreReadOnlyError StoreVersionError UnknownPeerError"
    ),
    "broadloom.order": "Order ordered",
    "broadloom.protocol": "ChannelName ChannelSettings PeerState",
    "broadloom.protocol.events": (
        "AuthorWarning AuthorWarningReason Batch CardChanged ChannelClosed LinkDown LinkDownReason LinkUp Message "
        "Missed QuotaExceeded Rejected Revoked StateChanged TraceEvent"
    ),
    "broadloom.protocol.identity": "Identity Role",
    "broadloom.protocol.owner.card": "CardState ChannelCard Quota SecurityLevel",
    "broadloom.protocol.receipts.receipts": "Receipt",
    "broadloom.protocol.roster.member": ("LossCause Member MemberJoined MemberLeft MemberLost Merged Partitioned"),
    "broadloom.security": "Authority RevocationList SignedCard Ticket generate_key",
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
