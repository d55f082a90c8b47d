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


class RequestError(BroadloomError):
    """A direct request has no reply. The subclass says why."""


class UnknownPeerError(RequestError):
    """The address of the peer is not known: it is not a member, or has just joined."""


class PeerGoneError(RequestError):
    """The peer cannot be reached, or the connection to it was lost."""

    def __init__(self, text: str, *, sent: bool) -> None:
        super().__init__(text)
        self.sent = sent
        """Whether the request was sent. If so, its handler may have run; if not, it has not."""


class NoAnswerError(RequestError):
    """There was no reply within `timeout_s`."""

    def __init__(self, text: str, *, sent: bool) -> None:
        super().__init__(text)
        self.sent = sent
        """As in `PeerGoneError`."""


class RefusedError(RequestError):
    """The peer answered, but not with a reply. A handler raises it to refuse a request, with a text for the caller."""

    def __init__(self, text: str = "", status: str = "refused") -> None:
        super().__init__(text)
        self.status = status
        """`no_handler`, `refused`, `failed`, `busy`, `too_large`, `not_allowed`, `expired` or `leaving`."""


class BusyError(RequestError):
    """Too many requests of this program wait to be sent."""


class AlreadyRepliedError(BroadloomError):
    """A handler replied to one request twice."""


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
