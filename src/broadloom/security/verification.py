"""Verification of peer certificates and message signatures.

The authority has signed a member's certificate, or a ticket that has signed it. Both are checked from the certificate
alone, because credentials also reach peers that never had a connection to their author. TLS has verified a chain
before, but not necessarily this one. Untrusted bytes result in an identity or a `CredentialError`, nothing else.
"""

from datetime import UTC, datetime
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from broadloom.protocol.identity import CredentialError, Identity, Role, SignatureCheck
from broadloom.security.certificates import TICKET_EXTENSION, Clock, PeerCertificate
from broadloom.security.keys import peer_id_of
from broadloom.security.revocation import RevocationList
from broadloom.security.ticket import read_ticket
from broadloom.wire import PeerId
from broadloom.wire.exchange_messages import RejectReason

CREDENTIAL_BYTES_MAX = 4096
"""A certificate with an embedded ticket has less than 1,000 bytes."""


class VerifiedPeer(NamedTuple):
    identity: Identity
    key: Ed25519PublicKey


class PastCredential(NamedTuple):
    """A credential that was valid from `begin` to `end`."""

    identity: Identity
    key: Ed25519PublicKey
    begin: datetime
    end: datetime


CREDENTIALS_CACHED = 4096
"""Credentials of past sessions that are kept verified."""


class CertificateVerifier:
    def __init__(
        self, authority: x509.Certificate, revocation_list: RevocationList | None, now: Clock, *, tickets: bool
    ) -> None:
        self._authority = authority
        self._tickets = tickets
        """Whether members have tickets. With a shared key, every member has the authority's private key and could issue
        a ticket with any name, so none is accepted."""
        self._revocation_list = revocation_list
        self._now = now

    def verify(self, der: bytes, peer_id: PeerId | None = None) -> VerifiedPeer:
        """`peer_id`: the expected peer. It is checked before the validity, so that presenting another peer's expired or
        revoked certificate does not discredit that peer."""
        try:
            return self._verify(der, peer_id)
        except CredentialError:
            raise
        except Exception:
            # Parsers raise many kinds of errors, and might quote the untrusted bytes: their messages are not passed on.
            raise _untrusted_error() from None

    def verify_past(self, der: bytes) -> PastCredential:
        """As `verify`, for a credential that may have expired since."""
        try:
            peer, certificates = self._verify_chain(der, None)
        except CredentialError:
            raise
        except Exception:
            raise _untrusted_error() from None
        begin = max(each.not_valid_before_utc for each in certificates)
        return PastCredential(peer.identity, peer.key, begin, min(each.not_valid_after_utc for each in certificates))

    def _verify(self, der: bytes, peer_id: PeerId | None) -> VerifiedPeer:
        peer, certificates = self._verify_chain(der, peer_id)
        self.recheck(peer.identity)
        if self._tickets:  # with a shared key, every member can issue certificates with any dates for any session key
            for each in certificates:
                self._check_time(each)
        return peer

    def _verify_chain(self, der: bytes, peer_id: PeerId | None) -> tuple[VerifiedPeer, list[x509.Certificate]]:
        """Returns the peer, and the certificates whose validity is still to be checked: of the ticket and the peer."""
        if len(der) > CREDENTIAL_BYTES_MAX:
            raise _untrusted_error()
        certificate = x509.load_der_x509_certificate(der)
        if certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            # A ticket presented as a peer certificate would pass for one signed by the authority directly.
            raise _untrusted_error()
        key = certificate.public_key()
        if not isinstance(key, Ed25519PublicKey):
            raise _untrusted_error()
        ticket = _embedded_ticket(certificate)
        if (ticket is not None) != self._tickets:
            raise _untrusted_error()
        owner = peer_id_of(key, ticket)
        if peer_id not in (None, owner):
            raise CredentialError(
                RejectReason.PEER_ID_MISMATCH, f"the credential belongs to {owner:016x}, not to {peer_id:016x}"
            )
        if ticket is None:
            certificate.verify_directly_issued_by(self._authority)
            return VerifiedPeer(Identity(owner), key), [certificate]
        certificate.verify_directly_issued_by(ticket)
        ticket.verify_directly_issued_by(self._authority)
        claims = read_ticket(ticket)
        identity = Identity(owner, claims.name, claims.role, claims.serial, ticket.not_valid_after_utc.timestamp())
        return VerifiedPeer(identity, key), [ticket, certificate]

    def recheck(self, identity: Identity) -> None:
        """Raises `CredentialError` if the ticket has expired or was revoked since it was verified."""
        self.check_revoked(identity)
        if identity.expires_at is not None and self._now().timestamp() > identity.expires_at:
            raise expired_error(datetime.fromtimestamp(identity.expires_at, UTC))

    def check_revoked(self, identity: Identity) -> None:
        if self._revocation_list is not None and self._revocation_list.is_revoked(identity.ticket_serial):
            raise CredentialError(
                RejectReason.TICKET_REVOKED,
                f"the ticket {identity.ticket_serial} was revoked: ask the channel's owner",
            )

    def _check_time(self, certificate: x509.Certificate) -> None:
        now = self._now()
        if now > certificate.not_valid_after_utc:
            raise expired_error(certificate.not_valid_after_utc)
        if now < certificate.not_valid_before_utc:
            begins = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
            raise CredentialError(
                RejectReason.TICKET_EXPIRED,
                f"the certificate is not valid before {begins}: check the clocks of both machines",
            )


def expired_error(end: datetime) -> CredentialError:
    return CredentialError(
        RejectReason.TICKET_EXPIRED,
        f"the ticket expired at {end:%Y-%m-%d %H:%M} UTC: ask the channel's owner for a new one",
    )


def _embedded_ticket(certificate: x509.Certificate) -> x509.Certificate | None:
    for extension in certificate.extensions:
        if extension.oid == TICKET_EXTENSION:
            return x509.load_der_x509_certificate(extension.value.public_bytes())
    return None


def _untrusted_error() -> CredentialError:
    return CredentialError(
        RejectReason.WRONG_KEY, "the certificate was not signed by this channel's authority: check the key or ticket"
    )


MESSAGE_PREFIX = b"broadloom message\0"
"""Domain separation: the session key also signs TLS handshakes, and no message must be valid as a handshake."""
ED25519_SIGNATURE_BYTES = 64


class Statements:
    """Verifies statements that were signed in the past. Keeps the credentials that were verified last."""

    def __init__(self, verifier: CertificateVerifier) -> None:
        self._verifier = verifier
        self._verified: dict[bytes, PastCredential | None] = {}
        """None for those that are not valid: they are not verified again and again either."""

    def verify(
        self, credential: bytes, data: bytes, signature: bytes, at: datetime, *, even_if_revoked: bool = False
    ) -> str | None:
        """The name of the producer that signed this data at that time, according to its ticket; else None."""
        try:
            known = self._credential(credential, even_if_revoked=even_if_revoked)
            known.key.verify(signature, data)
        except (CredentialError, InvalidSignature):
            return None
        is_valid = known.begin <= at <= known.end and known.identity.role is Role.PRODUCER
        return known.identity.name if is_valid else None

    def accepts(self, credential: bytes) -> bool:
        """Whether the credential was valid at some time, and was not revoked."""
        try:
            self._credential(credential)
        except CredentialError:
            return False
        return True

    def _credential(self, credential: bytes, *, even_if_revoked: bool = False) -> PastCredential:
        if credential not in self._verified:
            if len(self._verified) >= CREDENTIALS_CACHED:
                del self._verified[next(iter(self._verified))]
            self._verified[credential] = None
            self._verified[credential] = self._verifier.verify_past(credential)
        known = self._verified[credential]
        if known is None:
            raise _untrusted_error()
        if not even_if_revoked:
            self._verifier.check_revoked(known.identity)
        return known


class SessionSigner:
    """Signs the messages of one session and verifies those of others."""

    def __init__(self, certificate: PeerCertificate, verifier: CertificateVerifier) -> None:
        self.credential = certificate.der
        self.signature_bytes = ED25519_SIGNATURE_BYTES
        self._key = certificate.key
        self._verifier = verifier

    def __repr__(self) -> str:
        return "SessionSigner()"

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(MESSAGE_PREFIX + data)

    def verify_credential(self, author: PeerId, credential: bytes) -> tuple[Identity, SignatureCheck]:
        identity, key = self._verifier.verify(credential, author)
        return identity, _signature_check(key)

    def recheck(self, identity: Identity) -> None:
        self._verifier.recheck(identity)


def _signature_check(key: Ed25519PublicKey) -> SignatureCheck:
    def check(data: bytes, signature: bytes) -> bool:
        try:
            key.verify(signature, MESSAGE_PREFIX + data)
        except Exception:
            return False
        return True

    return check
