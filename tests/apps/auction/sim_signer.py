"""Real signatures without certificates, for simulated members: the credential is the name, and decides the key."""

from functools import cache, lru_cache
from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@cache
def _key(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(sha256(name.encode()).digest())


class SimSigner:
    def __init__(self, name: str) -> None:
        self.name = name
        self.credential = name.encode()

    def sign(self, data: bytes) -> bytes:
        return _key(self.name).sign(data)


@lru_cache(1024)
def verify(credential: bytes, data: bytes, signature: bytes, at_ms: int) -> str | None:
    """Cached, because every simulated member verifies every entry."""
    try:
        name = credential.decode()
        _key(name).public_key().verify(signature, data)
    except (InvalidSignature, UnicodeDecodeError):
        return None
    return name
