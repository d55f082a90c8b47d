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

from weft.fabric.seal import Identity, Rejected
from weft.security.certificates import TICKET_EXTENSION, Clock
from weft.security.fingerprints import peer_id_of
from weft.security.revocation import RevocationList
from weft.security.ticket import read_ticket
from weft.wire import PeerId
from weft.wire.calls import Refusal

CREDENTIAL_BYTES_MAX = 4096
"""A leaf with a ticket inside has less than a thousand."""


class Proven(NamedTuple):
    identity: Identity
    key: Ed25519PublicKey


class Examiner:
    def __init__(self, authority: x509.Certificate, revoked: RevocationList | None, now: Clock) -> None:
        self._authority = authority
        self._revoked = revoked
        self._now = now

    def examine(self, der: bytes, peer: PeerId | None = None) -> Proven:
        """`peer`: whose it has to be, which is looked at first: who shows another's certificate, expired or withdrawn,
        must not bring the peer into disrepute in whose name it does so."""
        try:
            return self._examine(der, peer)
        except Rejected:
            raise
        except Exception:
            # Whatever a stranger's bytes make the parser raise. Its words might quote them: they are not passed on.
            raise _not_ours() from None

    def _examine(self, der: bytes, peer: PeerId | None) -> Proven:
        if len(der) > CREDENTIAL_BYTES_MAX:
            raise _not_ours()
        leaf = x509.load_der_x509_certificate(der)
        if leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            # A ticket is signed by the authority too, but shown in place of a leaf it has no ticket inside: its
            # holder would be taken for one that the authority itself has signed.
            raise _not_ours()
        key = leaf.public_key()
        if not isinstance(key, Ed25519PublicKey):
            raise _not_ours()
        ticket = _ticket_in(leaf)
        if peer not in (None, peer_id_of(key)):
            raise Rejected(Refusal.IMPOSTOR, f"the credential is that of {peer_id_of(key):016x}, not of {peer:016x}")
        if ticket is None:
            leaf.verify_directly_issued_by(self._authority)
            self._check_time(leaf)
            return Proven(Identity(peer_id_of(key)), key)
        leaf.verify_directly_issued_by(ticket)
        ticket.verify_directly_issued_by(self._authority)
        says = read_ticket(ticket)
        identity = Identity(peer_id_of(key), says.name, says.role, says.serial, ticket.not_valid_after_utc.timestamp())
        self.look_again(identity)
        self._check_time(ticket)
        self._check_time(leaf)
        return Proven(identity, key)

    def look_again(self, identity: Identity) -> None:
        """Rejected if the ticket of one who was found good has expired or was withdrawn. Without tickets there is
        nothing that could end."""
        if self._revoked is not None and self._revoked.is_revoked(identity.ticket):
            raise Rejected(Refusal.REVOKED, f"the ticket {identity.ticket} was withdrawn: ask the channel's owner")
        if identity.expires_at is not None and self._now().timestamp() > identity.expires_at:
            raise expired(datetime.fromtimestamp(identity.expires_at, UTC))

    def _check_time(self, certificate: x509.Certificate) -> None:
        now = self._now()
        if now > certificate.not_valid_after_utc:
            raise expired(certificate.not_valid_after_utc)
        if now < certificate.not_valid_before_utc:
            begins = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
            raise Rejected(Refusal.EXPIRED, f"the certificate begins {begins}: is one of the clocks wrong?")


def expired(end: datetime) -> Rejected:
    return Rejected(
        Refusal.EXPIRED, f"the ticket expired at {end:%Y-%m-%d %H:%M} UTC: ask the channel's owner for a new one"
    )


def _ticket_in(leaf: x509.Certificate) -> x509.Certificate | None:
    for extension in leaf.extensions:
        if extension.oid == TICKET_EXTENSION:
            return x509.load_der_x509_certificate(extension.value.public_bytes())
    return None


def _not_ours() -> Rejected:
    return Rejected(Refusal.WRONG_KEY, "the certificate is not of this channel's authority: are key or ticket right?")
