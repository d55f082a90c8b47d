"""What a failed TLS handshake means, in the words that peers use to refuse each other.

OpenSSL names what went wrong by strings that differ a little between versions (`SSLV3_ALERT_…`, `TLSV1_ALERT_…`,
`TLSV13_ALERT_…`, with or without `ALERT`), so they are looked up by their telling part. In TLS 1.3 a caller has
finished its handshake before the other side has looked at its certificate: its error comes with the first read.
"""

import ssl

from weft.wire.calls import Refusal

NOT_YET_VALID, HAS_EXPIRED = 9, 10
CERTIFICATE_REVOKED = 23

_BY_REASON = {
    # What the other side told us.
    "UNRECOGNIZED_NAME": Refusal.WRONG_CHANNEL,
    "UNKNOWN_CA": Refusal.WRONG_KEY,
    "CERTIFICATE_UNKNOWN": Refusal.WRONG_KEY,
    "UNSUPPORTED_CERTIFICATE": Refusal.WRONG_KEY,
    "CERTIFICATE_REQUIRED": Refusal.WRONG_KEY,
    "ALERT_DECRYPT_ERROR": Refusal.WRONG_KEY,
    "CERTIFICATE_EXPIRED": Refusal.EXPIRED,
    # OpenSSL says this of a certificate that is not valid yet, and of none other that we could show.
    "BAD_CERTIFICATE": Refusal.EXPIRED,
    "CERTIFICATE_REVOKED": Refusal.REVOKED,
    # What we found: no TLS, or none that is new enough.
    "WRONG_VERSION_NUMBER": Refusal.WRONG_MODE,
    "UNSUPPORTED_PROTOCOL": Refusal.WRONG_MODE,
    "PROTOCOL_VERSION": Refusal.WRONG_MODE,
    "HTTP_REQUEST": Refusal.WRONG_MODE,
    "HTTPS_PROXY_REQUEST": Refusal.WRONG_MODE,
    "UNEXPECTED_MESSAGE": Refusal.WRONG_MODE,
    "DECODE_ERROR": Refusal.WRONG_MODE,
    "PACKET_LENGTH_TOO_LONG": Refusal.WRONG_MODE,
    "RECORD_LAYER_FAILURE": Refusal.WRONG_MODE,
    "BAD_RECORD_TYPE": Refusal.WRONG_MODE,
    "UNKNOWN_PROTOCOL": Refusal.WRONG_MODE,
}

_WHEN_CALLED = {
    # Our own check of the name that the caller asked for.
    "CALLBACK_FAILED": Refusal.WRONG_CHANNEL,
    "DID_NOT_RETURN_A_CERTIFICATE": Refusal.WRONG_KEY,
}


def refusal_of(problem: ssl.SSLError, *, dialled: bool) -> Refusal | None:
    """Why the handshake failed, as far as the error tells; None for what is no refusal, as a line that broke.
    `dialled`: we were the one who called."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return _of_verification(problem)
    reason = (getattr(problem, "reason", None) or "").upper().replace(" ", "_")
    tables = (_BY_REASON,) if dialled else (_BY_REASON, _WHEN_CALLED)
    return next((refusal for table in tables for part, refusal in table.items() if part in reason), None)


def _of_verification(problem: ssl.SSLCertVerificationError) -> Refusal:
    code = getattr(problem, "verify_code", 0)
    if code in {NOT_YET_VALID, HAS_EXPIRED}:
        return Refusal.EXPIRED
    # All other failures are ways of not being signed by our authority.
    return Refusal.REVOKED if code == CERTIFICATE_REVOKED else Refusal.WRONG_KEY
