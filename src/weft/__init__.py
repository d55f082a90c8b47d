"""Weft: any number of programs share one channel, with no server.

Each program that joins can broadcast, and each gets every message, once, in order.
"""

__version__ = "0.1.0"

from weft.channel import (
    Behind,
    CannotConnect,
    Channel,
    FellBehind,
    Neighbour,
    NotAdmitted,
    NotAllowed,
    NotConnected,
    Status,
    TooLarge,
    WeftError,
    connect,
)
from weft.fabric import Settings, State
from weft.fabric.events import Barred, LinkDown, LinkUp, Message, Missed, StateChanged
from weft.net import Limits

__all__ = [
    "Barred",
    "Behind",
    "CannotConnect",
    "Channel",
    "FellBehind",
    "Limits",
    "LinkDown",
    "LinkUp",
    "Message",
    "Missed",
    "Neighbour",
    "NotAdmitted",
    "NotAllowed",
    "NotConnected",
    "Settings",
    "State",
    "StateChanged",
    "Status",
    "TooLarge",
    "WeftError",
    "__version__",
    "connect",
]
