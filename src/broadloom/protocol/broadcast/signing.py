"""Signed channels: every message is verified before it is delivered or relayed, so a forgery dies at its first hop.

An author's credential is sent over each link before its first message there; connections keep the order, so every
receiver can verify the message. Honest peers relay only what they have verified: a neighbor that sends a forged
message, or one of an author without permission to send, is disconnected.
"""

from typing import TYPE_CHECKING

from broadloom.protocol.identity import CredentialError, Identity, Role, SignatureCheck, Signer
from broadloom.wire import Broadcast, PeerId, WireError, encode
from broadloom.wire.broadcast_frame import signed_part
from broadloom.wire.exchange_messages import RejectReason
from broadloom.wire.link_messages import Credential, CredentialRequest, Want

if TYPE_CHECKING:
    from broadloom.protocol.broadcast.broadcaster import Broadcaster
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer

TICKET_REASONS = (RejectReason.TICKET_EXPIRED, RejectReason.TICKET_REVOKED)
"""Reasons that concern the author itself. Other invalid credentials may come from any peer in its name."""
REJECTED_AUTHORS_MAX = 1024
"""Rejected authors remembered; the oldest is forgotten first."""
REJECTED_AUTHOR_S = 30.0
"""How long messages of a rejected author are ignored; then its credential is requested again."""
CREDENTIAL_REQUESTS_MAX = 256
"""Credentials requested between two ticks."""
EVICTION_PAUSE_S = 0.1
"""Pause after a scan that found no credential to evict."""
RECHECKS_PER_TICK = 64
"""Credentials checked again in each tick: tickets expire and are revoked."""


class _VerifiedAuthor:
    __slots__ = ("check", "frame", "identity")

    def __init__(self, credential: Credential, identity: Identity, check: SignatureCheck) -> None:
        self.frame = encode(credential)
        self.identity = identity
        self.check = check


class MessageVerifier:
    """The verified credentials of all authors that this peer knows."""

    def __init__(self, peer: "Peer", broadcaster: "Broadcaster", signer: Signer) -> None:
        self._peer = peer
        self._broadcaster = broadcaster
        self._signer = signer
        self._own_credential = encode(Credential(peer.me.peer_id, signer.credential))
        self._verified: dict[PeerId, _VerifiedAuthor] = {}
        self._to_recheck: list[PeerId] = []
        self._rejected: dict[PeerId, float] = {}
        """Rejected authors, and until when their messages are ignored."""
        self._requests_sent = 0
        self._evict_again_at = 0.0

    def identity_of(self, author: PeerId) -> Identity | None:
        verified = self._verified.get(author)
        return verified.identity if verified is not None else None

    # -- own messages

    def signed(self, message: Broadcast, frame: bytes) -> Broadcast:
        return message._replace(signature=self._signer.sign(self._peer.channel_id + signed_part(frame)))

    # -- sending credentials

    def can_send_credential(self, author: PeerId) -> bool:
        """False for a rejected author: neighbors could not verify its messages and would request the credential
        forever."""
        return author in self._verified or author == self._peer.me.peer_id

    def send_credential(self, link: "Link", author: PeerId) -> None:
        """Send the credential, unless this link has it already."""
        if author not in link.credentials_sent:
            verified = self._verified.get(author)
            link.send_frame(verified.frame if verified is not None else self._own_credential)
            link.credentials_sent[author] = None

    def on_credential_request(self, link: "Link", request: CredentialRequest) -> None:
        link.credentials_sent.pop(request.author, None)
        self._broadcaster.gap_repair.on_want(link, Want(request.author, request.sequence, request.sequence))

    # -- verifying

    def on_credential(self, _link: "Link", credential: Credential) -> None:
        author = credential.author
        if author in self._verified or author == self._peer.me.peer_id:
            return
        if not self._has_capacity():
            self._peer.counters.authors_rejected += 1
            return
        if self._is_rejected(author):
            self._peer.counters.bad_credentials += 1
            return
        try:
            self._verified[author] = _VerifiedAuthor(
                credential, *self._signer.verify_credential(author, credential.credential)
            )
        except CredentialError as rejected:
            # Clocks and revocation lists of honest peers may differ a little, so the neighbor is not blamed.
            self._peer.counters.bad_credentials += 1
            if rejected.reason in TICKET_REASONS:
                self._reject(author, rejected.text)

    def verify(self, link: "Link", frame: bytes, message: Broadcast) -> bool:
        """Whether the message can be delivered: False if the credential is missing or rejected. Raises `WireError` if
        the neighbor relayed a forgery, or a message of an author without permission to send."""
        verified = self._verified.get(message.author)
        if verified is None:
            if (
                not self._is_rejected(message.author)
                and self._requests_sent < CREDENTIAL_REQUESTS_MAX
                and self._has_capacity()
            ):
                self._requests_sent += 1
                link.send(CredentialRequest(message.author, message.sequence))
            return False
        if not verified.check(self._peer.channel_id + signed_part(frame), message.signature):
            self._peer.counters.bad_signatures += 1
            raise WireError(f"invalid signature of {message.author:016x}")
        if verified.identity.role is not Role.PRODUCER:
            self._peer.counters.role_violations += 1
            raise WireError(f"{verified.identity.name or message.author} has no permission to send")
        return True

    def _reject(self, author: PeerId, text: str) -> None:
        self._peer.trace(f"author {author:016x} rejected: {text}")
        self._rejected[author] = self._peer.runtime.now() + REJECTED_AUTHOR_S
        if len(self._rejected) > REJECTED_AUTHORS_MAX:
            del self._rejected[next(iter(self._rejected))]

    def _is_rejected(self, author: PeerId) -> bool:
        until = self._rejected.get(author)
        if until is None or until > self._peer.runtime.now():
            return until is not None
        del self._rejected[author]
        return False

    # -- evicting

    def evict(self, author: PeerId) -> None:
        self._verified.pop(author, None)
        for link in self._peer.links:
            link.credentials_sent.pop(author, None)

    def _has_capacity(self) -> bool:
        if len(self._verified) < self._peer.settings.authors_max:
            return True
        if self._peer.runtime.now() < self._evict_again_at:
            return False
        if self._evict_silent() or self._broadcaster.receiver.evict_idle():
            return True
        self._evict_again_at = self._peer.runtime.now() + EVICTION_PAUSE_S
        return False

    def _evict_silent(self) -> bool:
        """Evict an author that never sent a message."""
        for author in self._verified:
            if author not in self._broadcaster.receiver.windows:
                self.evict(author)
                return True
        return False

    def recheck(self) -> None:
        """Check a few credentials again; authors whose ticket expired or was revoked are ignored from then on."""
        self._requests_sent = 0
        if not self._to_recheck:
            self._to_recheck = list(self._verified)
        for author in self._to_recheck[-RECHECKS_PER_TICK:]:
            verified = self._verified.get(author)
            if verified is None:
                continue
            try:
                self._signer.recheck(verified.identity)
            except CredentialError as rejected:
                self.evict(author)
                self._reject(author, rejected.text)
        del self._to_recheck[-RECHECKS_PER_TICK:]
