"""All that one peer connects with: who it is, how it speaks TLS, how it recognises others, how it signs.

A membership is for one connect: its session key, and with it the peer id, are new each time. It is made from a shared
key or from a ticket; from there on nothing differs.
"""

from functools import lru_cache

from cryptography import x509

from weft.fabric import ChannelName
from weft.fabric.seal import Identity, Rejected
from weft.security.authority import Authority, is_for_channel
from weft.security.certificates import Clock, utc_now
from weft.security.errors import BadKeyFile
from weft.security.examine import Examiner, expired
from weft.security.fingerprints import server_name_of
from weft.security.keys import SEEDS_CACHED, derive_authority_seed, key_from_name
from weft.security.leaf import Leaf
from weft.security.revocation import RevocationList
from weft.security.sealing import SessionSeal
from weft.security.ticket import Ticket
from weft.security.tls import make_contexts
from weft.wire.calls import Refusal


class Membership:
    def __init__(
        self,
        channel: ChannelName,
        authority: x509.Certificate,
        leaf: Leaf,
        revoked: RevocationList | None = None,
        now: Clock = utc_now,
    ) -> None:
        examiner = Examiner(authority, revoked, now)
        self._examiner = examiner
        self.identity: Identity = examiner.examine(leaf.der).identity
        """Who others will take us for. A ticket that they would refuse is refused here already."""
        self.server_name = server_name_of(channel.id)
        """A caller must ask for this (`server_hostname`), or it is refused."""
        self.server_context, self.client_context = make_contexts(authority, leaf, self.server_name)
        self.seal = SessionSeal(leaf, examiner)
        self.revoked = revoked
        """Whoever holds the membership looks from time to time whether the list has changed."""

    @classmethod
    def from_key(cls, channel: ChannelName, key: str | bytes | None, *, now: Clock = utc_now) -> "Membership":
        """With a shared key; None: with the key that is derived from the channel's name. The first use of a
        passphrase takes some hundredths of a second, as is its purpose."""
        seed = derive_authority_seed(key_from_name(channel) if key is None else key, channel.id)
        authority = _authority(seed, channel.id)
        return cls(channel, authority.certificate, authority.issue_leaf(now), now=now)

    @classmethod
    def from_ticket(
        cls, channel: ChannelName, ticket: Ticket, revoked: RevocationList | None = None, *, now: Clock = utc_now
    ) -> "Membership":
        if not is_for_channel(ticket.authority, channel.id):
            raise Rejected(Refusal.WRONG_CHANNEL, f"the ticket is for another channel than {channel}")
        if revoked is not None and revoked.authority != ticket.authority:
            raise BadKeyFile("the list of withdrawn tickets is of another owner than the ticket")
        if ticket.is_expired(now()):
            raise expired(ticket.expires)
        return cls(channel, ticket.authority, ticket.issue_leaf(now), revoked, now)

    @property
    def peer(self) -> int:
        return self.identity.peer

    def identify(self, leaf_der: bytes) -> Identity:
        """Who showed this certificate in a handshake (`getpeercert(binary_form=True)`); Rejected if it is not good."""
        return self._examiner.examine(leaf_der).identity

    def __repr__(self) -> str:
        return f"Membership({self.peer:016x})"


@lru_cache(SEEDS_CACHED)
def _authority(seed: bytes, channel_id: bytes) -> Authority:
    """Remembered, since a process may hold many peers of one channel."""
    return Authority.from_seed(seed, channel_id)
