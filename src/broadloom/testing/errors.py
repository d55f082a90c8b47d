"""Exceptions of the test tools."""

from broadloom.errors import BroadloomError


class ConfigError(BroadloomError, ValueError):
    """A configuration value is out of range. The message names the value and the allowed range."""


class ClusterError(BroadloomError):
    """An operation on a local cluster failed or timed out."""


class PeerNotFoundError(BroadloomError):
    """The cluster has no such peer, or no longer has it."""


class WorkerTimeoutError(BroadloomError):
    """A condition was not met in time. The message names what is still missing."""
