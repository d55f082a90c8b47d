"""What is wrong with a key or a file, said so that a person can act on it. No text ever holds a secret."""

from weft.errors import WeftError


class BadKey(WeftError, ValueError):
    """A key that cannot be used."""


class BadKeyFile(BadKey):
    """A file of keys or certificates that cannot be read, trusted or written; the text says what to do."""
