"""Bytes to typed messages and back: XDR (RFC 4506) in frames with a length.

Pure functions without state, except for the splitter, which holds the rest of a read. `docs/protocol/broadloom.x`
specifies the format; with it, any XDR library can read and write these bytes.
"""

# Importing them registers all messages with the codec.
from broadloom.wire import (  # noqa: F401
    direct_messages,
    exchange_messages,
    link_messages,
    owner_messages,
    receipt_messages,
    roster_messages,
)
from broadloom.wire.broadcast_frame import Broadcast
from broadloom.wire.codec import Frame, decode, encode
from broadloom.wire.framing import FrameSplitter
from broadloom.wire.types import Address, PeerId, PeerInfo
from broadloom.wire.xdr import WireError

__all__ = ["Address", "Broadcast", "Frame", "FrameSplitter", "PeerId", "PeerInfo", "WireError", "decode", "encode"]
