"""Channels for synchronous programs: games and tools that own their main loop.

import broadloom.sync

with broadloom.sync.connect("chess/club-42") as channel:
    channel.broadcast(b"e4")
    for message in channel:
        print(message.text)
"""

from broadloom.sync.channel import Channel, Layer, Subscription, connect

__all__ = ["Channel", "Layer", "Subscription", "connect"]
