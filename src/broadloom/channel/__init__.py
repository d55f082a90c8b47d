"""The public API: join a channel, broadcast, receive, leave."""

from broadloom.channel.channel import Channel, ChannelEvent
from broadloom.channel.connect import PendingConnection, connect
from broadloom.channel.direct_request import DirectRequest, Reply
from broadloom.channel.inbox import Overflow
from broadloom.channel.layer import Layer
from broadloom.channel.options import ConnectOptions
from broadloom.channel.state import StateSnapshot
from broadloom.channel.status import NeighborStatus, Status
from broadloom.channel.subscription import Subscription, SubscriptionOverflow

__all__ = [
    "Channel",
    "ChannelEvent",
    "ConnectOptions",
    "DirectRequest",
    "Layer",
    "NeighborStatus",
    "Overflow",
    "PendingConnection",
    "Reply",
    "StateSnapshot",
    "Status",
    "Subscription",
    "SubscriptionOverflow",
    "connect",
]
