"""From a leaf to the peer behind it: what every certificate that others show us goes through.

There are two ways to be a member: the authority has signed the leaf, or it has signed a ticket that has signed the
leaf. Both are checked from the leaf alone, because a credential also reaches peers that never had a line to its
author. TLS has checked a chain before, but that it was this one is not assumed. What a stranger sends can end in
nothing but an identity or `Rejected`.
"""

from datetime import UTC, datetime
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from broadloom.protocol.identity import CredentialError, Identity, SignatureCheck
from broadloom.security.certificates import TICKET_EXTENSION, Clock, PeerCertificate
from broadloom.security.keys import peer_id_of
from broadloom.security.revocation import RevocationList
from broadloom.security.ticket import read_ticket
from broadloom.wire import PeerId
from broadloom.wire.exchange_messages import RejectReason

CREDENTIAL_BYTES_MAX = 4096
"""A leaf with a ticket inside has less than a thousand."""


class VerifiedPeer(NamedTuple):
    identity: Identity
    key: Ed25519PublicKey


class CertificateVerifier:
    def __init__(self, authority: x509.Certificate, revocation_list: RevocationList | None, now: Clock) -> None:
        self._authority = authority
        self._revocation_list = revocation_list
        self._now = now

    def verify(self, der: bytes, peer_id: PeerId | None = None) -> VerifiedPeer:
        """`peer`: whose it has to be, which is looked at first: who shows another's certificate, expired or withdrawn,
        must not bring the peer into disrepute in whose name it does so."""
        try:
            return self._verify(der, peer_id)
        except CredentialError:
            raise
        except Exception:
            # Whatever a stranger's bytes make the parser raise. Its words might quote them: they are not passed on.
            raise _untrusted_error() from None

    def _verify(self, der: bytes, peer_id: PeerId | None) -> VerifiedPeer:
        if len(der) > CREDENTIAL_BYTES_MAX:
            raise _untrusted_error()
        leaf = x509.load_der_x509_certificate(der)
        if leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            # A ticket is signed by the authority too, but shown in place of a leaf it has no ticket inside: its
            # holder would be taken for one that the authority itself has signed.
            raise _untrusted_error()
        key = leaf.public_key()
        if not isinstance(key, Ed25519PublicKey):
            raise _untrusted_error()
        ticket = _embedded_ticket(leaf)
        if peer_id not in (None, peer_id_of(key)):
            raise CredentialError(
                RejectReason.PEER_ID_MISMATCH,
                f"the credential is that of {peer_id_of(key):016x}, not of {peer_id:016x}",
            )
        if ticket is None:
            leaf.verify_directly_issued_by(self._authority)
            self._check_time(leaf)
            return VerifiedPeer(Identity(peer_id_of(key)), key)
        leaf.verify_directly_issued_by(ticket)
        ticket.verify_directly_issued_by(self._authority)
        claims = read_ticket(ticket)
        identity = Identity(
            peer_id_of(key), claims.name, claims.role, claims.serial, ticket.not_valid_after_utc.timestamp()
        )
        self.recheck(identity)
        self._check_time(ticket)
        self._check_time(leaf)
        return VerifiedPeer(identity, key)

    def recheck(self, identity: Identity) -> None:
        """Rejected if the ticket of one who was found good has expired or was withdrawn. Without tickets there is
        nothing that could end."""
        if self._revocation_list is not None and self._revocation_list.is_revoked(identity.ticket_serial):
            raise CredentialError(
                RejectReason.TICKET_REVOKED,
                f"the ticket {identity.ticket_serial} was withdrawn: ask the channel's owner",
            )
        if identity.expires_at is not None and self._now().timestamp() > identity.expires_at:
            raise expired_error(datetime.fromtimestamp(identity.expires_at, UTC))

    def _check_time(self, certificate: x509.Certificate) -> None:
        now = self._now()
        if now > certificate.not_valid_after_utc:
            raise expired_error(certificate.not_valid_after_utc)
        if now < certificate.not_valid_before_utc:
            begins = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
            raise CredentialError(
                RejectReason.TICKET_EXPIRED, f"the certificate begins {begins}: is one of the clocks wrong?"
            )


def expired_error(end: datetime) -> CredentialError:
    return CredentialError(
        RejectReason.TICKET_EXPIRED,
        f"the ticket expired at {end:%Y-%m-%d %H:%M} UTC: ask the channel's owner for a new one",
    )


def _embedded_ticket(leaf: x509.Certificate) -> x509.Certificate | None:
    for extension in leaf.extensions:
        if extension.oid == TICKET_EXTENSION:
            return x509.load_der_x509_certificate(extension.value.public_bytes())
    return None


def _untrusted_error() -> CredentialError:
    return CredentialError(
        RejectReason.WRONG_KEY, "the certificate is not of this channel's authority: are key or ticket right?"
    )


# Signatures on messages: the session key signs what its peer says, and the leaf lets everyone check it.


SIGNATURE_BYTES = 64
MESSAGE_PREFIX = b"broadloom message\0"
"""Goes before what is signed. The session key also signs in TLS handshakes: with this, no message that a peer can be
brought to send is ever good as a handshake."""


class SessionSigner:
    """The seal of one connect."""

    def __init__(self, leaf: PeerCertificate, verifier: CertificateVerifier) -> None:
        self.credential = leaf.der
        self._key = leaf.key
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
    def check(said: bytes, signature: bytes) -> bool:
        try:
            key.verify(signature, MESSAGE_PREFIX + said)
        except Exception:
            # A bad signature, or one that is none at all: both are strangers' bytes, and neither may do harm.
            return False
        return True

    return check
