"""The states of a peer, in the order in which it passes through them."""

from enum import Enum


class State(Enum):
    SEEKING = "seeking"
    """Looking for the channel; no neighbour yet."""
    PARTIAL = "partially connected"
    """Has a neighbour and a starting point in the stream of messages, not yet all neighbours."""
    CONNECTED = "connected"
    """A full member; newcomers may join through it. It stays one through losses of neighbours."""
    LEAVING = "leaving"
    """Has told its neighbours and waits for what is under way."""
    LEFT = "left"
