"""The log of an auction, as a file or on a tape, and its verification: anyone can repeat the auction from it.

JSON lines: a head with the name, the notaries and the certificate of the authority, then every entry as it was ordered,
with its author's signature. Nothing in it has to be trusted but the authority.
"""

import base64
import json
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding

from broadloom.apps.auction.errors import AlteredLogError, AuctionError
from broadloom.apps.auction.ledger import Ledger, notary_names
from broadloom.apps.auction.statements import Verify
from broadloom.apps.tape_log import log_lines
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
    lines = [head_line(ledger, authority), *(entry_line(*each) for each in ledger.records)]
    replace_public(path, "".join(lines).encode())


def head_line(ledger: Ledger, authority: x509.Certificate) -> str:
    der = authority.public_bytes(Encoding.DER)
    head = {"version": VERSION, "auction": ledger.auction, "notaries": ledger.notaries, "authority": _base64(der)}
    return f"{json.dumps(head)}\n"


def entry_line(number: int, data: bytes) -> str:
    return f"{json.dumps({'number': number, 'entry': _base64(data)})}\n"


def read_log(
    path: str | os.PathLike[str],
    authority: x509.Certificate | None = None,
    notaries: int | Sequence[str] = 3,
    *,
    number: int | None = None,
) -> tuple[Ledger, str]:
    """Repeat an auction. Returns its ledger, and the fingerprint of its authority. `path` is a log file, or a tape with
    payloads: a directory or a file; `number` chooses one of several auctions on it, from 1. Raises `AlteredLogError` if
    the log is not what the auctioneers have signed, or not of this authority or these notaries, `AuctionError` if a
    tape does not have all of it, and `OSError`."""
    names = notary_names(notaries)
    lines = _lines(Path(path), number)
    try:
        _, head = next(lines)
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
    for place, line in lines:
        try:
            ledger.apply(line["number"], base64.b64decode(line["entry"], validate=True))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            raise AlteredLogError(f"{path}: line {place} is damaged, or not in order") from None
    if (disputed := ledger.disputed) is not None:
        author, statement = disputed.signed
        raise AlteredLogError(
            f"{path} was altered: {author} has signed another list up to entry {statement.after}, or lies, and no "
            "other notary has signed this list later; compare it with the log of another member"
        )
    return ledger, fingerprint_of(key)


def _lines(path: Path, number: int | None) -> Iterator[tuple[int, dict[str, Any]]]:
    for place, line in enumerate(log_lines(path, "auction", AuctionError, number, LINE_BYTES_MAX), 1):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise AlteredLogError(f"{path}: line {place} is damaged")
        yield place, value


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
