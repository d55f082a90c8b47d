"""What can go wrong with a command: exit codes, and errors whose text is all that a person needs."""

SUCCESS = 0
FAILURE = 1
"""On the channel: not joined, nobody there, something was lost."""
USAGE_ERROR = 2
"""Words, files or installed parts that do not fit."""
INTERRUPTED = 128
"""And the number of the signal, as shells count it: 130 for Ctrl-C."""


class UsageError(Exception):
    """A person can put it right; the text says how."""


class CommandFailed(Exception):
    """It was understood, but did not work out; the text says why."""
