"""Tickets that the owner has withdrawn: an X.509 revocation list in a file, signed by the authority.

The owner writes it and passes it on as it likes; each peer is given the path and looks at the file from time to time.
A list that cannot be read or trusted is never taken for an empty one.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding

from broadloom.errors import InvalidKeyFileError
from broadloom.security.authority import Authority
from broadloom.security.certificates import ALWAYS_VALID, Clock, utc_now
from broadloom.security.pem import read_file, replace_public
from broadloom.security.ticket import SERIAL_DIGITS, serial_text

_SERIAL = re.compile(rf"[0-9a-f]{{{SERIAL_DIGITS}}}")
_ADVICE = "fetch it again from the channel's owner"


def revoke_tickets(authority: Authority, path: str | Path, serials: Iterable[str], *, now: Clock = utc_now) -> None:
    """Adds tickets to the list, by their serial numbers in hex. The file is made if there is none yet."""
    path = Path(path)
    added = {_serial(text) for text in serials}
    secret = authority.private_key()
    entries = list(_load(path, authority.certificate)) if path.exists() else []
    entries += [
        x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now()).build()
        for serial in sorted(added - {each.serial_number for each in entries})
    ]
    # A list holds until a newer one replaces it, so it has no end of its own.
    builder = x509.CertificateRevocationListBuilder(
        authority.certificate.subject, now(), ALWAYS_VALID[1], revoked_certificates=entries
    )
    replace_public(path, builder.sign(secret, None).public_bytes(Encoding.PEM))


class RevocationList:
    """What a peer knows of withdrawn tickets."""

    def __init__(self, path: str | Path, authority: x509.Certificate) -> None:
        self.authority = authority
        self._path = Path(path)
        self._file_stamp = self._stat()
        self._serials = self._read()

    def __repr__(self) -> str:
        return f"RevocationList({str(self._path)!r}, {len(self._serials)} tickets)"

    def is_revoked(self, serial: str) -> bool:
        """By the ticket's serial number in hex, as it stands in an `Identity`."""
        return serial in self._serials

    def reload_if_changed(self) -> bool:
        """Whether there was something new. If the new file is not good, the old list stays in force: BadKeyFile."""
        seen = self._stat()
        if seen == self._file_stamp:
            return False
        self._serials = self._read()
        self._file_stamp = seen
        return True

    def _stat(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError as problem:
            raise InvalidKeyFileError(
                f"cannot read the list of withdrawn tickets {self._path}: {problem.strerror}; {_ADVICE}"
            ) from None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> frozenset[str]:
        return frozenset(serial_text(each.serial_number) for each in _load(self._path, self.authority))


def _load(path: Path, authority: x509.Certificate) -> x509.CertificateRevocationList:
    raw = read_file(path, "the list of withdrawn tickets")
    try:
        found = x509.load_pem_x509_crl(raw)
        key = authority.public_key()
        good = isinstance(key, Ed25519PublicKey) and found.issuer == authority.subject and found.is_signature_valid(key)
    except Exception:
        raise InvalidKeyFileError(f"the list of withdrawn tickets {path} is damaged: {_ADVICE}") from None
    if not good:
        raise InvalidKeyFileError(
            f"the list of withdrawn tickets {path} was not signed by the channel's owner, or was changed: {_ADVICE}"
        )
    return found


def _serial(text: str) -> int:
    # All sixteen digits: a name like "ada" would do as hex too, and would withdraw nothing.
    if not _SERIAL.fullmatch(text.strip().lower()):
        raise ValueError(f"{text!r} is no serial number of a ticket: that has {SERIAL_DIGITS} hex digits")
    return int(text, 16)
