"""`SignedCard`: a channel card with the signature of the owner.

The file has the card and the owner's certificate. On a channel with tickets, members know the owner from their ticket;
on other channels, from the file that they connect with.
"""

import base64
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from broadloom.errors import InvalidKeyFileError
from broadloom.protocol.owner.card import ChannelCard, decode_card, encode_card
from broadloom.security.authority import Authority
from broadloom.security.certificates import utc_now
from broadloom.security.pem import encode_pem, read_contents, read_file, replace_public
from broadloom.security.revocation import next_number

CARD_PREFIX = b"broadloom card\0"
"""Domain separation: the authority also signs certificates and revocation lists."""
SIGNATURE_BYTES = 64

_LABEL = "BROADLOOM CARD"
_BLOCK = re.compile(rf"-----BEGIN {_LABEL}-----\s(.*?)-----END {_LABEL}-----".encode(), re.DOTALL)
_ADVICE = "get it again from the channel's owner"


@dataclass(frozen=True, slots=True)
class SignedCard:
    card: ChannelCard
    document: bytes
    """The signature and the card as JSON: what is sent over the channel."""
    owner: x509.Certificate

    @classmethod
    def sign(
        cls,
        authority: Authority,
        card: ChannelCard,
        *,
        after: "SignedCard | None" = None,
        now: Callable[[], datetime] = utc_now,
    ) -> "SignedCard":
        """Sign a card. It keeps its number, or gets one if it has none. With `after`, the card it replaces, it gets
        a higher one."""
        if after is not None or not card.number:
            card = replace(card, number=next_number(after.card.number if after is not None else 0, now()))
        body = encode_card(card)
        return cls(card, authority.private_key().sign(CARD_PREFIX + body) + body, authority.certificate)

    @classmethod
    def verify(cls, document: bytes, owner: x509.Certificate) -> "SignedCard":
        """Raises `ValueError` if the owner has not signed the card."""
        signature, body = document[:SIGNATURE_BYTES], document[SIGNATURE_BYTES:]
        key = owner.public_key()
        try:
            if not isinstance(key, Ed25519PublicKey):
                raise InvalidSignature
            key.verify(signature, CARD_PREFIX + body)
        except InvalidSignature:
            raise ValueError("the card was not signed by the channel's owner, or was modified") from None
        card = decode_card(body)
        if not card.number:
            raise ValueError("the card has no number")
        return cls(card, document, owner)

    @classmethod
    def load(cls, path: str | Path) -> "SignedCard":
        """Read a card and verify it with the certificate in the same file: who the owner is must be known from
        elsewhere, or the file itself trusted."""
        raw = read_file(Path(path), "the card")
        what = f"the card {path}"
        block, certificates = _BLOCK.search(raw), read_contents(raw, what, _ADVICE).certificates
        if block is None or len(certificates) != 1:
            raise InvalidKeyFileError(f"{what} is damaged: {_ADVICE}")
        try:
            return cls.verify(base64.b64decode(block[1]), certificates[0])
        except ValueError as problem:
            raise InvalidKeyFileError(f"{what} is not valid: {problem}; {_ADVICE}") from None

    def save(self, path: str | Path) -> None:
        """Write the card to a file that everyone may read. An existing one is replaced."""
        replace_public(Path(path), self.as_pem())

    def as_pem(self) -> bytes:
        text = "\n".join(textwrap.wrap(base64.b64encode(self.document).decode(), 64))
        return f"-----BEGIN {_LABEL}-----\n{text}\n-----END {_LABEL}-----\n".encode() + encode_pem(self.owner)


def is_card_file(raw: bytes) -> bool:
    return _BLOCK.search(raw) is not None
