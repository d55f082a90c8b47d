"""Proofs of creation, on channels with tickets: only the creator of a group chooses its description and retention.

The id of a group is a hash of its creator's member id and of the time of creation, and the creator signs the
descriptor. So every member can verify that a descriptor comes from the creator of this group, and any member can pass
it on. The id of a group with a well-known name is a hash of that name: it has no creator, and its descriptor is
unproven.
"""

from enum import Enum, auto
from hashlib import blake2b, sha256
from struct import Struct
from typing import TYPE_CHECKING

from broadloom.groups.model import GroupId, MemberId
from broadloom.groups.proofs import NONCE_BYTES, SIGNATURE_BYTES, member_id

if TYPE_CHECKING:
    from broadloom.groups.message_fields import GroupDescriptor
    from broadloom.groups.proofs import PostSigner

TIME_BYTES = 8
CREATOR_PROOF_BYTES = NONCE_BYTES + TIME_BYTES + SIGNATURE_BYTES

_STATEMENT = Struct(">6sQQQQ?32s")
"""Its size differs from that of a statement about a post, so neither is valid as the other."""


class Check(Enum):
    PROVEN = auto()
    UNPROVEN = auto()
    """There is no proof, or its credential is not valid on this channel."""
    FORGED = auto()


def group_id(creator: MemberId, created_at_ms: int) -> GroupId:
    key = creator.to_bytes(8, "big") + created_at_ms.to_bytes(TIME_BYTES, "big")
    return GroupId(int.from_bytes(blake2b(key, digest_size=8, person=b"bl group id").digest(), "big"))


def signed(signer: "PostSigner", nonce: int, created_at_ms: int, descriptor: "GroupDescriptor") -> "GroupDescriptor":
    """The descriptor of a group that we create, with its proof."""
    group = group_id(descriptor.creator, created_at_ms)
    signature = signer.sign(_statement(group, descriptor))
    proof = nonce.to_bytes(NONCE_BYTES, "big") + created_at_ms.to_bytes(TIME_BYTES, "big") + signature
    return descriptor._replace(proof=proof, credential=signer.credential)


def check(signer: "PostSigner", group: GroupId, descriptor: "GroupDescriptor") -> Check:
    proof, creator = descriptor.proof, descriptor.creator
    if not proof:
        return Check.UNPROVEN
    nonce = int.from_bytes(proof[:NONCE_BYTES], "big")
    created_at_ms = int.from_bytes(proof[NONCE_BYTES : NONCE_BYTES + TIME_BYTES], "big")
    if group != group_id(creator, created_at_ms):
        return Check.FORGED
    statement, signature = _statement(group, descriptor), proof[NONCE_BYTES + TIME_BYTES :]
    # A group outlives the ticket of its creator, so that all members agree on the descriptor.
    name = signer.verify(descriptor.credential, statement, signature, created_at_ms, even_if_revoked=True)
    if name is not None and member_id(name, nonce) == creator:
        return Check.PROVEN
    return Check.FORGED if name is not None or signer.accepts(descriptor.credential) else Check.UNPROVEN


def _statement(group: GroupId, descriptor: "GroupDescriptor") -> bytes:
    """What a creator signs. The group id stands for creator and time."""
    retention = descriptor.retention
    digest = sha256(descriptor.description.encode()).digest()
    numbers = (retention.messages_max, retention.age_max_s, retention.bytes_max, retention.ids_only)
    return _STATEMENT.pack(b"group\0", group, *numbers, digest)
