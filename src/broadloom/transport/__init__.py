"""The real runtime of a peer: asyncio, TCP and TLS. (`testing/sim` is the simulated one.)

`node.py` is the runtime, `connection.py` one connection; `flow_control.py` and `admission_control.py` protect both.
"""

from broadloom.transport.addresses import find_advertise_host, parse_address
from broadloom.transport.bootstrap_hosts import BootstrapHosts
from broadloom.transport.listener import ListenError
from broadloom.transport.node import HandshakeCounters, TcpNode

__all__ = ["BootstrapHosts", "HandshakeCounters", "ListenError", "TcpNode", "find_advertise_host", "parse_address"]
