"""Held messages for synchronous programs. Rules themselves are the same for `broadloom.sync.connect`."""

from broadloom.rules.rules import Rules
from broadloom.sync import Channel
from broadloom.sync.bridge import run


def release(rules: Rules, held_id: str, channel: Channel) -> int:
    """As `Rules.release`, for a synchronous channel."""
    return run(rules.release(held_id, channel._wrapped))
