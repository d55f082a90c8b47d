"""Signatures on messages: the session key signs what its peer says, and the leaf lets everyone check it."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from weft.fabric.seal import Check, Identity
from weft.security.examine import Examiner
from weft.security.leaf import Leaf
from weft.wire import PeerId

SIGNATURE_BYTES = 64
SAID_PREFIX = b"weft said\0"
"""Goes before what is signed. The session key also signs in TLS handshakes: with this, no message that a peer can be
brought to send is ever good as a handshake."""


class SessionSeal:
    """The seal of one connect."""

    def __init__(self, leaf: Leaf, examiner: Examiner) -> None:
        self.credential = leaf.der
        self._key = leaf.key
        self._examiner = examiner

    def __repr__(self) -> str:
        return "SessionSeal()"

    def sign(self, said: bytes) -> bytes:
        return self._key.sign(SAID_PREFIX + said)

    def admit(self, author: PeerId, credential: bytes) -> tuple[Identity, Check]:
        identity, key = self._examiner.examine(credential, author)
        return identity, _check_with(key)

    def still_admits(self, identity: Identity) -> None:
        self._examiner.look_again(identity)


def _check_with(key: Ed25519PublicKey) -> Check:
    def check(said: bytes, signature: bytes) -> bool:
        try:
            key.verify(signature, SAID_PREFIX + said)
        except Exception:
            # A bad signature, or one that is none at all: both are strangers' bytes, and neither may do harm.
            return False
        return True

    return check
