"""All that one peer connects with: who it is, how it speaks TLS, how it recognises others, how it signs.

A membership is for one connect: its session key, and with it the peer id, are new each time. It is made from a shared
key or from a ticket; from there on nothing differs.
"""

from functools import lru_cache

from cryptography import x509

from broadloom.errors import InvalidKeyFileError
from broadloom.protocol import ChannelName
from broadloom.protocol.identity import CredentialError, Identity
from broadloom.security.authority import Authority, is_for_channel
from broadloom.security.certificates import Clock, PeerCertificate, utc_now
from broadloom.security.keys import SEEDS_CACHED, derive_authority_seed, key_from_name, server_name_of
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
        leaf: PeerCertificate,
        revocation_list: RevocationList | None = None,
        now: Clock = utc_now,
    ) -> None:
        verifier = CertificateVerifier(authority, revocation_list, now)
        self._verifier = verifier
        self.identity: Identity = verifier.verify(leaf.der).identity
        """Who others will take us for. A ticket that they would refuse is refused here already."""
        self.server_name = server_name_of(channel.id)
        """A caller must ask for this (`server_hostname`), or it is refused."""
        self.server_context, self.client_context = make_contexts(authority, leaf, self.server_name)
        self.signer = SessionSigner(leaf, verifier)
        self.revocation_list = revocation_list
        """Whoever holds the membership looks from time to time whether the list has changed."""

    @classmethod
    def from_key(cls, channel: ChannelName, key: str | bytes | None, *, now: Clock = utc_now) -> "PeerCredentials":
        """With a shared key; None: with the key that is derived from the channel's name. The first use of a
        passphrase takes some hundredths of a second, as is its purpose."""
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
            raise CredentialError(RejectReason.WRONG_CHANNEL, f"the ticket is for another channel than {channel}")
        if revocation_list is not None and revocation_list.authority != ticket.authority:
            raise InvalidKeyFileError("the list of withdrawn tickets is of another owner than the ticket")
        if ticket.is_expired(now()):
            raise expired_error(ticket.expires_at)
        return cls(channel, ticket.authority, ticket.issue_certificate(now), revocation_list, now)

    @property
    def peer_id(self) -> PeerId:
        return self.identity.peer_id

    def identify(self, certificate_der: bytes) -> Identity:
        """Who showed this certificate in a handshake (`getpeercert(binary_form=True)`); Rejected if it is not good."""
        return self._verifier.verify(certificate_der).identity

    def __repr__(self) -> str:
        return f"PeerCredentials({self.peer_id:016x})"


@lru_cache(SEEDS_CACHED)
def _authority(seed: bytes, channel_id: bytes) -> Authority:
    """Remembered, since a process may hold many peers of one channel."""
    return Authority.from_seed(seed, channel_id)
