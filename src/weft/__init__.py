"""Weft: any number of programs share one channel, with no server.

Each program that joins can broadcast, and each gets every message, once, in order.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
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
        connect,
    )
    from weft.errors import WeftError
    from weft.fabric import ChannelName, Settings, State
    from weft.fabric.events import Barred, Batch, LinkDown, LinkUp, Message, Missed, Note, StateChanged, Why
    from weft.fabric.seal import Identity, Role
    from weft.net import Limits
    from weft.security import Authority, BadKey, Ticket, new_key
    from weft.wire.broadcast import Priority
    from weft.wire.calls import Refusal
    from weft.wire.files import File

__all__ = [
    "Authority",
    "BadKey",
    "Barred",
    "Batch",
    "Behind",
    "CannotConnect",
    "Channel",
    "ChannelName",
    "FellBehind",
    "File",
    "Identity",
    "Limits",
    "LinkDown",
    "LinkUp",
    "Message",
    "Missed",
    "Neighbour",
    "NotAdmitted",
    "NotAllowed",
    "NotConnected",
    "Note",
    "Priority",
    "Refusal",
    "Role",
    "Settings",
    "State",
    "StateChanged",
    "Status",
    "Ticket",
    "TooLarge",
    "WeftError",
    "Why",
    "__version__",
    "connect",
    "new_key",
]

# Where each name comes from. Imported at first use: the simulator and `weft --help` need no sockets and no keys.
_HOMES = {
    "weft.channel": (
        "Behind CannotConnect Channel FellBehind Neighbour NotAdmitted NotAllowed NotConnected Status TooLarge connect"
    ),
    "weft.errors": "WeftError",
    "weft.fabric": "ChannelName Settings State",
    "weft.fabric.events": "Barred Batch LinkDown LinkUp Message Missed Note StateChanged Why",
    "weft.fabric.seal": "Identity Role",
    "weft.net": "Limits",
    "weft.security": "Authority BadKey Ticket new_key",
    "weft.wire.broadcast": "Priority",
    "weft.wire.calls": "Refusal",
    "weft.wire.files": "File",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
