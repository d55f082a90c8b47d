"""Which message of which group a payload of the channel is: for recorders, which are no members.

They see payloads, and of a large message its parts. What names a message stands at its beginning, so the first part is
enough.
"""

import struct
from typing import NamedTuple

from broadloom.groups.codec import HEADER_BYTES, VERSION, decode, is_group_message
from broadloom.groups.message_fields import unpack_post_message_head
from broadloom.groups.messages import PostMessage
from broadloom.groups.model import GroupId, MessageId
from broadloom.wire.xdr import WireError

_POST_MESSAGE_HEADER = bytes((VERSION, PostMessage.number))


class PayloadIds(NamedTuple):
    group_id: GroupId
    message_id: MessageId
    parent_id: MessageId | None


def payload_ids(data: bytes, *, is_partial: bool = False) -> PayloadIds | None:
    """Group, message and parent of a payload of the channel; None if it is no message of a group, or one that is
    malformed. `beginning`: this is not all of it."""
    if not is_group_message(data) or data[2:HEADER_BYTES] != _POST_MESSAGE_HEADER:
        return None
    try:
        if is_partial:
            return PayloadIds(*unpack_post_message_head(data, HEADER_BYTES))
        message = decode(data)
    except (WireError, struct.error):
        return None
    assert isinstance(message, PostMessage)
    return PayloadIds(message.group, message.post.id, message.post.parent_id)
