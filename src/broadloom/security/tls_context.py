"""The two TLS contexts of a peer, as server and as client: TLS 1.3 with certificates on both sides.

Peers have no host names, so certificates are checked by their issuer only. The server name (SNI) identifies the
channel: a listener of another channel can report that, where both sides would otherwise only see an unknown authority
and could not distinguish a wrong key from a wrong port. The application protocol (ALPN) identifies peers: a server that
does not select it is some other program, whatever its certificate is.

`reject_reason_for` maps a failed handshake to a `RejectReason`. OpenSSL's reason strings differ between versions
(`SSLV3_ALERT_…`, `TLSV1_ALERT_…`, `TLSV13_ALERT_…`, with or without `ALERT`), so they are matched by their significant
part. In TLS 1.3 the client has finished its handshake before the server checks its certificate: its error comes with
the first read.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from broadloom.security.certificates import PeerCertificate
from broadloom.security.pem import encode_pem
from broadloom.wire.exchange_messages import RejectReason

_FD_DIRECTORY = "/proc/self/fd/"
APPLICATION_PROTOCOL = "broadloom"
"""The ALPN name of every peer."""


def make_contexts(
    authority: x509.Certificate, certificate: PeerCertificate, server_name: str
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server context and the client context."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusted = authority.public_bytes(Encoding.DER)
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=trusted)
        context.set_alpn_protocols([APPLICATION_PROTOCOL])
    _load_certificate(certificate, server, client)
    # A resumed session would skip the certificates, and a ticket may have been revoked meanwhile.
    server.num_tickets = 0
    _require_server_name(server_name, server)
    return server, client


def _require_server_name(expected: str, server: ssl.SSLContext) -> None:
    def on_name(_: ssl.SSLObject | ssl.SSLSocket, requested: str | None, __: ssl.SSLContext) -> int | None:
        return None if requested == expected else ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    server.sni_callback = on_name


def _load_certificate(certificate: PeerCertificate, *contexts: ssl.SSLContext) -> None:
    with _as_file(encode_pem(certificate.key, *certificate.chain)) as path:
        for context in contexts:
            context.load_cert_chain(path)


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """`ssl` only loads keys from files. On Linux it is a file in memory, which a crash cannot leave behind; elsewhere a
    private temporary file, removed at once."""
    file, path = _open_in_memory() or tempfile.mkstemp(prefix="broadloom-")
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(content)
            stream.flush()
            yield path
    finally:
        if not path.startswith(_FD_DIRECTORY):
            Path(path).unlink()


def _open_in_memory() -> tuple[int, str] | None:
    if not hasattr(os, "memfd_create") or not Path(_FD_DIRECTORY).exists():
        return None
    file = os.memfd_create("broadloom")
    return file, f"{_FD_DIRECTORY}{file}"


NOT_YET_VALID, HAS_EXPIRED = 9, 10
CERTIFICATE_REVOKED = 23

_BY_REASON = {
    # Alerts from the other side.
    "UNRECOGNIZED_NAME": RejectReason.WRONG_CHANNEL,
    "UNKNOWN_CA": RejectReason.WRONG_KEY,
    "CERTIFICATE_UNKNOWN": RejectReason.WRONG_KEY,
    "UNSUPPORTED_CERTIFICATE": RejectReason.WRONG_KEY,
    "CERTIFICATE_REQUIRED": RejectReason.WRONG_KEY,
    "ALERT_DECRYPT_ERROR": RejectReason.WRONG_KEY,
    "CERTIFICATE_EXPIRED": RejectReason.TICKET_EXPIRED,
    # For the certificates used here, OpenSSL reports this only if one is not valid yet.
    "BAD_CERTIFICATE": RejectReason.TICKET_EXPIRED,
    "CERTIFICATE_REVOKED": RejectReason.TICKET_REVOKED,
    # Local errors: no TLS, or a version that is too old.
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
    # An alert of servers that know other application protocols only.
    "NO_APPLICATION_PROTOCOL": RejectReason.WRONG_PROTOCOL,
}

_BY_REASON_AS_RESPONDER = {
    # `_require_server_name`.
    "CALLBACK_FAILED": RejectReason.WRONG_CHANNEL,
    "DID_NOT_RETURN_A_CERTIFICATE": RejectReason.WRONG_KEY,
}


def reject_reason_for(problem: ssl.SSLError, *, is_initiator: bool) -> RejectReason | None:
    """Why the handshake failed; None if the error is not a rejection, such as a broken connection."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return _verification_reason(problem)
    reason = (getattr(problem, "reason", None) or "").upper().replace(" ", "_")
    tables = (_BY_REASON,) if is_initiator else (_BY_REASON, _BY_REASON_AS_RESPONDER)
    return next((reject_reason for table in tables for part, reject_reason in table.items() if part in reason), None)


class HandshakeFailure(NamedTuple):
    reason: RejectReason | None
    """Why the other end does not admit us, or cannot be used."""
    foreign: str = ""
    """What the other end is, if it is not a member: another program, or a former member."""


FORMER_MEMBERS = {
    RejectReason.TICKET_EXPIRED: "a peer whose ticket has expired, or seems so by the clock of this machine",
    RejectReason.TICKET_REVOKED: "a peer whose ticket was revoked",
}
_KEY_REASONS = (RejectReason.WRONG_KEY, *FORMER_MEMBERS)


def former_member(reason: RejectReason) -> HandshakeFailure:
    """We reject the other end. That says nothing about our own access, unless the keys differ."""
    foreign = FORMER_MEMBERS.get(reason, "")
    return HandshakeFailure(None if foreign else reason, foreign)


def explain_as_initiator(problem: ssl.SSLError, *, is_peer: bool) -> HandshakeFailure:
    """What a failed handshake tells the initiator. `is_peer`: the other end has selected our application protocol."""
    reason = reject_reason_for(problem, is_initiator=True)
    if reason in _KEY_REASONS and not is_peer:
        return HandshakeFailure(RejectReason.WRONG_PROTOCOL, "another TLS server")
    if isinstance(problem, ssl.SSLCertVerificationError) and problem.verify_code != NOT_YET_VALID:
        return former_member(_verification_reason(problem))
    return HandshakeFailure(reason)


def _verification_reason(problem: ssl.SSLCertVerificationError) -> RejectReason:
    code = getattr(problem, "verify_code", 0)
    if code in {NOT_YET_VALID, HAS_EXPIRED}:
        return RejectReason.TICKET_EXPIRED
    # All other failures mean that our authority has not signed the certificate.
    return RejectReason.TICKET_REVOKED if code == CERTIFICATE_REVOKED else RejectReason.WRONG_KEY
