"""Shared keys, key derivation and fingerprints.

Any client that connects to a peer sees a certificate, and can guess offline at the key behind it. A passphrase is
therefore stretched with scrypt, which makes each guess expensive. A generated key has 256 random bits and needs no
stretching. Nor does the key made from the name, since every handshake contains a hash of the name, by which it is
guessed faster. The channel id is the salt, so one key gives each channel a different authority.
"""

import base64
import hashlib
import re
import secrets
import unicodedata
from functools import lru_cache

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from cryptography.hazmat.primitives.serialization import Encoding

from broadloom.errors import InvalidKeyError
from broadloom.protocol import ChannelName
from broadloom.wire import PeerId

PEER_ID_BYTES = 8
FINGERPRINT_BYTES = 16


def peer_id_of(key: Ed25519PublicKey, ticket: x509.Certificate | None = None) -> PeerId:
    """A hash of the session key and the ticket, so that only the holder of the key can claim the id, and all peers
    agree on its name and role."""
    subject = key.public_bytes_raw() + (ticket.public_bytes(Encoding.DER) if ticket is not None else b"")
    digest = hashlib.blake2b(subject, digest_size=PEER_ID_BYTES, person=b"bl peer id")
    return PeerId(int.from_bytes(digest.digest(), "big"))


def server_name_of(channel_id: bytes) -> str:
    """The TLS server name of a channel. It is sent in clear text, so the channel id is hashed again."""
    digest = hashlib.blake2b(channel_id, digest_size=FINGERPRINT_BYTES, person=b"bl server name")
    return f"{digest.hexdigest()}.broadloom"


def fingerprint_of(key: Ed25519PublicKey) -> str:
    """Part of an authority's name: another key gives another name."""
    digest = hashlib.blake2b(key.public_bytes_raw(), digest_size=FINGERPRINT_BYTES, person=b"bl authority")
    return digest.hexdigest()


KEY_PREFIX = "broadloom-"
NAME_PREFIX = "\0broadloom name\0"
"""No typed key begins with a null character, so the name given as a key is not the same as no key."""
KEY_BYTES = 32
SEED_BYTES = 32
SEEDS_CACHED = 256

# 256 bits are 51 base32 digits and one more bit.
_GENERATED = re.compile(rf"{KEY_PREFIX}[a-z2-7]{{51}}[aq]")


def generate_key() -> str:
    """A new random shared key, in lower-case letters and digits."""
    return KEY_PREFIX + base64.b32encode(secrets.token_bytes(KEY_BYTES)).decode().rstrip("=").lower()


def key_from_name(channel: ChannelName) -> str:
    """The default key. It only keeps out programs that do not know the channel name."""
    return f"{NAME_PREFIX}{channel}"


def derive_authority_seed(key: str | bytes, channel_id: bytes) -> bytes:
    """The seed of the channel's authority. Text and its UTF-8 bytes are the same key."""
    return _derive_seed(_normalize_key(key), channel_id)


def _normalize_key(key: str | bytes) -> str | bytes:
    """Ignore differences that users do not see: Unicode composition, and surrounding white space."""
    if isinstance(key, bytes):
        try:
            key = key.decode()
        except UnicodeDecodeError:
            return key
    key = unicodedata.normalize("NFC", key.strip())
    if not key:
        # Most likely a variable that was never set. Treating it as no key would open the channel.
        raise InvalidKeyError("the key is empty: set it, or omit it to derive the key from the channel name")
    return key


def _expand(secret: bytes, channel_id: bytes) -> bytes:
    return HKDF(SHA256(), SEED_BYTES, salt=channel_id, info=b"broadloom authority").derive(secret)


@lru_cache(SEEDS_CACHED)
def _derive_seed(key: str | bytes, channel_id: bytes) -> bytes:
    """Cached: a process may run many peers of one channel, and scrypt is slow on purpose."""
    if isinstance(key, str):
        if _GENERATED.fullmatch(key.lower()):
            random_bytes = base64.b32decode(key[len(KEY_PREFIX) :].upper() + "====")
            return _expand(random_bytes, channel_id)
        is_name = key.startswith(NAME_PREFIX)
        try:
            key = key.encode()
        except UnicodeEncodeError:
            raise InvalidKeyError("the key contains characters that are not valid Unicode") from None
        if is_name:
            return _expand(key, channel_id)
    return Scrypt(salt=channel_id, length=SEED_BYTES, n=2**14, r=8, p=1).derive(key)
