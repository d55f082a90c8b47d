"""One of the two worlds of a peer: asyncio TCP and TLS, and the real clock. (The other one is `sim`.)

`node.py` is the world; `line.py` one connection, with `tls.py` inside it; `doorman.py` decides who may call.
"""

from broadloom.transport.addresses import find_advertise_host, parse_address
from broadloom.transport.node import HandshakeCounters, ListenError, TcpNode

__all__ = ["HandshakeCounters", "ListenError", "TcpNode", "find_advertise_host", "parse_address"]
