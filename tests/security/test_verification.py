"""Signatures, and the credentials that they are checked with: forged ones in every way that we could think of."""

from collections import Counter
from contextlib import suppress
from datetime import datetime

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.protocol.identity import CredentialError, Role, Signer
from broadloom.security import Authority, PeerCredentials, Ticket, generate_key
from broadloom.security.card import SIGNATURE_BYTES
from broadloom.security.certificates import (
    TICKET_EXTENSION,
    PeerCertificate,
    build_certificate,
    new_peer_certificate,
    x509_name,
)
from broadloom.security.keys import peer_id_of
from broadloom.security.tls_context import make_contexts
from broadloom.security.verification import CREDENTIAL_BYTES_MAX, CertificateVerifier, PastCredential, Statements
from broadloom.wire.exchange_messages import RejectReason
from tests.security.tls_handshake import CLUB, DAY, TODAY, Contexts, HandshakeResult, handshake, make_ticket

KEY = generate_key()
OWNER = Authority.generate()
TICKET = make_ticket(OWNER, "ada", Role.CONSUMER)
MEMBER = PeerCredentials.from_ticket(CLUB, make_ticket(OWNER, "bob"))
KEY_MEMBER = PeerCredentials(CLUB, OWNER.certificate, OWNER.issue_certificate())
"""As with a shared key: the authority has signed its certificate without a ticket."""
WEEK = TODAY - DAY, TODAY + 6 * DAY


def two_members() -> tuple[PeerCredentials, PeerCredentials]:
    return PeerCredentials.from_key(CLUB, KEY), PeerCredentials.from_key(CLUB, KEY)


def reject_reason(credential: bytes, member: PeerCredentials = MEMBER) -> RejectReason:
    with pytest.raises(CredentialError) as caught:
        member.identify(credential)
    return caught.value.reason


def certificate(
    issuer: x509.Certificate,
    issuer_key: Ed25519PrivateKey,
    key: Ed25519PrivateKey,
    *,
    subject: x509.Name | None = None,
    signs: int | None = None,
    ticket: x509.Certificate | None = None,
    validity: tuple[datetime, datetime] = WEEK,
) -> x509.Certificate:
    subject = subject or x509_name("forged")
    return build_certificate(
        subject, key.public_key(), issuer.subject, issuer_key, validity, serial=7, path_length=signs, ticket=ticket
    )


def der(made: x509.Certificate) -> bytes:
    return made.public_bytes(Encoding.DER)


def assert_handshake_rejected(*peer_certificates: PeerCertificate) -> None:
    """Neither TLS nor what comes after it lets the holder in, whether it calls or is called."""
    for peer_certificate in peer_certificates:
        contexts = make_contexts(OWNER.certificate, peer_certificate, MEMBER.server_name)
        stranger = Contexts(contexts[1], contexts[0], MEMBER.server_name)
        assert handshake(stranger, MEMBER)[1] == HandshakeResult(None, RejectReason.WRONG_KEY)
        assert handshake(MEMBER, stranger)[0] == HandshakeResult(None, RejectReason.WRONG_KEY)


# -- signatures


@settings(deadline=None, max_examples=30)
@given(st.binary(max_size=200))
def test_signature_verifies_for_author_and_data_only(data: bytes) -> None:
    author, reader = two_members()
    signer: Signer = author.signer
    identity, check = reader.signer.verify_credential(author.peer_id, signer.credential)
    assert identity == author.identity
    signature = signer.sign(data)
    assert len(signature) == SIGNATURE_BYTES
    assert check(data, signature)
    assert not check(data + b"!", signature)
    assert not check(data, reader.signer.sign(data))


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=100))
def test_invalid_signature_is_rejected_without_error(signature: bytes) -> None:
    _, check = MEMBER.signer.verify_credential(MEMBER.peer_id, MEMBER.signer.credential)
    assert not check(b"e4", signature)


def test_signature_covers_message_prefix() -> None:
    # The session key also signs TLS handshakes: what a peer signs as a message must never pass for one.
    author, _ = two_members()
    key = x509.load_der_x509_certificate(author.signer.credential).public_key()
    assert isinstance(key, Ed25519PublicKey)
    with pytest.raises(InvalidSignature):
        key.verify(author.signer.sign(b"data"), b"data")


# -- peer ids


def test_credential_of_another_peer_id_is_rejected() -> None:
    author, reader = two_members()
    for claimed in (reader.peer_id, author.peer_id ^ 1, 0):
        with pytest.raises(CredentialError) as caught:
            reader.signer.verify_credential(claimed, author.signer.credential)
        assert caught.value.reason is RejectReason.PEER_ID_MISMATCH


def test_peer_id_comes_from_key_not_from_subject() -> None:
    key, victim = Ed25519PrivateKey.generate(), PeerCredentials.from_ticket(CLUB, TICKET)
    shown = certificate(
        TICKET.certificate, TICKET.key, key, subject=x509_name(f"{victim.peer_id:016x}"), ticket=TICKET.certificate
    )
    assert MEMBER.identify(der(shown)).peer_id == peer_id_of(key.public_key(), TICKET.certificate) != victim.peer_id


def test_one_key_with_two_tickets_has_two_peer_ids() -> None:
    """Otherwise two certificates on one key would make honest peers judge the same author differently."""
    key, producer = Ed25519PrivateKey.generate(), make_ticket(OWNER, "eve", Role.PRODUCER)
    ids = {
        MEMBER.identify(der(certificate(each.certificate, each.key, key, ticket=each.certificate))).peer_id
        for each in (TICKET, producer)
    }
    assert len(ids) == 2


def test_peer_id_of_key_is_stable_across_versions() -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()
    assert f"{peer_id_of(key):016x}" == "1a47740c0f73ce70"


# -- forged certificates


def test_credential_of_another_channel_key_is_rejected() -> None:
    assert reject_reason(PeerCredentials.from_key(CLUB, KEY).signer.credential) is RejectReason.WRONG_KEY
    assert reject_reason(MEMBER.signer.credential, PeerCredentials.from_key(CLUB, KEY)) is RejectReason.WRONG_KEY


def test_self_signed_certificate_is_rejected() -> None:
    key = Ed25519PrivateKey.generate()
    same_name = build_certificate(
        OWNER.certificate.subject, key.public_key(), OWNER.certificate.subject, key, WEEK, serial=1, path_length=1
    )
    peer_certificate = new_peer_certificate(same_name, key, TODAY, ticket=False)
    assert reject_reason(peer_certificate.der) is RejectReason.WRONG_KEY
    assert_handshake_rejected(peer_certificate)
    assert reject_reason(make_ticket(Authority(same_name, key)).issue_certificate().der) is RejectReason.WRONG_KEY


@pytest.mark.parametrize("signs", [None, 0])
def test_peer_certificate_cannot_issue_certificates(signs: int | None) -> None:
    for parent in (OWNER.issue_certificate(), TICKET.issue_certificate()):
        child = Ed25519PrivateKey.generate()
        for inside in (None, parent.certificate, TICKET.certificate):
            made = certificate(parent.certificate, parent.key, child, signs=signs, ticket=inside)
            assert reject_reason(der(made)) is RejectReason.WRONG_KEY
            assert_handshake_rejected(PeerCertificate(child, (made, *parent.chain)))


def test_ticket_cannot_issue_tickets() -> None:
    own = Ed25519PrivateKey.generate()
    subject = x509_name("mallory", unit=Role.PRODUCER.value)
    second = certificate(TICKET.certificate, TICKET.key, own, subject=subject, signs=0)
    peer_certificate = Ticket(second, own, OWNER.certificate).issue_certificate()
    assert reject_reason(peer_certificate.der) is RejectReason.WRONG_KEY
    assert_handshake_rejected(peer_certificate._replace(chain=(*peer_certificate.chain, TICKET.certificate)))


def test_ticket_holder_cannot_change_its_role() -> None:
    own = Ed25519PrivateKey.generate()
    subject = x509_name("bob", unit=Role.PRODUCER.value)
    # The subject of the peer certificate does not count.
    shown = certificate(TICKET.certificate, TICKET.key, own, subject=subject, ticket=TICKET.certificate)
    found = MEMBER.identify(der(shown))
    assert (found.name, found.role) == ("ada", Role.CONSUMER)
    # Nor does an embedded ticket of another member.
    producer = make_ticket(OWNER, "bob")
    borrowed = certificate(TICKET.certificate, TICKET.key, own, ticket=producer.certificate)
    assert reject_reason(der(borrowed)) is RejectReason.WRONG_KEY
    # Nor a ticket with the same words that the holder wrote itself.
    written = certificate(OWNER.certificate, TICKET.key, TICKET.key, subject=subject, signs=0)
    assert (
        reject_reason(Ticket(written, TICKET.key, OWNER.certificate).issue_certificate().der) is RejectReason.WRONG_KEY
    )


def test_certificate_without_embedded_ticket_is_rejected() -> None:
    own = Ed25519PrivateKey.generate()
    bare = certificate(TICKET.certificate, TICKET.key, own)
    assert reject_reason(der(bare)) is RejectReason.WRONG_KEY
    assert_handshake_rejected(PeerCertificate(own, (bare, TICKET.certificate)))


def test_ticket_presented_as_peer_certificate_is_rejected() -> None:
    # Signed by the authority, and its holder has the key: accepted, it would turn a consumer into a producer.
    assert reject_reason(der(TICKET.certificate)) is RejectReason.WRONG_KEY
    assert_handshake_rejected(PeerCertificate(TICKET.key, (TICKET.certificate,)))


def test_authority_certificate_is_rejected_as_peer_certificate() -> None:
    assert reject_reason(der(OWNER.certificate)) is RejectReason.WRONG_KEY


@pytest.mark.parametrize(
    ("signs", "subject"),
    [
        (None, x509_name("ada", unit="producer")),
        (1, x509_name("ada", unit="producer")),
        (0, x509_name("ada", unit="king")),
        (0, x509_name("ada")),
    ],
)
def test_other_certificate_of_authority_is_not_accepted_as_ticket(signs: int | None, subject: x509.Name) -> None:
    key = Ed25519PrivateKey.generate()
    strange = certificate(OWNER.certificate, OWNER.private_key(), key, subject=subject, signs=signs)
    assert reject_reason(Ticket(strange, key, OWNER.certificate).issue_certificate().der) is RejectReason.WRONG_KEY


@pytest.mark.parametrize("wrong", [(TODAY - 3 * DAY, TODAY - DAY), (TODAY + DAY, TODAY + 3 * DAY)])
def test_validity_of_certificate_and_ticket_are_both_checked(wrong: tuple[datetime, datetime]) -> None:
    key = Ed25519PrivateKey.generate()
    peer_certificate = certificate(TICKET.certificate, TICKET.key, key, ticket=TICKET.certificate, validity=wrong)
    assert reject_reason(der(peer_certificate)) is RejectReason.TICKET_EXPIRED
    ada = x509_name("ada", unit="producer")
    ticket = certificate(OWNER.certificate, OWNER.private_key(), key, subject=ada, signs=0, validity=wrong)
    assert reject_reason(der(certificate(ticket, key, key, ticket=ticket))) is RejectReason.TICKET_EXPIRED


def test_dates_of_certificates_are_not_checked_with_a_shared_key() -> None:
    """With a shared key. TLS checks them on connections."""
    past = TODAY - 3 * DAY, TODAY - DAY
    bare = certificate(OWNER.certificate, OWNER.private_key(), Ed25519PrivateKey.generate(), validity=past)
    assert KEY_MEMBER.identify(der(bare)).name == ""


def test_members_have_a_ticket_all_or_none() -> None:
    bare, with_ticket = OWNER.issue_certificate().der, TICKET.issue_certificate().der
    assert MEMBER.identify(with_ticket).name == "ada"
    assert reject_reason(bare) is RejectReason.WRONG_KEY
    assert KEY_MEMBER.identify(bare).name == ""
    assert reject_reason(with_ticket, KEY_MEMBER) is RejectReason.WRONG_KEY


def test_peer_certificate_expires_no_later_than_ticket() -> None:
    peer_certificate = TICKET.issue_certificate().certificate
    assert peer_certificate.not_valid_after_utc == TICKET.expires_at
    assert peer_certificate.not_valid_before_utc == TICKET.certificate.not_valid_before_utc


def make_unusual_certificate(key: CertificatePublicKeyTypes, *extensions: x509.ExtensionType) -> bytes:
    """The authority has signed it, but it is none that we would make."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509_name("strange"))
        .issuer_name(OWNER.certificate.subject)
        .public_key(key)
        .serial_number(1)
        .not_valid_before(WEEK[0])
        .not_valid_after(WEEK[1])
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return der(builder.sign(OWNER.private_key(), None))


NO_AUTHORITY = x509.BasicConstraints(ca=False, path_length=None)
GOOD_KEY = Ed25519PrivateKey.generate().public_key()


@pytest.mark.parametrize("other", [generate_private_key(SECP256R1()), X25519PrivateKey.generate()])
def test_key_that_is_not_ed25519_is_rejected(other: EllipticCurvePrivateKey | X25519PrivateKey) -> None:
    assert KEY_MEMBER.identify(make_unusual_certificate(GOOD_KEY, NO_AUTHORITY)).peer_id == peer_id_of(GOOD_KEY)
    strange = make_unusual_certificate(other.public_key(), NO_AUTHORITY)
    assert reject_reason(strange, KEY_MEMBER) is RejectReason.WRONG_KEY


def test_certificate_without_basic_constraints_is_rejected() -> None:
    assert reject_reason(make_unusual_certificate(GOOD_KEY)) is RejectReason.WRONG_KEY


def test_invalid_embedded_ticket_is_rejected() -> None:
    noise = x509.UnrecognizedExtension(TICKET_EXTENSION, b"noise")
    assert reject_reason(make_unusual_certificate(GOOD_KEY, NO_AUTHORITY, noise)) is RejectReason.WRONG_KEY


def test_oversized_credential_is_rejected() -> None:
    assert len(MEMBER.signer.credential) < CREDENTIAL_BYTES_MAX / 4
    ballast = x509.UnrecognizedExtension(x509.ObjectIdentifier("2.25.1"), bytes(CREDENTIAL_BYTES_MAX))
    assert reject_reason(make_unusual_certificate(GOOD_KEY, NO_AUTHORITY, ballast)) is RejectReason.WRONG_KEY


# -- bytes of strangers


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=300))
def test_random_bytes_are_rejected_as_credential(noise: bytes) -> None:
    assert reject_reason(noise) is RejectReason.WRONG_KEY


CREDENTIAL = MEMBER.signer.credential


@settings(deadline=None, max_examples=300)
@given(st.integers(min_value=0, max_value=len(CREDENTIAL) - 1), st.integers(min_value=1, max_value=255))
def test_credential_with_one_changed_byte_is_rejected(place: int, change: int) -> None:
    changed = bytearray(CREDENTIAL)
    changed[place] ^= change
    if place != len(CREDENTIAL) - SIGNATURE_BYTES - 1:
        assert reject_reason(bytes(changed)) is RejectReason.WRONG_KEY


@pytest.mark.parametrize("bits", [1, 2, 7, 8, 255])
def test_alternative_encoding_of_signature_changes_nothing(bits: int) -> None:
    # A bit string in X.509 has a count of unused bits, which may vary.
    changed = bytearray(CREDENTIAL)
    changed[-SIGNATURE_BYTES - 1] = bits
    with suppress(CredentialError):
        assert MEMBER.identify(bytes(changed)) == MEMBER.identity


@settings(deadline=None, max_examples=50)
@given(st.integers(min_value=0, max_value=len(CREDENTIAL) - 1))
def test_truncated_credential_is_rejected(length: int) -> None:
    assert reject_reason(CREDENTIAL[:length]) is RejectReason.WRONG_KEY


def test_credentials_of_many_bidders_and_their_later_sessions_are_verified_once() -> None:
    verified = Counter[bytes]()

    class Verifier(CertificateVerifier):
        def verify_past(self, der: bytes) -> PastCredential:
            verified[der] += 1
            raise CredentialError(RejectReason.WRONG_KEY, "not a certificate")

    statements = Statements(Verifier(OWNER.certificate, None, lambda: TODAY, tickets=True))
    credentials = [str(number).encode() for number in range(3000)]
    for credential in (*credentials, *credentials):
        assert not statements.accepts(credential)
    assert set(verified.values()) == {1}
