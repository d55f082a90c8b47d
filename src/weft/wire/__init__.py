"""Bytes to typed messages and back: XDR (RFC 4506) in frames with a length.

Pure functions without state, except for the splitter that holds the rest of a read. The format is written down in
`docs/protocol/weft.x`; a stranger with any XDR library can read our bytes from that file.
"""

from weft.wire import calls, links  # noqa: F401  (whoever decodes must know all messages)
from weft.wire.broadcast import Broadcast
from weft.wire.codec import decode, encode
from weft.wire.errors import WireError
from weft.wire.framing import Splitter
from weft.wire.types import Address, Contact, PeerId

__all__ = ["Address", "Broadcast", "Contact", "PeerId", "Splitter", "WireError", "decode", "encode"]
