"""The exceptions of channels, keys and groups. Each message names the remedy; none contains a secret."""


class BroadloomError(Exception):
    """Base class of all exceptions that Broadloom raises for conditions outside the program."""


class ConnectError(BroadloomError):
    """The channel was not joined in time, or there is no port to listen on."""


class RejectedError(ConnectError):
    """The members of the channel reject this peer: wrong key, expired or revoked ticket, or other security mode."""


class NotConnectedError(BroadloomError):
    """The channel was left, was closed for everyone, or is not joined yet."""


class NotPermittedError(BroadloomError):
    """The role on the ticket, or the settings of the channel, do not allow this."""


class MessageTooLargeError(BroadloomError):
    """A message or file is larger than `ChannelSettings.message_bytes_max`."""


class InboxOverflowError(BroadloomError):
    """The channel was left because the program did not read in time (`overflow="leave"`)."""


class InvalidKeyError(BroadloomError, ValueError):
    """A key cannot be used."""


class InvalidKeyFileError(InvalidKeyError):
    """A file with keys or certificates cannot be read, trusted or written."""


class GroupNotFoundError(BroadloomError):
    """The group is unknown, or was not joined."""


class AmbiguousGroupError(GroupNotFoundError):
    """A name matches several groups."""
