"""Shared keys: how one is made, and the secret that the channel's certificate authority grows from.

Whoever knocks at a listener is shown a certificate, and may afterwards guess at the key behind it for as long as it
likes. So what a person thought up is stretched with scrypt, which makes each guess dear; a generated key has 256 bits
that nobody guesses, and needs no stretching. The channel id is the salt: one key gives each channel another authority.
"""

import base64
import re
import secrets
import unicodedata
from functools import lru_cache

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from weft.fabric import ChannelName
from weft.security.errors import BadKey

KEY_PREFIX = "weft-"
KEY_BYTES = 32
SEED_BYTES = 32
SEEDS_CACHED = 256

# Of the last letter only one bit is used.
_GENERATED = re.compile(rf"{KEY_PREFIX}[a-z2-7]{{51}}[aq]")


def new_key() -> str:
    """A fresh shared key, in letters that survive a mail and a telephone call."""
    return KEY_PREFIX + base64.b32encode(secrets.token_bytes(KEY_BYTES)).decode().rstrip("=").lower()


def key_from_name(channel: ChannelName) -> str:
    """The key of those who give none: it keeps out only those who do not know the channel's name."""
    # No key that a person types begins like this, so giving the name as key is not the same as giving none.
    return f"\0weft name\0{channel}"


def derive_authority_seed(key: str | bytes, channel_id: bytes) -> bytes:
    """What the channel's authority is made from. The same letters are the same key, as text or as bytes."""
    return _seed(_plain(key), channel_id)


def _plain(key: str | bytes) -> str | bytes:
    """One form for what people take for the same key: however its accents are coded, with or without a line end."""
    if isinstance(key, bytes):
        try:
            key = key.decode()
        except UnicodeDecodeError:
            return key
    key = unicodedata.normalize("NFC", key.strip())
    if not key:
        # Most likely a variable that was never set. To go on as if no key had been asked for would open the channel.
        raise BadKey("the key is empty: give one, or leave the key out to use the channel's name")
    return key


@lru_cache(SEEDS_CACHED)
def _seed(key: str | bytes, channel_id: bytes) -> bytes:
    """Remembered, since a process may hold many peers of one channel and scrypt is slow on purpose."""
    if isinstance(key, str):
        if _GENERATED.fullmatch(key.lower()):
            drawn = base64.b32decode(key[len(KEY_PREFIX) :].upper() + "====")
            return HKDF(SHA256(), SEED_BYTES, salt=channel_id, info=b"weft authority").derive(drawn)
        try:
            key = key.encode()
        except UnicodeEncodeError:
            raise BadKey("the key holds characters that are no text") from None
    return Scrypt(salt=channel_id, length=SEED_BYTES, n=2**14, r=8, p=1).derive(key)
