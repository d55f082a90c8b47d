"""What a payload means to the layers that the recorder knows: at present, which message of which group it is.

A large message travels in parts, each a row of the tape by itself. Its first part tells what it is; the others tell
nothing.
"""

from weft.channel.large import PART_BYTES
from weft.groups.identities import identities
from weft.record.recorder import About

PART_HEAD_BYTES = 16
_FIRST_PART_BYTES = PART_HEAD_BYTES + PART_BYTES
"""Nothing else has this size: a message with more than `PART_BYTES` is cut, and only a last part is smaller."""
_PART_NUMBER = slice(4, 8)


def meaning(data: bytes) -> About | None:
    """Group, message and parent, if it is a message of a group."""
    if len(data) == _FIRST_PART_BYTES and not any(data[_PART_NUMBER]):
        named = identities(data[PART_HEAD_BYTES:], beginning=True)
    else:
        named = identities(data)
    if named is None:
        return None
    return About(group=f"{named.group:016x}", message=named.message, parent_message=named.parent)
