"""What one peer does: seek, join, broadcast, repair, leave.

No sockets, no clock, no randomness of its own: everything here meets the outside through the small interface in
`world.py`, so the code that runs on sockets is the code that the simulator runs through thousands of histories.
Nothing here iterates over a set where the order shows.
"""

from broadloom.protocol.channel_name import ChannelName
from broadloom.protocol.constants import Tuning
from broadloom.protocol.events import PeerState
from broadloom.protocol.peer import Peer
from broadloom.protocol.settings import ChannelSettings

__all__ = ["ChannelName", "ChannelSettings", "Peer", "PeerState", "Tuning"]
