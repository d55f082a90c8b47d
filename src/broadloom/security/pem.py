"""PEM files with keys and certificates.

A file with a private key has mode 600 and is never overwritten: it may be the only copy of an authority's key.
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
from broadloom.private_files import open_new

FILE_BYTES_MAX = 16 << 20

_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----\r?\n.*?-----END \1-----", re.DOTALL)


class PemContents(NamedTuple):
    """The certificates and keys of a file, in file order."""

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
    """`what` and `advice` are used in error messages: what was read, and how to get a good one."""
    contents = PemContents([], [])
    try:
        for block in _BLOCK.finditer(raw):
            if block[1] == b"CERTIFICATE":
                contents.certificates.append(x509.load_pem_x509_certificate(block[0]))
            elif block[1] == b"PRIVATE KEY":
                key = load_pem_private_key(block[0], None)
                if not isinstance(key, Ed25519PrivateKey):
                    raise InvalidKeyFileError(f"{what} contains a key that is not Ed25519: {advice}")
                contents.keys.append(key)
    except InvalidKeyFileError:
        raise
    except Exception:
        # Parsers raise many kinds of errors and might quote secrets, so their messages are not passed on.
        raise InvalidKeyFileError(f"{what} is damaged: {advice}") from None
    return contents


def read_file(path: Path, what: str) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as problem:
        raise InvalidKeyFileError(f"cannot read {what} {path}: {problem.strerror}") from None
    if len(raw) > FILE_BYTES_MAX:
        raise InvalidKeyFileError(f"{path} is too large for {what}: is it the right file?")
    return raw


def write_private(path: Path, content: bytes) -> None:
    """Create a file with mode 600."""
    try:
        file = open_new(path)
    except FileExistsError:
        raise InvalidKeyFileError(
            f"{path} already exists and is not overwritten: move it, or choose another name"
        ) from None
    except OSError as problem:
        raise InvalidKeyFileError(f"cannot write {path}: {problem.strerror}") from None
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as problem:
        # An incomplete file would block the next attempt.
        path.unlink(missing_ok=True)
        raise InvalidKeyFileError(f"cannot write {path}: {problem.strerror}") from None


def replace_public(path: Path, content: bytes) -> None:
    """Atomically replace a file that everyone may read."""
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
