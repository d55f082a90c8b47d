"""The two TLS contexts of a peer: one to be called, one to call. TLS 1.3, with certificates on both sides.

Certificates are good by who signed them, not by host names: peers have none. What a caller asks for by name (SNI) is
the channel, so that a listener of another channel can say so; otherwise all that both would see is an authority that
they do not know, and nobody could tell a wrong key from a wrong port.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from broadloom.security.certificates import PeerCertificate
from broadloom.security.pem import encode_pem
from broadloom.wire.exchange_messages import RejectReason

_OPEN_FILES = "/proc/self/fd/"


def make_contexts(
    authority: x509.Certificate, leaf: PeerCertificate, server_name: str
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For the one who is called, and for the one who calls."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusted = authority.public_bytes(Encoding.DER)
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=trusted)
    _load_certificate(leaf, server, client)
    # A resumed session would do without certificates, and a ticket may have been withdrawn meanwhile.
    server.num_tickets = 0
    _require_server_name(server_name, server)
    return server, client


def _require_server_name(expected: str, server: ssl.SSLContext) -> None:
    def on_name(_: ssl.SSLObject | ssl.SSLSocket, asked: str | None, __: ssl.SSLContext) -> int | None:
        return None if asked == expected else ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    server.sni_callback = on_name


def _load_certificate(leaf: PeerCertificate, *contexts: ssl.SSLContext) -> None:
    with _as_file(encode_pem(leaf.key, *leaf.chain)) as path:
        for context in contexts:
            context.load_cert_chain(path)


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """`ssl` reads keys from files only, so ours is one for a moment: in memory, where the system can do that (Linux),
    because a file that a crash leaves behind would let its finder into the channel. Elsewhere it is one that only we
    can read, and it is gone at once."""
    file, path = _open_in_memory() or tempfile.mkstemp(prefix="broadloom-")
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(content)
            stream.flush()
            yield path
    finally:
        if not path.startswith(_OPEN_FILES):
            Path(path).unlink()


def _open_in_memory() -> tuple[int, str] | None:
    if not hasattr(os, "memfd_create") or not Path(_OPEN_FILES).exists():
        return None
    file = os.memfd_create("broadloom")
    return file, f"{_OPEN_FILES}{file}"


# What a failed TLS handshake means, in the words that peers use to refuse each other.
#
# OpenSSL names what went wrong by strings that differ a little between versions (`SSLV3_ALERT_…`, `TLSV1_ALERT_…`,
# `TLSV13_ALERT_…`, with or without `ALERT`), so they are looked up by their telling part. In TLS 1.3 a caller has
# finished its handshake before the other side has looked at its certificate: its error comes with the first read.


NOT_YET_VALID, HAS_EXPIRED = 9, 10
CERTIFICATE_REVOKED = 23

_BY_REASON = {
    # What the other side told us.
    "UNRECOGNIZED_NAME": RejectReason.WRONG_CHANNEL,
    "UNKNOWN_CA": RejectReason.WRONG_KEY,
    "CERTIFICATE_UNKNOWN": RejectReason.WRONG_KEY,
    "UNSUPPORTED_CERTIFICATE": RejectReason.WRONG_KEY,
    "CERTIFICATE_REQUIRED": RejectReason.WRONG_KEY,
    "ALERT_DECRYPT_ERROR": RejectReason.WRONG_KEY,
    "CERTIFICATE_EXPIRED": RejectReason.TICKET_EXPIRED,
    # OpenSSL says this of a certificate that is not valid yet, and of none other that we could show.
    "BAD_CERTIFICATE": RejectReason.TICKET_EXPIRED,
    "CERTIFICATE_REVOKED": RejectReason.TICKET_REVOKED,
    # What we found: no TLS, or none that is new enough.
    "WRONG_VERSION_NUMBER": RejectReason.TLS_MISMATCH,
    "UNSUPPORTED_PROTOCOL": RejectReason.TLS_MISMATCH,
    "PROTOCOL_VERSION": RejectReason.TLS_MISMATCH,
    "HTTP_REQUEST": RejectReason.TLS_MISMATCH,
    "HTTPS_PROXY_REQUEST": RejectReason.TLS_MISMATCH,
    "UNEXPECTED_MESSAGE": RejectReason.TLS_MISMATCH,
    "DECODE_ERROR": RejectReason.TLS_MISMATCH,
    "PACKET_LENGTH_TOO_LONG": RejectReason.TLS_MISMATCH,
    "RECORD_LAYER_FAILURE": RejectReason.TLS_MISMATCH,
    "BAD_RECORD_TYPE": RejectReason.TLS_MISMATCH,
    "UNKNOWN_PROTOCOL": RejectReason.TLS_MISMATCH,
}

_BY_REASON_AS_RESPONDER = {
    # Our own check of the name that the caller asked for.
    "CALLBACK_FAILED": RejectReason.WRONG_CHANNEL,
    "DID_NOT_RETURN_A_CERTIFICATE": RejectReason.WRONG_KEY,
}


def reject_reason_for(problem: ssl.SSLError, *, is_initiator: bool) -> RejectReason | None:
    """Why the handshake failed, as far as the error tells; None for what is no refusal, as a line that broke.
    `dialled`: we were the one who called."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return _verification_reason(problem)
    reason = (getattr(problem, "reason", None) or "").upper().replace(" ", "_")
    tables = (_BY_REASON,) if is_initiator else (_BY_REASON, _BY_REASON_AS_RESPONDER)
    return next((refusal for table in tables for part, refusal in table.items() if part in reason), None)


def _verification_reason(problem: ssl.SSLCertVerificationError) -> RejectReason:
    code = getattr(problem, "verify_code", 0)
    if code in {NOT_YET_VALID, HAS_EXPIRED}:
        return RejectReason.TICKET_EXPIRED
    # All other failures are ways of not being signed by our authority.
    return RejectReason.TICKET_REVOKED if code == CERTIFICATE_REVOKED else RejectReason.WRONG_KEY
