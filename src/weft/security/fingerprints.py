"""Short names derived by hashing, the same on every machine. Each has a domain of its own (`person`)."""

import hashlib

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from weft.wire import PeerId

PEER_ID_BYTES = 8
FINGERPRINT_BYTES = 16


def peer_id_of(key: Ed25519PublicKey) -> PeerId:
    """A peer's id is a hash of its session key, so that only the one who holds the key can claim the id."""
    digest = hashlib.blake2b(key.public_bytes_raw(), digest_size=PEER_ID_BYTES, person=b"weft peer id")
    return int.from_bytes(digest.digest(), "big")


def server_name_of(channel_id: bytes) -> str:
    """What a caller asks for when it knocks. It can be read on the way, so the channel id is hashed once more."""
    digest = hashlib.blake2b(channel_id, digest_size=FINGERPRINT_BYTES, person=b"weft server name")
    return f"{digest.hexdigest()}.weft"


def fingerprint_of(key: Ed25519PublicKey) -> str:
    """Tells authorities apart by name: another key is another name."""
    digest = hashlib.blake2b(key.public_bytes_raw(), digest_size=FINGERPRINT_BYTES, person=b"weft authority")
    return digest.hexdigest()
