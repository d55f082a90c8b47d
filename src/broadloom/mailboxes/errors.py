"""What can go wrong with a mailbox. Every message names the mailbox and the remedy."""

from broadloom.errors import BroadloomError


class MailboxError(BroadloomError):
    """An operation on a mailbox failed. The subclass says why."""


class UnboundError(MailboxError):
    """No mailbox with this name and owner is bound."""


class AmbiguousMailboxError(MailboxError):
    """Several owners have a mailbox with this name."""


class NotValidError(MailboxError):
    """The mailbox is bound, but nothing was put into it yet, or its value was invalidated or has expired."""


class WrongClassError(MailboxError):
    """The class of the mailbox does not allow this operation, or there is no such class."""


class NotFetchableError(WrongClassError):
    """The class of the mailbox does not let other members read its value."""


class MailboxFullError(MailboxError):
    """There is no room for more letters, in the mailbox or in the queue to its owner."""


class RevisionMismatchError(MailboxError):
    """The value was changed since the revision that `put` was to replace."""

    def __init__(self, text: str, revision: int) -> None:
        super().__init__(text)
        self.revision = revision
        """The current revision."""


class NotKeptError(MailboxError):
    """Too few keepers have stored the value. It may still become visible later: a keeper may hold it."""

    def __init__(self, text: str, copies: int) -> None:
        super().__init__(text)
        self.copies = copies
        """How many keepers have acknowledged it."""
