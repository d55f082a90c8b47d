"""Shared keys: how one is made, and the secret that the channel's certificate authority grows from.

Whoever knocks at a listener is shown a certificate, and may afterwards guess at the key behind it for as long as it
likes. So what a person thought up is stretched with scrypt, which makes each guess dear; a generated key has 256 bits
that nobody guesses, and needs no stretching. The channel id is the salt: one key gives each channel another authority.
"""

import base64
import hashlib
import re
import secrets
import unicodedata
from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from broadloom.errors import InvalidKeyError
from broadloom.protocol import ChannelName
from broadloom.wire import PeerId

# Short names derived by hashing, the same on every machine. Each has a domain of its own (`person`).


PEER_ID_BYTES = 8
FINGERPRINT_BYTES = 16


def peer_id_of(key: Ed25519PublicKey) -> PeerId:
    """A peer's id is a hash of its session key, so that only the one who holds the key can claim the id."""
    digest = hashlib.blake2b(key.public_bytes_raw(), digest_size=PEER_ID_BYTES, person=b"bl peer id")
    return PeerId(int.from_bytes(digest.digest(), "big"))


def server_name_of(channel_id: bytes) -> str:
    """What a caller asks for when it knocks. It can be read on the way, so the channel id is hashed once more."""
    digest = hashlib.blake2b(channel_id, digest_size=FINGERPRINT_BYTES, person=b"bl server name")
    return f"{digest.hexdigest()}.broadloom"


def fingerprint_of(key: Ed25519PublicKey) -> str:
    """Tells authorities apart by name: another key is another name."""
    digest = hashlib.blake2b(key.public_bytes_raw(), digest_size=FINGERPRINT_BYTES, person=b"bl authority")
    return digest.hexdigest()


KEY_PREFIX = "broadloom-"
KEY_BYTES = 32
SEED_BYTES = 32
SEEDS_CACHED = 256

# Of the last letter only one bit is used.
_GENERATED = re.compile(rf"{KEY_PREFIX}[a-z2-7]{{51}}[aq]")


def generate_key() -> str:
    """A fresh shared key, in letters that survive a mail and a telephone call."""
    return KEY_PREFIX + base64.b32encode(secrets.token_bytes(KEY_BYTES)).decode().rstrip("=").lower()


def key_from_name(channel: ChannelName) -> str:
    """The key of those who give none: it keeps out only those who do not know the channel's name."""
    # No key that a person types begins like this, so giving the name as key is not the same as giving none.
    return f"\0broadloom name\0{channel}"


def derive_authority_seed(key: str | bytes, channel_id: bytes) -> bytes:
    """What the channel's authority is made from. The same letters are the same key, as text or as bytes."""
    return _derive_seed(_normalize_key(key), channel_id)


def _normalize_key(key: str | bytes) -> str | bytes:
    """One form for what people take for the same key: however its accents are coded, with or without a line end."""
    if isinstance(key, bytes):
        try:
            key = key.decode()
        except UnicodeDecodeError:
            return key
    key = unicodedata.normalize("NFC", key.strip())
    if not key:
        # Most likely a variable that was never set. To go on as if no key had been asked for would open the channel.
        raise InvalidKeyError("the key is empty: give one, or leave the key out to use the channel's name")
    return key


@lru_cache(SEEDS_CACHED)
def _derive_seed(key: str | bytes, channel_id: bytes) -> bytes:
    """Remembered, since a process may hold many peers of one channel and scrypt is slow on purpose."""
    if isinstance(key, str):
        if _GENERATED.fullmatch(key.lower()):
            drawn = base64.b32decode(key[len(KEY_PREFIX) :].upper() + "====")
            return HKDF(SHA256(), SEED_BYTES, salt=channel_id, info=b"broadloom authority").derive(drawn)
        try:
            key = key.encode()
        except UnicodeEncodeError:
            raise InvalidKeyError("the key holds characters that are no text") from None
    return Scrypt(salt=channel_id, length=SEED_BYTES, n=2**14, r=8, p=1).derive(key)
