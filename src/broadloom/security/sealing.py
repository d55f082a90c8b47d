"""Encryption for the holders of keys, whatever the channel: what rules do with `encrypt for`.

Hybrid encryption as in age: the data is encrypted with a random key (ChaCha20-Poly1305), and that key for each
recipient with a key agreed on by X25519 and HKDF-SHA256. Layout: number of recipients (1 byte), ephemeral public key
(32 bytes), the encrypted key for each recipient (48 bytes), the encrypted data. The head is authenticated as well.
It does not prove who encrypted: that is what a signed channel does.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from broadloom.errors import InvalidKeyFileError
from broadloom.private_files import warn_if_readable_by_others
from broadloom.security.pem import read_file, replace_public, write_private
from broadloom.wire import WireError

ENCODING_NAME = "x25519"
RECIPIENTS_MAX = 16
KEY_BYTES = 32
_WRAPPED_BYTES = KEY_BYTES + 16
_NONCE = bytes(12)
"""Every key is used once."""
ADVICE = "create one with `broadloom rules key`"


class SealingPublicKey:
    """Encrypts for the holder of the private key."""

    def __init__(self, key: X25519PublicKey) -> None:
        self._key = key
        self.raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a PEM file. Raises `InvalidKeyFileError`."""
        raw = read_file(Path(path), "the public key")
        try:
            key = load_pem_public_key(raw)
        except ValueError:
            raise InvalidKeyFileError(f"{path} is not a public key: {ADVICE}") from None
        if not isinstance(key, X25519PublicKey):
            raise InvalidKeyFileError(f"{path} is not an X25519 key: {ADVICE}")
        return cls(key)

    def save(self, path: str | os.PathLike[str]) -> None:
        replace_public(Path(path), self._key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))

    def agree(self, ephemeral: X25519PrivateKey) -> bytes:
        return ephemeral.exchange(self._key)


class SealingPrivateKey:
    """Decrypts what was encrypted for its public key."""

    def __init__(self, key: X25519PrivateKey) -> None:
        self._key = key
        self.public = SealingPublicKey(key.public_key())

    @classmethod
    def generate(cls) -> Self:
        return cls(X25519PrivateKey.generate())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a PEM file. Raises `InvalidKeyFileError`."""
        warn_if_readable_by_others(Path(path), "the private key")
        raw = read_file(Path(path), "the private key")
        try:
            key = load_pem_private_key(raw, None)
        except (ValueError, TypeError):
            raise InvalidKeyFileError(f"{path} is not a private key: {ADVICE}") from None
        if not isinstance(key, X25519PrivateKey):
            raise InvalidKeyFileError(f"{path} is not an X25519 key: {ADVICE}")
        return cls(key)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Create a file that only its owner may read; never overwrites one."""
        write_private(Path(path), self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    def agree(self, ephemeral: bytes) -> bytes:
        return self._key.exchange(X25519PublicKey.from_public_bytes(ephemeral))


def seal(data: bytes, recipients: Sequence[SealingPublicKey]) -> bytes:
    """Encrypt for all recipients: each of them can decrypt it alone."""
    if not 1 <= len(recipients) <= RECIPIENTS_MAX:
        raise ValueError(f"{len(recipients)} recipients: must be 1 to {RECIPIENTS_MAX}")
    ephemeral, data_key = SealingPrivateKey.generate(), ChaCha20Poly1305.generate_key()
    head = bytes((len(recipients),)) + ephemeral.public.raw
    for each in recipients:
        shared = each.agree(ephemeral._key)
        head += _wrapping(shared, ephemeral.public.raw, each.raw).encrypt(_NONCE, data_key, None)
    return head + ChaCha20Poly1305(data_key).encrypt(_NONCE, data, head)


def unseal(data: bytes, keys: Sequence[SealingPrivateKey]) -> bytes | None:
    """Decrypt with the first key that fits; None if none does. Raises `WireError` if the data is damaged."""
    count = data[0] if data else 0
    start = 1 + KEY_BYTES
    end = start + count * _WRAPPED_BYTES
    if not 1 <= count <= RECIPIENTS_MAX or len(data) < end:
        raise WireError("encrypted data is damaged")
    ephemeral, head = data[1:start], data[:end]
    for key in keys:
        try:
            wrapping = _wrapping(key.agree(ephemeral), ephemeral, key.public.raw)
        except ValueError:
            raise WireError("encrypted data has an invalid key") from None
        for at in range(start, end, _WRAPPED_BYTES):
            try:
                data_key = wrapping.decrypt(_NONCE, data[at : at + _WRAPPED_BYTES], None)
            except InvalidTag:
                continue  # for another recipient
            try:
                return ChaCha20Poly1305(data_key).decrypt(_NONCE, data[end:], head)
            except InvalidTag:
                raise WireError("encrypted data is damaged") from None
    return None


def _wrapping(shared: bytes, ephemeral: bytes, recipient: bytes) -> ChaCha20Poly1305:
    info = b"broadloom sealing\0" + ephemeral + recipient
    return ChaCha20Poly1305(HKDF(SHA256(), KEY_BYTES, None, info).derive(shared))
