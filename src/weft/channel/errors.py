"""What can go wrong for an application, in a handful of names; each text says what to do."""

from weft.errors import WeftError

__all__ = [
    "CannotConnect",
    "FellBehind",
    "NotAdmitted",
    "NotAllowed",
    "NotConnected",
    "TooLarge",
    "WeftError",
]


class CannotConnect(WeftError):
    """The channel was not joined in time, or this machine has no port to listen on."""


class NotAdmitted(CannotConnect):
    """The channel is there, but its members do not let us in: wrong key, expired or revoked ticket, other mode."""


class NotConnected(WeftError):
    """The channel was left, closed for all, or not yet joined."""


class NotAllowed(WeftError):
    """This ticket is for listening only."""


class TooLarge(WeftError):
    """A message, or a file, of more than `Settings.message_bytes_max`."""


class FellBehind(WeftError):
    """The application did not read for so long that the channel was left, as it had chosen (`behind="leave"`)."""
