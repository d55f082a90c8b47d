"""The exceptions of channels, keys, layers and stores. Each message names the remedy; none contains a secret."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from pathlib import Path

    from broadloom.wire import PeerId


class BroadloomError(Exception):
    """Base class of all exceptions that Broadloom raises for conditions outside the program."""


class ConnectError(BroadloomError):
    """The channel was not joined in time, or there is no port to listen on."""


class RejectedError(ConnectError):
    """The members of the channel reject this peer: wrong key, expired or revoked ticket, or other security mode."""


class NotConnectedError(BroadloomError):
    """The channel was left, was closed for everyone, or is not joined yet."""


class ChannelClosedError(RejectedError, NotConnectedError):
    """The owner has closed the channel."""


class AccessLostError(RejectedError, NotConnectedError):
    """This program is no longer a member: its ticket was revoked or has expired, or its settings differ from those on
    the channel's card."""


class NotPermittedError(BroadloomError):
    """The role on the ticket, or the settings of the channel, do not allow this."""


class MessageTooLargeError(BroadloomError):
    """A message or file is larger than `ChannelSettings.message_bytes_max`."""


class QuotaExceededError(BroadloomError):
    """A message that cannot wait would exceed the quota on the channel's card."""


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

    def __init__(self, text: str = "", status: str = "refused", reason: str | None = None) -> None:
        super().__init__(text)
        self.status = status
        """`no_handler`, `refused`, `failed`, `busy`, `too_large`, `not_allowed`, `expired` or `leaving`."""
        self.reason = text if reason is None else reason
        """What the handler said, without the name of the peer."""


class BusyError(RequestError):
    """Too many requests of this program wait to be sent, or its quota does not allow this one in time."""


class AlreadyRepliedError(BroadloomError):
    """A handler replied to one request twice."""


class NotSentError(BroadloomError):
    """A rule refused a message, or could not be carried out: nothing was sent."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(f"{rule}: {reason}; the message was not sent")
        self.rule = rule
        """The rule, with its name or its line."""
        self.reason = reason


class HeldError(NotSentError):
    """A rule holds a message until it is released (`broadloom rules held`)."""

    def __init__(self, rule: str, reason: str, held_id: str) -> None:
        super().__init__(rule, f"held as {held_id}" + (f" ({reason})" if reason else ""))
        self.held_id = held_id


class RulesError(BroadloomError, ValueError):
    """Rules cannot be used. The text has the line and the column of each mistake."""


class StateUnavailableError(BroadloomError):
    """No member has served the state (`channel.fetch_state`)."""

    def __init__(self, text: str, reasons: "Mapping[PeerId, str] | None" = None) -> None:
        super().__init__(text)
        self.reasons = reasons or {}
        """Why each member that was asked did not serve. Empty if no member offers the state."""


class OrderTimeoutError(BroadloomError):
    """A submission was not ordered within `timeout_s`. It may still be."""


class NoMajorityError(OrderTimeoutError):
    """A submission in mode `safe` was not ordered in time, and no majority of the voters is connected (at the first
    start: not all of them). The outcome is unknown; submitting it again with the same key is safe."""


class InboxOverflowError(BroadloomError):
    """The channel was left because the program did not read in time (`overflow="leave"`), or an ordered conversation
    was closed for this reason."""


class InvalidKeyError(BroadloomError, ValueError):
    """A key cannot be used."""


class InvalidKeyFileError(InvalidKeyError):
    """A file with keys or certificates cannot be read, trusted or written."""


class GroupNotFoundError(BroadloomError):
    """The group is unknown, or was not joined."""


class AmbiguousGroupError(GroupNotFoundError):
    """A name matches several groups."""


class StoreError(BroadloomError):
    """A store on disk cannot be opened, read or written. Subclasses tell the common reasons apart."""

    summary: ClassVar = "cannot be used"
    remedy: ClassVar = "Use another file."

    def __init__(self, path: "Path", detail: str, remedy: str = "") -> None:
        super().__init__(f"{path} {self.summary}: {detail}. {remedy or self.remedy}")
        self.path = path


class StoreLockedError(StoreError):
    summary = "is locked"
    remedy = "Close that program, or use another file."


class StoreReadOnlyError(StoreError):
    summary = "is read-only"
    remedy = "Make the file and its directory writable, or use another file."


class StoreFullError(StoreError):
    summary = "cannot grow"
    remedy = "Check the free disk space and the limit on file sizes, then start again."


class StoreCorruptError(StoreError):
    summary = "is damaged"
    remedy = "Restore a backup, or use a new file."


class StoreVersionError(StoreError):
    summary = "was written by another version of Broadloom"
    remedy = "Use that version, or another file."


class NotAStoreError(StoreError):
    summary = "is not a Broadloom store that can be used here"
