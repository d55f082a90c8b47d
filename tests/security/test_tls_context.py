"""What TLS errors mean, by the errors that OpenSSL really gives, and by variants of other versions."""

import ssl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.security import PeerCredentials, reject_reason_for
from broadloom.wire import encode
from broadloom.wire.exchange_messages import Reject, RejectReason, SeekerJoined
from tests.security.tls_handshake import (
    CLUB,
    Contexts,
    HandshakeResult,
    handshake,
    initiator_tls_error,
    responder_tls_error,
)

MEMBER = PeerCredentials.from_key(CLUB, "broadloom-" + "a" * 52)
CONNECTED = encode(SeekerJoined())
REJECT = encode(Reject(RejectReason.WRONG_PROTOCOL, "no"))


@pytest.mark.parametrize(
    "sent",
    [CONNECTED, REJECT, b"GET / HTTP/1.1\r\n\r\n", b"CONNECT a:1 HTTP/1.1\r\n", b"SSH-2.0-OpenSSH\r\n", bytes(64)],
)
def test_plain_text_is_reported_as_tls_mismatch(sent: bytes) -> None:
    assert reject_reason_for(responder_tls_error(MEMBER, sent), is_initiator=False) is RejectReason.TLS_MISMATCH
    assert reject_reason_for(initiator_tls_error(MEMBER, sent), is_initiator=True) is RejectReason.TLS_MISMATCH


@pytest.mark.parametrize("sent", [b"", b"\x16\x03"])
def test_broken_connection_is_not_a_rejection(sent: bytes) -> None:
    assert reject_reason_for(responder_tls_error(MEMBER, sent), is_initiator=False) is None
    assert reject_reason_for(initiator_tls_error(MEMBER, sent), is_initiator=True) is None


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_random_bytes_are_never_reported_as_wrong_key(sent: bytes) -> None:
    expected = {None, RejectReason.TLS_MISMATCH, RejectReason.WRONG_CHANNEL}
    assert reject_reason_for(responder_tls_error(MEMBER, sent), is_initiator=False) in expected


def stranger(*, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3, server_name: str = MEMBER.server_name) -> Contexts:
    """Speaks TLS, has no certificate and asks for none."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    client.maximum_version = newest
    return Contexts(client, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), server_name)


def test_client_without_certificate_is_rejected() -> None:
    refused = HandshakeResult(None, RejectReason.WRONG_KEY)
    assert handshake(stranger(), MEMBER) == (refused, refused)


def test_client_with_wrong_server_name_learns_only_that() -> None:
    refused = HandshakeResult(None, RejectReason.WRONG_CHANNEL)
    for asked in ("example.org", "x" + MEMBER.server_name):
        assert handshake(stranger(server_name=asked), MEMBER) == (refused, refused)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    called = MEMBER.server_context.wrap_bio(there, back, server_side=True)
    caller = stranger().client_context.wrap_bio(back, there)
    with pytest.raises(ssl.SSLWantReadError):
        caller.do_handshake()
    with pytest.raises(ssl.SSLError) as caught:
        called.do_handshake()
    assert reject_reason_for(caught.value, is_initiator=False) is RejectReason.WRONG_CHANNEL
    with pytest.raises(ssl.SSLError) as caught:
        caller.do_handshake()
    assert reject_reason_for(caught.value, is_initiator=True) is RejectReason.WRONG_CHANNEL


def test_old_tls_version_is_rejected() -> None:
    refused = HandshakeResult(None, RejectReason.TLS_MISMATCH)
    assert handshake(stranger(newest=ssl.TLSVersion.TLSv1_2), MEMBER) == (refused, refused)


def make_ssl_error(reason: str | None) -> ssl.SSLError:
    error = ssl.SSLError(1, "made up")
    if reason is not None:
        error.reason = reason
    return error


@pytest.mark.parametrize(
    ("reason", "refusal"),
    [
        ("TLSV1_ALERT_UNKNOWN_CA", RejectReason.WRONG_KEY),
        ("TLSV1_ALERT_DECRYPT_ERROR", RejectReason.WRONG_KEY),
        ("SSL/TLS_ALERT_UNKNOWN_CA", RejectReason.WRONG_KEY),
        ("SSLV3_ALERT_CERTIFICATE_UNKNOWN", RejectReason.WRONG_KEY),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", RejectReason.WRONG_KEY),
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", RejectReason.TICKET_EXPIRED),
        ("ssl/tls alert certificate expired", RejectReason.TICKET_EXPIRED),
        ("SSLV3_ALERT_CERTIFICATE_REVOKED", RejectReason.TICKET_REVOKED),
        ("TLSV1_UNRECOGNIZED_NAME", RejectReason.WRONG_CHANNEL),
        ("TLSV1_ALERT_UNRECOGNIZED_NAME", RejectReason.WRONG_CHANNEL),
        ("WRONG_VERSION_NUMBER", RejectReason.TLS_MISMATCH),
        ("RECORD_LAYER_FAILURE", RejectReason.TLS_MISMATCH),
        ("UNEXPECTED_MESSAGE", RejectReason.TLS_MISMATCH),
        ("UNEXPECTED_EOF_WHILE_READING", None),
        ("TLSV1_ALERT_INTERNAL_ERROR", None),
        ("APPLICATION_DATA_AFTER_CLOSE_NOTIFY", None),
        ("", None),
        (None, None),
    ],
)
def test_openssl_reason_maps_to_reject_reason(reason: str | None, refusal: RejectReason | None) -> None:
    for dialled in (True, False):
        assert reject_reason_for(make_ssl_error(reason), is_initiator=dialled) is refusal


def test_server_name_callback_error_applies_to_responder_only() -> None:
    assert reject_reason_for(make_ssl_error("CALLBACK_FAILED"), is_initiator=False) is RejectReason.WRONG_CHANNEL
    assert reject_reason_for(make_ssl_error("CALLBACK_FAILED"), is_initiator=True) is None


@pytest.mark.parametrize(
    ("code", "refusal"),
    [
        (7, RejectReason.WRONG_KEY),
        (9, RejectReason.TICKET_EXPIRED),
        (10, RejectReason.TICKET_EXPIRED),
        (18, RejectReason.WRONG_KEY),
        (19, RejectReason.WRONG_KEY),
        (20, RejectReason.WRONG_KEY),
        (23, RejectReason.TICKET_REVOKED),
        (25, RejectReason.WRONG_KEY),
    ],
)
def test_verification_error_maps_to_reject_reason(code: int, refusal: RejectReason) -> None:
    error = ssl.SSLCertVerificationError(1, "made up")
    error.verify_code = code
    assert reject_reason_for(error, is_initiator=True) is refusal
