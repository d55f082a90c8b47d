"""A channel's name and what is derived from it."""

import hashlib
from typing import NamedTuple

from weft.wire.fields import CHANNEL_ID_BYTES


class ChannelName(NamedTuple):
    """Type (the application) and instance (the session, which may be a secret): `chess/club-42`."""

    type: str
    instance: str

    @classmethod
    def parse(cls, text: str) -> "ChannelName":
        kind, slash, instance = text.partition("/")
        if not (kind and slash and instance):
            raise ValueError(f"a channel is named TYPE/INSTANCE, as in chess/club-42, not {text!r}")
        return cls(kind, instance)

    @property
    def id(self) -> bytes:
        """The same on every machine; says nothing about the name to those who do not know it."""
        named = len(self.type.encode()).to_bytes(4, "big") + self.type.encode() + self.instance.encode()
        return hashlib.blake2b(named, digest_size=CHANNEL_ID_BYTES, person=b"weft channel").digest()

    def __str__(self) -> str:
        return f"{self.type}/{self.instance}"
