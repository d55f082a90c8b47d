"""What one peer does: seek, join, broadcast, repair, leave.

No sockets, no clock, no randomness of its own: everything here meets the outside through the small interface in
`world.py`, so the code that runs on sockets is the code that the simulator runs through thousands of histories.
Nothing here iterates over a set where the order shows.
"""

from weft.fabric.channel_id import ChannelName
from weft.fabric.peer import Peer
from weft.fabric.settings import Settings
from weft.fabric.state import State

__all__ = ["ChannelName", "Peer", "Settings", "State"]
