"""The root of all errors that a user of Weft may have to deal with."""


class WeftError(Exception):
    """All errors of channels, keys and tickets are of this kind; each text says what to do."""
