"""What TLS errors mean, by the errors that OpenSSL really gives, and by variants of other versions."""

import ssl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.security.meeting import CLUB, Contexts, Outcome, bytes_for_a_caller, bytes_for_one_who_was_called, meet
from weft.security import Membership, refusal_of
from weft.wire import encode
from weft.wire.calls import Connected, Refusal, Refuse

MEMBER = Membership.from_key(CLUB, "weft-" + "a" * 52)
CONNECTED = encode(Connected())
REFUSE = encode(Refuse(Refusal.NOT_WEFT, "no"))


@pytest.mark.parametrize(
    "sent",
    [CONNECTED, REFUSE, b"GET / HTTP/1.1\r\n\r\n", b"CONNECT a:1 HTTP/1.1\r\n", b"SSH-2.0-OpenSSH\r\n", bytes(64)],
)
def test_one_who_does_not_speak_tls_is_recognised(sent: bytes) -> None:
    assert refusal_of(bytes_for_one_who_was_called(MEMBER, sent), dialled=False) is Refusal.WRONG_MODE
    assert refusal_of(bytes_for_a_caller(MEMBER, sent), dialled=True) is Refusal.WRONG_MODE


@pytest.mark.parametrize("sent", [b"", b"\x16\x03"])
def test_a_line_that_breaks_is_no_refusal(sent: bytes) -> None:
    assert refusal_of(bytes_for_one_who_was_called(MEMBER, sent), dialled=False) is None
    assert refusal_of(bytes_for_a_caller(MEMBER, sent), dialled=True) is None


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_no_bytes_are_taken_for_a_wrong_key(sent: bytes) -> None:
    expected = {None, Refusal.WRONG_MODE, Refusal.WRONG_CHANNEL}
    assert refusal_of(bytes_for_one_who_was_called(MEMBER, sent), dialled=False) in expected


def stranger(*, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3, server_name: str = MEMBER.server_name) -> Contexts:
    """Speaks TLS, has no certificate and asks for none."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    client.maximum_version = newest
    return Contexts(client, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), server_name)


def test_one_without_a_certificate_does_not_get_in() -> None:
    refused = Outcome(None, Refusal.WRONG_KEY)
    assert meet(stranger(), MEMBER) == (refused, refused)


def test_one_who_asks_for_nothing_or_something_else_is_told_no_more() -> None:
    refused = Outcome(None, Refusal.WRONG_CHANNEL)
    for asked in ("example.org", "x" + MEMBER.server_name):
        assert meet(stranger(server_name=asked), MEMBER) == (refused, refused)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    called = MEMBER.server_context.wrap_bio(there, back, server_side=True)
    caller = stranger().client_context.wrap_bio(back, there)
    with pytest.raises(ssl.SSLWantReadError):
        caller.do_handshake()
    with pytest.raises(ssl.SSLError) as caught:
        called.do_handshake()
    assert refusal_of(caught.value, dialled=False) is Refusal.WRONG_CHANNEL
    with pytest.raises(ssl.SSLError) as caught:
        caller.do_handshake()
    assert refusal_of(caught.value, dialled=True) is Refusal.WRONG_CHANNEL


def test_old_tls_is_refused() -> None:
    refused = Outcome(None, Refusal.WRONG_MODE)
    assert meet(stranger(newest=ssl.TLSVersion.TLSv1_2), MEMBER) == (refused, refused)


def an_error(reason: str | None) -> ssl.SSLError:
    error = ssl.SSLError(1, "made up")
    if reason is not None:
        error.reason = reason
    return error


@pytest.mark.parametrize(
    ("reason", "refusal"),
    [
        ("TLSV1_ALERT_UNKNOWN_CA", Refusal.WRONG_KEY),
        ("TLSV1_ALERT_DECRYPT_ERROR", Refusal.WRONG_KEY),
        ("SSL/TLS_ALERT_UNKNOWN_CA", Refusal.WRONG_KEY),
        ("SSLV3_ALERT_CERTIFICATE_UNKNOWN", Refusal.WRONG_KEY),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", Refusal.WRONG_KEY),
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", Refusal.EXPIRED),
        ("ssl/tls alert certificate expired", Refusal.EXPIRED),
        ("SSLV3_ALERT_CERTIFICATE_REVOKED", Refusal.REVOKED),
        ("TLSV1_UNRECOGNIZED_NAME", Refusal.WRONG_CHANNEL),
        ("TLSV1_ALERT_UNRECOGNIZED_NAME", Refusal.WRONG_CHANNEL),
        ("WRONG_VERSION_NUMBER", Refusal.WRONG_MODE),
        ("RECORD_LAYER_FAILURE", Refusal.WRONG_MODE),
        ("UNEXPECTED_MESSAGE", Refusal.WRONG_MODE),
        ("UNEXPECTED_EOF_WHILE_READING", None),
        ("TLSV1_ALERT_INTERNAL_ERROR", None),
        ("APPLICATION_DATA_AFTER_CLOSE_NOTIFY", None),
        ("", None),
        (None, None),
    ],
)
def test_reasons_are_recognised_by_their_telling_part(reason: str | None, refusal: Refusal | None) -> None:
    for dialled in (True, False):
        assert refusal_of(an_error(reason), dialled=dialled) is refusal


def test_our_own_check_fails_only_when_we_were_called() -> None:
    assert refusal_of(an_error("CALLBACK_FAILED"), dialled=False) is Refusal.WRONG_CHANNEL
    assert refusal_of(an_error("CALLBACK_FAILED"), dialled=True) is None


@pytest.mark.parametrize(
    ("code", "refusal"),
    [
        (7, Refusal.WRONG_KEY),
        (9, Refusal.EXPIRED),
        (10, Refusal.EXPIRED),
        (18, Refusal.WRONG_KEY),
        (19, Refusal.WRONG_KEY),
        (20, Refusal.WRONG_KEY),
        (23, Refusal.REVOKED),
        (25, Refusal.WRONG_KEY),
    ],
)
def test_what_our_own_verification_finds(code: int, refusal: Refusal) -> None:
    error = ssl.SSLCertVerificationError(1, "made up")
    error.verify_code = code
    assert refusal_of(error, dialled=True) is refusal
