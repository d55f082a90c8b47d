"""Revoked tickets: an X.509 certificate revocation list (CRL), signed by the authority, with a number (RFC 5280).

The owner writes it to a file. Members get it from the file, which they check periodically, or over the channel. Of two
lists, the one with the higher number is in force: an older one is never accepted again. A list that cannot be read or
verified is never treated as empty.
"""

import logging
import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding

from broadloom.errors import InvalidKeyFileError
from broadloom.security.authority import Authority
from broadloom.security.certificates import ALWAYS_VALID, Clock, utc_now
from broadloom.security.pem import read_file, replace_public
from broadloom.security.ticket import SERIAL_DIGITS, serial_text

log = logging.getLogger("broadloom")

NEWEST_SUFFIX = ".newest"
"""The newest list (or card) that a program got over the channel is kept beside the file that it was given."""

_SERIAL = re.compile(rf"[0-9a-f]{{{SERIAL_DIGITS}}}")
_ADVICE = "get it again from the channel's owner"


def revoke_tickets(authority: Authority, path: str | Path, serials: Iterable[str], *, now: Clock = utc_now) -> None:
    """Add tickets to the list by their serial numbers in hex. The file is created if necessary."""
    path = Path(path)
    added = {_serial(text) for text in serials}
    authority.private_key()  # fails before anything is read
    previous = _load(path, authority.certificate) if path.exists() else None
    entries = list(previous) if previous is not None else []
    entries += _entries(added - {each.serial_number for each in entries}, now())
    number = next_number(_number_of(previous) if previous is not None else 0, now())
    replace_public(path, _signed(authority, entries, number, now()).public_bytes(Encoding.PEM))


def new_revocation_list(authority: Authority, serials: Iterable[str], *, now: Clock = utc_now) -> "RevocationList":
    """A list of exactly these tickets, in memory: for owners that know all of them, and keep no file."""
    found = RevocationList(None, authority.certificate)
    entries = _entries({_serial(text) for text in serials}, now())
    found.replace(_signed(authority, entries, next_number(0, now()), now()).public_bytes(Encoding.DER))
    return found


def _entries(serials: set[int], now: datetime) -> list[x509.RevokedCertificate]:
    return [
        x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        for serial in sorted(serials)
    ]


def _signed(
    authority: Authority, entries: list[x509.RevokedCertificate], number: int, now: datetime
) -> x509.CertificateRevocationList:
    # A list is valid until a newer one replaces it.
    builder = x509.CertificateRevocationListBuilder(
        authority.certificate.subject, now, ALWAYS_VALID[1], revoked_certificates=entries
    ).add_extension(x509.CRLNumber(number), critical=False)
    return builder.sign(authority.private_key(), None)


def next_number(previous: int, now: datetime) -> int:
    """The number of the next list or card: the time of signing in microseconds, so that it is the highest even if the
    owner has lost the previous one."""
    return max(previous + 1, int(now.timestamp() * 1e6))


class RevocationList:
    """The revoked tickets known to a peer: from the owner's file, if it has one, and from the channel."""

    def __init__(self, path: str | Path | None, authority: x509.Certificate, *, with_newest: bool = True) -> None:
        """`with_newest`: also use a newer list that was kept beside the file."""
        self.authority = authority
        self._path = Path(path) if path is not None else None
        self._serials: dict[str, None] = {}
        self._file_stamp = (0, 0, 0)
        self.number = 0
        """0 without a list, and for a list without a number, which is not spread over the channel."""
        self.document = b""
        """The list in DER."""
        if self._path is None:
            return
        self._file_stamp = self._stat(self._path)
        self._use(_load(self._path, authority))
        newest = newest_path(self._path)
        if with_newest and newest.exists():
            with suppress(InvalidKeyFileError):  # another owner's, or damaged: the neighbors have it
                self._use_if_newer(_load(newest, authority))

    def __repr__(self) -> str:
        return f"RevocationList({str(self._path)!r}, {len(self._serials)} tickets)"

    @property
    def serials(self) -> tuple[str, ...]:
        """The revoked tickets, in hex."""
        return tuple(self._serials)

    def is_revoked(self, serial: str) -> bool:
        return serial in self._serials

    def reload_if_changed(self) -> bool:
        """Returns whether the file has a newer list. If it is invalid, raises an error and keeps the old list."""
        if self._path is None:
            return False
        seen = self._stat(self._path)
        if seen == self._file_stamp:
            return False
        found = _load(self._path, self.authority)
        self._file_stamp = seen
        if not self._use_if_newer(found):
            log.warning("%s is an older revocation list than the one in force: it is ignored", self._path)
            return False
        return True

    def replace(self, document: bytes) -> None:
        """Use this list from now on, and keep it beside the file."""
        if document == self.document:
            return  # it is in the file
        self._use(x509.load_der_x509_crl(document))
        if self._path is not None:
            keep_newest(self._path, x509.load_der_x509_crl(document).public_bytes(Encoding.PEM))

    def _use_if_newer(self, found: x509.CertificateRevocationList) -> bool:
        is_newer = _number_of(found) > self.number or (not self.number and not _number_of(found))
        if is_newer:
            self._use(found)
        return is_newer

    def _use(self, found: x509.CertificateRevocationList) -> None:
        self._serials = dict.fromkeys(serials_of(found))
        self.number = _number_of(found)
        self.document = found.public_bytes(Encoding.DER)

    @staticmethod
    def _stat(path: Path) -> tuple[int, int, int]:
        try:
            found = path.stat()
        except OSError as problem:
            raise InvalidKeyFileError(
                f"cannot read the revocation list {path}: {problem.strerror}; {_ADVICE}"
            ) from None
        return found.st_mtime_ns, found.st_size, found.st_ino


def newest_path(path: Path) -> Path:
    return path.with_name(path.name + NEWEST_SUFFIX)


def keep_newest(path: Path, content: bytes) -> None:
    """Keep what is in force for the next start. The owner's own file is never changed."""
    try:
        replace_public(newest_path(path), content)
    except InvalidKeyFileError as problem:
        log.warning("%s; after a restart, this program may begin with an older one", problem)


def read_revocation_list(document: bytes, authority: x509.Certificate) -> tuple[int, tuple[str, ...]]:
    """The number and the serials of a list in DER. Raises `ValueError` if the owner has not signed it, or it has no
    number."""
    try:
        found = x509.load_der_x509_crl(document)
        is_valid = _is_signed(found, authority)
    except Exception:
        raise ValueError("the revocation list is damaged") from None
    if not is_valid:
        raise ValueError("the revocation list was not signed by the channel's owner")
    number = _number_of(found)
    if number <= 0 or number >= 1 << 63:
        raise ValueError("the revocation list has no number; sign it again with this version")
    return number, serials_of(found)


def serials_of(found: x509.CertificateRevocationList) -> tuple[str, ...]:
    return tuple(serial_text(each.serial_number) for each in found)


def _number_of(found: x509.CertificateRevocationList) -> int:
    try:
        return found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except x509.ExtensionNotFound:
        return 0


def _is_signed(found: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    key = authority.public_key()
    return isinstance(key, Ed25519PublicKey) and found.issuer == authority.subject and found.is_signature_valid(key)


def _load(path: Path, authority: x509.Certificate) -> x509.CertificateRevocationList:
    raw = read_file(path, "the revocation list")
    try:
        found = x509.load_pem_x509_crl(raw)
        is_valid = _is_signed(found, authority)
    except Exception:
        raise InvalidKeyFileError(f"the revocation list {path} is damaged: {_ADVICE}") from None
    if not is_valid:
        raise InvalidKeyFileError(
            f"the revocation list {path} was not signed by the channel's owner, or was modified: {_ADVICE}"
        )
    return found


def _serial(text: str) -> int:
    # All sixteen digits are required: a name such as "ada" is valid hex too, and would revoke nothing.
    if not _SERIAL.fullmatch(text.strip().lower()):
        raise ValueError(f"{text!r} is not a ticket serial number ({SERIAL_DIGITS} hexadecimal digits)")
    return int(text, 16)
