"""The kind of a broadcast frame: what its messages are to the layers above. The protocol treats all kinds alike.

The lowest 8 bits are a `PayloadKind`, the next 8 are flags, and the highest 16 the mark of a layer, 0 for the
application.
"""

import re
from enum import IntEnum

CONTENT_MASK = 0xFF
HAS_HEADERS = 1 << 8
"""Flag: each message of the frame begins with headers (`message_headers.py`)."""
WANTS_RECEIPT = 1 << 9
"""Flag: receivers report to the author that they have delivered the messages (`protocol/receipts/`)."""
FLAGS_MASK = 0xFF00
LAYER_SHIFT = 16


class PayloadKind(IntEnum):
    DATA = 0
    """Bytes of the application."""
    FRAGMENT = 1
    """A fragment of a message that is too large for one frame."""
    FILE = 2
    """A file, with its name and hash."""


def layer_kind(mark: str) -> int:
    """The kind of the frames of this layer. Raises `ValueError` if the mark is not two ASCII letters or digits."""
    if not re.fullmatch("[A-Za-z0-9]{2}", mark):
        raise ValueError(f"layer {mark!r}: a mark is two ASCII letters or digits")
    return int.from_bytes(mark.encode(), "big") << LAYER_SHIFT


def layer_mark(kind: int) -> str:
    """The mark in a kind; an invalid one in hex."""
    mark = (kind >> LAYER_SHIFT).to_bytes(2, "big")
    return mark.decode() if mark.isalnum() else mark.hex()
