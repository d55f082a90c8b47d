"""Which message of which group a payload of the channel is: for recorders, which are no members.

They see payloads, and of a large message its parts. What names a message stands at its beginning, so the first part is
enough.
"""

import struct
from typing import NamedTuple

from weft.groups.codec import HEAD_BYTES, VERSION, decode, is_ours
from weft.groups.fields import unpack_said_head
from weft.groups.messages import Said
from weft.groups.names import GroupId, MessageId
from weft.wire.errors import WireError

_IS_SAID = bytes((VERSION, Said.number))


class Identities(NamedTuple):
    group: GroupId
    message: MessageId
    parent: MessageId | None


def identities(data: bytes, *, beginning: bool = False) -> Identities | None:
    """Group, message and parent of a payload of the channel; None if it is no message of a group, or one that is
    malformed. `beginning`: this is not all of it."""
    if not is_ours(data) or data[2:HEAD_BYTES] != _IS_SAID:
        return None
    try:
        if beginning:
            return Identities(*unpack_said_head(data, HEAD_BYTES))
        note = decode(data)
    except (WireError, struct.error):
        return None
    assert isinstance(note, Said)
    return Identities(note.group, note.post.id, note.post.parent)
