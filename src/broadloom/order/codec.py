"""The codec of the messages of ordered conversations. Their mark is empty: all messages of the layer are theirs."""

from typing import ClassVar

from broadloom.wire.layer_codec import LayerCodec, LayerMessage

LAYER = "Or"
VERSION = 1
_CODEC: "LayerCodec[OrderMessage]" = LayerCodec(b"", VERSION, "message of a conversation")


class OrderMessage(LayerMessage):
    """Base class of the messages."""

    __slots__ = ()
    codec: ClassVar = _CODEC
    conversation: int


encode, decode, message_types = _CODEC.encode, _CODEC.decode, _CODEC.message_types
