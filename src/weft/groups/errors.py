"""What can go wrong for a program that uses groups; each text says what to do."""

from weft.errors import WeftError


class NoSuchGroup(WeftError):
    """The group is not known here, or was not joined."""
