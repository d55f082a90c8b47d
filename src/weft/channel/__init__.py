"""The public face: join a channel, broadcast, receive, leave."""

from weft.channel.channel import Channel, ChannelEvent
from weft.channel.connect import CONNECT_S, Connecting, connect
from weft.channel.errors import (
    CannotConnect,
    FellBehind,
    NotAdmitted,
    NotAllowed,
    NotConnected,
    TooLarge,
    WeftError,
)
from weft.channel.inbox import Behind
from weft.channel.status import Neighbour, Status

__all__ = [
    "CONNECT_S",
    "Behind",
    "CannotConnect",
    "Channel",
    "ChannelEvent",
    "Connecting",
    "FellBehind",
    "Neighbour",
    "NotAdmitted",
    "NotAllowed",
    "NotConnected",
    "Status",
    "TooLarge",
    "WeftError",
    "connect",
]
