"""The exceptions of meetings. Each message names the remedy."""

from broadloom.errors import BroadloomError


class ConferenceError(BroadloomError):
    """Base class of the exceptions of meetings."""


class FloorTimeoutError(ConferenceError, TimeoutError):
    """The floor was not free in time."""


class NotLeaderError(ConferenceError):
    """Only the leader may do this."""


class MeetingFullError(ConferenceError):
    """The meeting has as many entries as its members keep."""
