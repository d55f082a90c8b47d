"""The root of all errors that a user of Broadloom may have to deal with."""


class BroadloomError(Exception):
    """All errors of channels, keys and tickets are of this kind; each text says what to do."""


# What can go wrong for an application, in a handful of names; each text says what to do.


__all__ = [
    "BroadloomError",
    "ConnectError",
    "InboxOverflowError",
    "MessageTooLargeError",
    "NotConnectedError",
    "NotPermittedError",
    "RejectedError",
]


class ConnectError(BroadloomError):
    """The channel was not joined in time, or this machine has no port to listen on."""


class RejectedError(ConnectError):
    """The channel is there, but its members do not let us in: wrong key, expired or revoked ticket, other mode."""


class NotConnectedError(BroadloomError):
    """The channel was left, closed for all, or not yet joined."""


class NotPermittedError(BroadloomError):
    """This ticket is for listening only."""


class MessageTooLargeError(BroadloomError):
    """A message, or a file, of more than `Settings.message_bytes_max`."""


class InboxOverflowError(BroadloomError):
    """The application did not read for so long that the channel was left, as it had chosen (`overflow="leave"`)."""


# What can go wrong for a program that uses groups; each text says what to do.


class GroupNotFoundError(BroadloomError):
    """The group is not known here, or was not joined."""


# What is wrong with a key or a file, said so that a person can act on it. No text ever holds a secret.


class InvalidKeyError(BroadloomError, ValueError):
    """A key that cannot be used."""


class InvalidKeyFileError(InvalidKeyError):
    """A file of keys or certificates that cannot be read, trusted or written; the text says what to do."""
