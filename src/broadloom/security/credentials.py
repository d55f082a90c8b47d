"""`PeerCredentials`: everything one peer connects with: identity, TLS contexts, verification of others, signatures.

They are for one connect: the session key and the peer id are new each time. They are created from a shared key or a
ticket; everything else is the same for both.
"""

from functools import lru_cache

from cryptography import x509

from broadloom.errors import InvalidKeyFileError
from broadloom.protocol import ChannelName
from broadloom.protocol.identity import CredentialError, Identity
from broadloom.security.authority import Authority, is_for_channel
from broadloom.security.certificates import Clock, PeerCertificate, utc_now
from broadloom.security.keys import SEEDS_CACHED, derive_authority_seed, key_from_name, server_name_of
from broadloom.security.owner import ChannelOwner
from broadloom.security.post_signer import PostSigner
from broadloom.security.revocation import RevocationList
from broadloom.security.ticket import Ticket
from broadloom.security.tls_context import make_contexts
from broadloom.security.verification import CertificateVerifier, SessionSigner, expired_error
from broadloom.wire import PeerId
from broadloom.wire.exchange_messages import RejectReason


class PeerCredentials:
    def __init__(
        self,
        channel: ChannelName,
        authority: x509.Certificate,
        certificate: PeerCertificate,
        revocation_list: RevocationList | None = None,
        now: Clock = utc_now,
    ) -> None:
        self.authority = authority
        """The certificate of the channel's authority."""
        verifier = CertificateVerifier(authority, revocation_list, now, tickets=len(certificate.chain) > 1)
        self._verifier = verifier
        self.identity: Identity = verifier.verify(certificate.der).identity
        """This peer as others see it. A ticket that they would reject is rejected here already."""
        self.server_name = server_name_of(channel.id)
        """The TLS server name (SNI) that initiators must send."""
        self.server_context, self.client_context = make_contexts(authority, certificate, self.server_name)
        self.signer = SessionSigner(certificate, verifier)
        has_ticket = len(certificate.chain) > 1
        self.post_signer = PostSigner(channel.id, certificate, verifier, self.identity.name) if has_ticket else None
        """For messages of groups; None without a ticket."""
        self.revocation_list = revocation_list
        """Reloaded by the node when the file changes, and replaced when a newer one arrives over the channel."""
        self.owner = (
            ChannelOwner(channel, authority, identity=self.identity, revocation_list=revocation_list)
            if has_ticket
            else None
        )
        """Who issued the ticket; None without one."""

    @classmethod
    def from_key(cls, channel: ChannelName, key: str | bytes | None, *, now: Clock = utc_now) -> "PeerCredentials":
        """Credentials from a shared key; None: from the channel name. The first use of a passphrase takes some
        hundredths of a second: scrypt is slow on purpose."""
        seed = derive_authority_seed(key_from_name(channel) if key is None else key, channel.id)
        authority = _authority(seed, channel.id)
        return cls(channel, authority.certificate, authority.issue_certificate(now), now=now)

    @classmethod
    def from_ticket(
        cls,
        channel: ChannelName,
        ticket: Ticket,
        revocation_list: RevocationList | None = None,
        *,
        now: Clock = utc_now,
    ) -> "PeerCredentials":
        if not is_for_channel(ticket.authority, channel.id):
            raise CredentialError(
                RejectReason.WRONG_CHANNEL, "the ticket is for another channel; ask its owner for one"
            )
        if revocation_list is not None and revocation_list.authority != ticket.authority:
            raise InvalidKeyFileError(
                "the revocation list and the ticket are from different owners; use the list of the owner that issued "
                "the ticket"
            )
        if ticket.is_expired(now()):
            raise expired_error(ticket.expires_at)
        revocation_list = revocation_list or RevocationList(None, ticket.authority)
        return cls(channel, ticket.authority, ticket.issue_certificate(now), revocation_list, now)

    @property
    def peer_id(self) -> PeerId:
        return self.identity.peer_id

    def identify(self, certificate_der: bytes) -> Identity:
        """The peer that presented this certificate in a handshake; raises `CredentialError` if it is not valid."""
        return self._verifier.verify(certificate_der).identity

    def __repr__(self) -> str:
        return f"PeerCredentials({self.peer_id:016x})"


@lru_cache(SEEDS_CACHED)
def _authority(seed: bytes, channel_id: bytes) -> Authority:
    """Cached: a process may run many peers of one channel."""
    return Authority.from_seed(seed, channel_id)
