"""Signed channels: every message is verified before it is delivered or relayed, so a forgery dies at its first hop.

An author's credential is sent over each link before its first message there; connections keep the order, so every
receiver can verify the message. Honest peers relay only what they have verified: a neighbor that sends a forged
message is disconnected.

What a neighbor says about the messages of an author counts only as far as the author's signature proves it. A signature
covers a hash of the messages, so it remains a proof when they are gone (`PositionProof`).
"""

from typing import TYPE_CHECKING

from broadloom.protocol.broadcast.author_warnings import TIME_BYTES, AuthorWarnings
from broadloom.protocol.identity import CredentialError, Identity, Role, SignatureCheck, Signer
from broadloom.wire import Broadcast, Frame, PeerId, WireError, encode
from broadloom.wire.broadcast_frame import SIGNED_PART_BYTES, read_signed_part, signed_part
from broadloom.wire.exchange_messages import RejectReason
from broadloom.wire.link_messages import Credential, CredentialRequest, PositionProof, Want

if TYPE_CHECKING:
    from broadloom.protocol.broadcast.broadcaster import Broadcaster
    from broadloom.protocol.broadcast.receive_window import ReceiveWindow
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
    __slots__ = ("check", "credential", "frame", "identity", "proof", "proven_through")

    def __init__(self, credential: Credential, identity: Identity, check: SignatureCheck) -> None:
        self.credential = credential.credential
        self.frame = encode(credential)
        self.identity = identity
        self.check = check
        self.proven_through = 0
        """The author has signed a message with this sequence number."""
        self.proof = b""


class MessageVerifier:
    """The verified credentials of all authors that this peer knows."""

    def __init__(self, peer: "Peer", broadcaster: "Broadcaster", signer: Signer) -> None:
        self._peer = peer
        self._broadcaster = broadcaster
        self._signer = signer
        self.signature_bytes = TIME_BYTES + signer.signature_bytes
        self.warnings = AuthorWarnings(peer, broadcaster)
        self._own_credential = encode(Credential(peer.me.peer_id, signer.credential))
        self._verified: dict[PeerId, _VerifiedAuthor] = {}
        self._to_recheck: list[PeerId] = []
        self._rejected: dict[PeerId, float] = {}
        """Rejected authors, and until when their messages are ignored."""
        self._requests_sent = 0
        self._evict_again_at = 0.0
        self._own_proof = b""
        self._adopted_proofs: dict[PeerId, bytes] = {}
        """Proofs that came with the starting position, of authors whose credential is not known yet."""

    def identity_of(self, author: PeerId) -> Identity | None:
        verified = self._verified.get(author)
        return verified.identity if verified is not None else None

    def credential_of(self, author: PeerId) -> bytes:
        """The verified credential of an author; empty if it is unknown."""
        verified = self._verified.get(author)
        return verified.credential if verified is not None else b""

    # -- own messages

    def signed(self, message: Broadcast, frame: Frame) -> Broadcast:
        part = signed_part(frame)
        time = int(self._peer.runtime.wall_time_s() * 1000).to_bytes(TIME_BYTES, "big")
        signature = time + self._signer.sign(self._peer.channel_id + time + part)
        self._own_proof = part + signature
        return message._replace(signature=signature)

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

    def verify(self, link: "Link", frame: Frame, message: Broadcast) -> bool:
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
        part = signed_part(frame)
        if not self._check(verified, part, message.signature):
            self._peer.counters.bad_signatures += 1
            raise WireError(f"invalid signature of {message.author:016x}")
        if verified.identity.role is not Role.PRODUCER:
            self._peer.counters.role_violations += 1
            raise WireError(f"{verified.identity.name or message.author} has no permission to send")
        if message.last_sequence > verified.proven_through:
            verified.proven_through, verified.proof = message.last_sequence, part + message.signature
        return True

    def _check(self, verified: _VerifiedAuthor, part: bytes, signature: bytes) -> bool:
        time, signature = signature[:TIME_BYTES], signature[TIME_BYTES:]
        return verified.check(self._peer.channel_id + time + part, signature)

    # -- proofs

    def proven_through(self, author: PeerId) -> int:
        """The highest sequence number that the author is known to have used."""
        verified = self._verified.get(author)
        return verified.proven_through if verified is not None else 0

    def adopted_through(self, author: PeerId) -> int:
        """The sequence number that the neighbor which gave us our starting position has proven. The credential of the
        author must be known."""
        proof, verified = self._adopted_proofs.pop(author, b""), self._verified[author]
        part, signature = proof[:SIGNED_PART_BYTES], proof[SIGNED_PART_BYTES:]
        if not proof or not self._check(verified, part, signature):
            return 0
        last = read_signed_part(part)[1]
        if last > verified.proven_through:
            verified.proven_through, verified.proof = last, proof
        return last

    def proven_at(self, author: PeerId, window: "ReceiveWindow", now: float) -> float:
        """When the last message that the author has provably sent was sent, on our monotonic clock; now if none is
        proven."""
        verified = self._verified.get(author)
        if verified is None or not verified.proof:
            return now
        signed_s = int.from_bytes(verified.proof[SIGNED_PART_BYTES:][:TIME_BYTES], "big") / 1000
        if window.clock_offset_s is not None:
            return signed_s + window.clock_offset_s
        return min(now, now - self._peer.runtime.wall_time_s() + signed_s)

    def on_position_proof(self, _link: "Link", message: PositionProof) -> None:
        author, _ = read_signed_part(message.proof[:SIGNED_PART_BYTES])
        verified = self._verified.get(author)
        if verified is not None:
            self._verify_proof(verified, message.proof)
        if not self._broadcaster.has_position and len(self._adopted_proofs) < self._peer.settings.authors_max:
            self._adopted_proofs[author] = message.proof

    def _verify_proof(self, verified: _VerifiedAuthor, proof: bytes) -> None:
        part, signature = proof[:SIGNED_PART_BYTES], proof[SIGNED_PART_BYTES:]
        last = read_signed_part(part)[1]
        if last > verified.proven_through and self._check(verified, part, signature):
            verified.proven_through, verified.proof = last, proof

    def send_proofs(self, link: "Link") -> None:
        """Prove the positions of a digest. Credentials follow with the authors' next messages."""
        for author in self._broadcaster.receiver.windows:
            self._send_proof(link, author)

    def send_proof(self, link: "Link", author: PeerId) -> None:
        """Prove that the messages exist which a claim about this author is about to name."""
        if self.can_send_credential(author):
            self.send_credential(link, author)
            self._send_proof(link, author)

    def _send_proof(self, link: "Link", author: PeerId) -> None:
        if author == self._peer.me.peer_id:
            proof = self._own_proof
        else:
            verified = self._verified.get(author)
            proof = (verified.proof if verified is not None else b"") or self._adopted_proofs.get(author, b"")
        if proof:
            link.send(PositionProof(proof))

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
        self._adopted_proofs.pop(author, None)
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
        self._recheck(self._to_recheck[-RECHECKS_PER_TICK:])
        del self._to_recheck[-RECHECKS_PER_TICK:]

    def recheck_all(self) -> None:
        """There is a new revocation list."""
        self._recheck(list(self._verified))

    def _recheck(self, authors: list[PeerId]) -> None:
        for author in authors:
            verified = self._verified.get(author)
            if verified is None:
                continue
            try:
                self._signer.recheck(verified.identity)
            except CredentialError as rejected:
                self.evict(author)
                self._reject(author, rejected.text)
