"""Bytes to typed messages and back: XDR (RFC 4506) in frames with a length.

Pure functions without state, except for the splitter that holds the rest of a read. The format is written down in
`docs/protocol/broadloom.x`; a stranger with any XDR library can read our bytes from that file.
"""

# Whoever decodes must know all messages.
from broadloom.wire import exchange_messages, link_messages  # noqa: F401
from broadloom.wire.broadcast_frame import Broadcast
from broadloom.wire.codec import decode, encode
from broadloom.wire.framing import FrameSplitter
from broadloom.wire.types import Address, PeerId, PeerInfo
from broadloom.wire.xdr import WireError

__all__ = ["Address", "Broadcast", "FrameSplitter", "PeerId", "PeerInfo", "WireError", "decode", "encode"]
