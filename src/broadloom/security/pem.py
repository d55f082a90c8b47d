"""Files of keys and certificates, in PEM.

A file with a private key can be read by its owner alone, and is never written over: the one copy of an authority's
key might be what is lost.
"""

import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from broadloom.errors import InvalidKeyFileError

FILE_BYTES_MAX = 16 << 20

_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----\r?\n.*?-----END \1-----", re.DOTALL)


class PemContents(NamedTuple):
    """What a file holds, in its order."""

    certificates: list[x509.Certificate]
    keys: list[Ed25519PrivateKey]


def encode_pem(*parts: x509.Certificate | Ed25519PrivateKey) -> bytes:
    return b"".join(
        part.public_bytes(Encoding.PEM)
        if isinstance(part, x509.Certificate)
        else part.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        for part in parts
    )


def read_contents(raw: bytes, what: str, advice: str) -> PemContents:
    """Certificates and keys in a text. `what` and `advice` are for the person who reads the error."""
    contents = PemContents([], [])
    try:
        for block in _BLOCK.finditer(raw):
            if block[1] == b"CERTIFICATE":
                contents.certificates.append(x509.load_pem_x509_certificate(block[0]))
            elif block[1] == b"PRIVATE KEY":
                key = load_pem_private_key(block[0], None)
                if not isinstance(key, Ed25519PrivateKey):
                    raise InvalidKeyFileError(f"{what} holds a key that is not Ed25519: {advice}")
                contents.keys.append(key)
    except InvalidKeyFileError:
        raise
    except Exception:
        # The parsers raise much, and might quote what they could not read: their words are not passed on.
        raise InvalidKeyFileError(f"{what} is damaged: {advice}") from None
    return contents


def read_file(path: Path, what: str) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as problem:
        raise InvalidKeyFileError(f"cannot read {what} {path}: {problem.strerror}") from None
    if len(raw) > FILE_BYTES_MAX:
        raise InvalidKeyFileError(f"{path} is too large to be {what}: is it another file?")
    return raw


def write_private(path: Path, content: bytes) -> None:
    """A new file that only its owner can read."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InvalidKeyFileError(
            f"{path} exists and is not written over: move it away or choose another name"
        ) from None
    except OSError as problem:
        raise InvalidKeyFileError(f"cannot write {path}: {problem.strerror}") from None
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as problem:
        # Half a key is worse than none: it would be in the way of the next attempt.
        path.unlink(missing_ok=True)
        raise InvalidKeyFileError(f"cannot write {path}: {problem.strerror}") from None


def replace_public(path: Path, content: bytes) -> None:
    """A file that all may read. Whoever reads it meanwhile sees the old or the new, never half of one."""
    try:
        file, fresh = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(file, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            Path(fresh).chmod(0o644)
            Path(fresh).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(fresh).unlink()
            raise
    except OSError as problem:
        raise InvalidKeyFileError(f"cannot write {path}: {problem.strerror}") from None
