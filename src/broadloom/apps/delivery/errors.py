"""The exceptions of the delivery service. Each message names the remedy."""

from broadloom.errors import BroadloomError


class DeliveryError(BroadloomError):
    """Base class of the exceptions of the delivery service."""


class NoDeskError(DeliveryError):
    """No desk of the service could be reached in time."""


class DeniedError(DeliveryError):
    """A desk has refused what was asked. The text says why."""


class NoTopicError(DeliveryError):
    """No topic of the directory has this path, or matches this pattern."""
