"""Proofs of authorship, on channels with tickets: every post is signed, so that any member can serve it later.

A member id is a hash of the name on the member's ticket and of the number that its store has drawn. Such ids have the
highest bit set, and a post under one of them counts only with its author's signature: no other member can use it, or
take its sequence numbers. The signature is made with the author's session key. Its certificate, which contains the
ticket, is part of the proof. Posts under other ids, such as those of a `GroupPublisher`, are unproven.
"""

from hashlib import blake2b, sha256
from struct import Struct
from typing import Protocol

from broadloom.groups.model import GroupId, MemberId, Post
from broadloom.wire import PeerId

PROVABLE_BIT = 1 << 63
NONCE_BYTES = 8
SIGNATURE_BYTES = 64
HASH_BYTES = 32
PROOF_BYTES = NONCE_BYTES + SIGNATURE_BYTES
STRIPPED_PROOF_BYTES = PROOF_BYTES + HASH_BYTES
"""A post without its data keeps the hash of the data, which is what was signed."""

_STATEMENT = Struct(">QQQQQQ32s")


class PostSigner(Protocol):
    """Signs our posts and verifies those of others. The cryptography is in `security/post_signer.py`."""

    name: str
    """The name on our ticket."""
    credential: bytes

    def sign(self, data: bytes) -> bytes: ...

    def verify(
        self, credential: bytes, data: bytes, signature: bytes, sent_at_ms: int, *, even_if_revoked: bool = False
    ) -> str | None:
        """The name on the author's ticket; None if the signature, or the credential at that time, is not valid."""

    def accepts(self, credential: bytes) -> bool:
        """Whether the credential is valid on this channel. Honest members without the revocation list, or with a store
        from the time of another owner, pass on posts with others."""

    def credential_of(self, peer_id: PeerId) -> bytes:
        """The credential of a peer that has sent a message; empty if it is unknown."""


def member_id(name: str, nonce: int) -> MemberId:
    """The id of the member with this name on its ticket, and this number in its store."""
    digest = blake2b(nonce.to_bytes(NONCE_BYTES, "big") + name.encode(), digest_size=8, person=b"bl member id")
    return MemberId(int.from_bytes(digest.digest(), "big") | PROVABLE_BIT)


def is_provable(member: MemberId) -> bool:
    return bool(member & PROVABLE_BIT)


def signed(signer: PostSigner, group: GroupId, nonce: int, post: Post) -> Post:
    """Our own post with its proof."""
    signature = signer.sign(_statement(group, post))
    proof = nonce.to_bytes(NONCE_BYTES, "big") + signature
    return post._replace(proof=proof, credential=signer.credential, verified_name=signer.name)


def verified(signer: PostSigner, group: GroupId, post: Post) -> Post | None:
    """The post with the name on its author's ticket; without a proof if its author has none; None if it is forged."""
    if not is_provable(post.author):
        return post._replace(proof=b"", credential=b"")
    proof = post.proof
    if not proof or not post.credential:
        return None
    nonce, signature = int.from_bytes(proof[:NONCE_BYTES], "big"), proof[NONCE_BYTES:PROOF_BYTES]
    name = signer.verify(post.credential, _statement(group, post), signature, post.sent_at_ms)
    if name is None or member_id(name, nonce) != post.author:
        return None
    return post._replace(verified_name=name)


def stripped(post: Post) -> Post:
    """The post without its data."""
    proof = post.proof + sha256(post.data).digest() if post.proof and not post.is_stripped else post.proof
    return post._replace(data=b"", is_stripped=True, proof=proof)


def _statement(group: GroupId, post: Post) -> bytes:
    """What an author signs."""
    digest = post.proof[PROOF_BYTES:] if post.is_stripped else sha256(post.data).digest()
    return _STATEMENT.pack(group, post.author, post.sequence, *(post.parent_id or (0, 0)), post.sent_at_ms, digest)
