"""`Record`: one revision of one mailbox, as members exchange and store it.

Of two records of one mailbox the one with the higher rank counts: the higher revision, then the higher id of its
writer, then the higher hash of its content. The rank depends on the record alone, so all members choose the same one,
in whatever order they receive them.
"""

import struct
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from broadloom.mailboxes.classes import CLASSES
from broadloom.mailboxes.limits import (
    NAME_BYTES_MAX,
    OWNER_BYTES_MAX,
    PAGE_BYTES_MAX,
    PROOF_BYTES_MAX,
    REVISION_MAX,
    check_name,
    check_owner,
)
from broadloom.wire.xdr import Buffer, WireError, Xdr, pack_opaque, string, unpack_opaque

if TYPE_CHECKING:
    from broadloom.wire import PeerId

VALID = 1
"""Flag: there is a value."""
WHILE_HERE = 2
"""Flag: it counts only while its writer is a member."""
UNBOUND = 4
"""Flag: the mailbox was unbound. Kept for a while, so that an older record does not bring it back."""
FLAGS_MASK = 7

_HEAD = struct.Struct(">IIQQQQI")
_OWNER, _NAME = string(OWNER_BYTES_MAX), string(NAME_BYTES_MAX)
STATEMENT_PREFIX = b"mailbox\0"
"""With the hash that follows, its size differs from that of the statements of groups: neither is valid as the other."""

Key = tuple[str, str]
"""Owner and name of a mailbox."""


class Record(NamedTuple):
    owner: str
    name: str
    class_number: int
    flags: int
    revision: int
    writer: "PeerId"
    at_ms: int
    """When it was written, by the writer's clock."""
    ttl_ms: int
    """The value expires this long after `at_ms`; 0: never."""
    data: bytes
    proof: bytes = b""
    """The writer's signature, on a channel with tickets."""
    credential: bytes = b""
    """The certificate that the proof was made with."""

    @property
    def key(self) -> Key:
        return self.owner, self.name

    @property
    def is_valid(self) -> bool:
        return bool(self.flags & VALID)

    @property
    def is_unbound(self) -> bool:
        return bool(self.flags & UNBOUND)

    @property
    def is_while_here(self) -> bool:
        return bool(self.flags & WHILE_HERE)


def content(record: Record) -> bytes:
    """What a record says, without its proof. Owner and name come last, with the length of the first in front."""
    owner = record.owner.encode()
    head = _HEAD.pack(
        record.class_number, record.flags, record.revision, record.writer, record.at_ms, record.ttl_ms, len(owner)
    )
    name = record.name.encode()
    return b"".join((head, owner, len(name).to_bytes(4, "big"), name, record.data))


def content_hash(record: Record) -> int:
    return int.from_bytes(blake2b(content(record), digest_size=8).digest(), "big")


def pack_record(record: Record, credential_number: int, out: list[bytes]) -> None:
    """`credential_number` is 1 for the first certificate of the page, and 0 for none."""
    out.append(
        _HEAD.pack(
            record.class_number,
            record.flags,
            record.revision,
            record.writer,
            record.at_ms,
            record.ttl_ms,
            credential_number,
        )
    )
    _OWNER.pack(record.owner, out)
    _NAME.pack(record.name, out)
    pack_opaque(record.data, out)
    pack_opaque(record.proof, out)


def _pack(value: tuple[Record, int], out: list[bytes]) -> None:
    pack_record(*value, out)


def _unpack(buffer: Buffer, position: int) -> tuple[tuple[Record, int], int]:
    class_number, flags, revision, writer, at_ms, ttl_ms, credential = _HEAD.unpack_from(buffer, position)
    owner, position = _OWNER.unpack(buffer, position + _HEAD.size)
    name, position = _NAME.unpack(buffer, position)
    data, position = unpack_opaque(buffer, position, PAGE_BYTES_MAX)
    proof, position = unpack_opaque(buffer, position, PROOF_BYTES_MAX)
    record = Record(owner, name, class_number, flags, revision, writer, at_ms, ttl_ms, data, proof)
    _check(record)
    return (record, credential), position


def _check(record: Record) -> None:
    """Raises `WireError` for what no honest writer sends."""
    found = CLASSES.get(record.class_number)
    if found is None or record.flags & ~FLAGS_MASK or not 0 < record.revision < REVISION_MAX:
        raise WireError("a record with a class, flags or revision that do not exist")
    if not record.writer or record.at_ms >= REVISION_MAX or record.ttl_ms >= REVISION_MAX:
        raise WireError("a record with an impossible time or writer")
    if record.data and not record.is_valid:
        raise WireError("a record with data, but without a value")
    if record.is_valid and (not found.is_value or record.is_unbound):
        raise WireError(f"a value in a mailbox of class {record.class_number}")
    if not found.is_value and not record.is_while_here:
        raise WireError(f"a mailbox of class {record.class_number} is bound to the presence of its owner")
    try:
        check_owner(record.owner)
        check_name(record.name)
    except ValueError as problem:
        raise WireError(str(problem)) from None


RECORD: Any = Xdr(_pack, _unpack)


# -- proofs, on channels with tickets


class RecordSigner(Protocol):
    """Signs our records and verifies those of others (`security/post_signer.py`)."""

    name: str
    """The name on our ticket."""
    credential: bytes

    def sign(self, data: bytes) -> bytes: ...

    def verify(self, credential: bytes, data: bytes, signature: bytes, sent_at_ms: int) -> str | None:
        """The name on the writer's ticket; None if the signature, or the credential at that time, is not valid."""

    def credential_of(self, peer_id: "PeerId") -> bytes:
        """The credential of a peer that has sent a message; empty if it is unknown."""


def signed(signer: RecordSigner | None, record: Record) -> Record:
    if signer is None:
        return record
    return record._replace(proof=signer.sign(_statement(record)), credential=signer.credential)


def is_proven(signer: RecordSigner, record: Record) -> bool:
    """Whether the holder of a ticket with the owner's name wrote this record."""
    if not record.proof or not record.credential:
        return False
    return signer.verify(record.credential, _statement(record), record.proof, record.at_ms) == record.owner


def _statement(record: Record) -> bytes:
    return STATEMENT_PREFIX + sha256(content(record)).digest()
