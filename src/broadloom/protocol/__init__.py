"""The protocol of one peer, sans-IO: discover, join, broadcast, repair, leave.

It has no sockets, no clock and no randomness of its own: everything outside is behind the interface in `runtime.py`, so
the simulator runs the same code as the TCP transport. Nothing here iterates over a set where the order matters, so a
seed determines a whole simulated history.
"""

from broadloom.protocol.channel_name import ChannelName
from broadloom.protocol.constants import Tuning
from broadloom.protocol.events import PeerState
from broadloom.protocol.peer import Peer
from broadloom.protocol.settings import ChannelSettings

__all__ = ["ChannelName", "ChannelSettings", "Peer", "PeerState", "Tuning"]
