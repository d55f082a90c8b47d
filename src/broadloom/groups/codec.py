"""The codec of group messages. A group message is the payload of a channel broadcast; its mark is `BG`."""

from typing import ClassVar

from broadloom.wire.layer_codec import LayerCodec, LayerMessage

LAYER = "Gr"
"""Group messages have a layer of their own on the channel, so that they do not disturb other readers."""
MAGIC = b"BG"
VERSION = 1
HEADER_BYTES = 4
_CODEC: "LayerCodec[GroupWireMessage]" = LayerCodec(MAGIC, VERSION, "group message")


class GroupWireMessage(LayerMessage):
    """Base class of all group messages."""

    __slots__ = ()
    codec: ClassVar = _CODEC


encode, decode, message_types = _CODEC.encode, _CODEC.decode, _CODEC.message_types


def is_group_message(data: bytes) -> bool:
    return data[:2] == MAGIC
