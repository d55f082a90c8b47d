"""What can be wrong with bytes from outside."""


class WireError(ValueError):
    """The bytes are not a message of this protocol; the connection they came over is of no use any more."""


class UnknownMessage(WireError):
    """A message type of a later version. Its length is known, so a link may step over it."""
