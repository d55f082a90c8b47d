"""One of the two worlds of a peer: asyncio TCP and TLS, and the real clock. (The other one is `sim`.)

`node.py` is the world; `line.py` one connection, with `tls.py` inside it; `doorman.py` decides who may call.
"""

from weft.net.addresses import own_host, parse_address
from weft.net.limits import Limits
from weft.net.node import CannotListen, Node, Refusals

__all__ = ["CannotListen", "Limits", "Node", "Refusals", "own_host", "parse_address"]
