"""The log of an auction as a file, and its verification: anyone can repeat the auction from it.

JSON lines: a head with the name, the notaries and the certificate of the authority, then every entry as it was ordered,
with its author's signature. Nothing in it has to be trusted but the authority.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding

from broadloom.apps.auction.errors import AlteredLogError
from broadloom.apps.auction.ledger import Ledger, notary_names
from broadloom.apps.auction.statements import Verify
from broadloom.protocol import ChannelName
from broadloom.security.authority import is_for_channel
from broadloom.security.certificates import utc_now
from broadloom.security.keys import fingerprint_of
from broadloom.security.pem import replace_public
from broadloom.security.post_signer import POST_PREFIX
from broadloom.security.verification import CertificateVerifier, Statements

VERSION = 1
LINE_BYTES_MAX = 200_000
"""An entry has at most 64 KiB."""


def verifier(authority: x509.Certificate, auction: str) -> Verify:
    """Verifies statements with nothing but the certificate of the channel's authority. Tickets that were revoked since
    count, or members would disagree on the past; the channel keeps their holders out."""
    statements = Statements(CertificateVerifier(authority, None, utc_now, tickets=True))
    prefix = POST_PREFIX + ChannelName.parse(auction).id

    def verify(credential: bytes, data: bytes, signature: bytes, at_ms: int) -> str | None:
        try:
            at = datetime.fromtimestamp(at_ms / 1000, UTC)
        except (OverflowError, OSError, ValueError):
            return None
        return statements.verify(credential, prefix + data, signature, at, even_if_revoked=True)

    return verify


def write_log(path: Path, ledger: Ledger, authority: x509.Certificate) -> None:
    """Replaces a file atomically."""
    der = authority.public_bytes(Encoding.DER)
    head = {"version": VERSION, "auction": ledger.auction, "notaries": ledger.notaries, "authority": _base64(der)}
    lines = [head, *({"number": each.number, "entry": _base64(each.data)} for each in ledger.records)]
    replace_public(path, "".join(f"{json.dumps(each)}\n" for each in lines).encode())


def read_log(
    path: Path, authority: x509.Certificate | None = None, notaries: int | Sequence[str] = 3
) -> tuple[Ledger, str]:
    """Repeat an auction. Returns its ledger, and the fingerprint of its authority. Raises `AlteredLogError` if the log
    is not what the auctioneers have signed, or not of this authority or these notaries, and `OSError`."""
    names = notary_names(notaries)
    lines = _lines(path)
    try:
        number, head = next(lines)
        auction, found_names = head["auction"], tuple(head["notaries"])
        found = x509.load_der_x509_certificate(base64.b64decode(head["authority"], validate=True))
        key = found.public_key()
        if head["version"] != VERSION or not all(isinstance(each, str) for each in found_names):
            raise ValueError("another version")
        if not isinstance(key, Ed25519PublicKey) or not is_for_channel(found, ChannelName.parse(auction).id):
            raise ValueError("another channel")
    except (StopIteration, KeyError, TypeError, ValueError):
        raise AlteredLogError(f"{path} is not the log of an auction: `broadloom auction export` writes one") from None
    if authority is not None and found != authority:
        raise AlteredLogError(f"{path} is not of the authority that issued your ticket: its results mean nothing")
    if found_names != names:
        raise AlteredLogError(
            f"{path} names {len(found_names)} notaries, {', '.join(map(repr, found_names[:9]))}, where "
            f"{', '.join(names)} are expected: if the auction has another number of them, give it"
        )
    ledger = Ledger(auction, names, verifier(found, auction))
    for number, line in lines:
        try:
            ledger.apply(line["number"], base64.b64decode(line["entry"], validate=True))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            raise AlteredLogError(f"{path}: line {number} is damaged, or not in order") from None
    if (disputed := ledger.disputed) is not None:
        author, statement = disputed.said
        raise AlteredLogError(
            f"{path} was altered: {author} has signed another list up to entry {statement.after}, or lies, and no "
            "other notary has signed this list later; compare it with the log of another member"
        )
    return ledger, fingerprint_of(key)


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES_MAX), b""), 1):
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                value = None
            if not isinstance(value, dict):
                raise AlteredLogError(f"{path}: line {number} is damaged")
            yield number, value


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
