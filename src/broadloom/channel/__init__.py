"""The public face: join a channel, broadcast, receive, leave."""

from broadloom.channel.channel import Channel, ChannelEvent
from broadloom.channel.connect import CONNECT_TIMEOUT_S, PendingConnection, connect
from broadloom.channel.inbox import Overflow
from broadloom.channel.status import NeighborStatus, Status
from broadloom.errors import (
    BroadloomError,
    ConnectError,
    InboxOverflowError,
    MessageTooLargeError,
    NotConnectedError,
    NotPermittedError,
    RejectedError,
)

__all__ = [
    "CONNECT_TIMEOUT_S",
    "BroadloomError",
    "Channel",
    "ChannelEvent",
    "ConnectError",
    "InboxOverflowError",
    "MessageTooLargeError",
    "NeighborStatus",
    "NotConnectedError",
    "NotPermittedError",
    "Overflow",
    "PendingConnection",
    "RejectedError",
    "Status",
    "connect",
]
