"""The field types of group messages and their XDR encoding.

Everything is validated while it is decoded: numbers are in range, intervals are ordered, a message does not reply to
itself.
"""

import struct
from collections.abc import Callable, Iterable
from typing import Annotated, NamedTuple

from broadloom.groups import settings
from broadloom.groups.creator_proofs import CREATOR_PROOF_BYTES
from broadloom.groups.intervals import Interval
from broadloom.groups.model import GroupId, MemberId, MessageId, Post
from broadloom.groups.proofs import PROOF_BYTES, STRIPPED_PROOF_BYTES
from broadloom.groups.settings import RetentionPolicy
from broadloom.wire import xdr
from broadloom.wire.layer_codec import compressed, decompressed
from broadloom.wire.xdr import Buffer, WireError, Xdr, structure


class AuthorIntervals(NamedTuple):
    author: MemberId
    intervals: tuple[Interval, ...]


class MembershipRecord(NamedTuple):
    """The membership of one member in one group."""

    member: MemberId
    name: str
    version: int
    """Incremented by the member itself when it joins (odd) or leaves (even)."""

    @property
    def is_member(self) -> bool:
        return self.version % 2 == 1


class GroupDescriptor(NamedTuple):
    """The properties of a group, fixed at its creation. If two members create the same well-known group with different
    descriptors, the smaller one wins everywhere."""

    creator: MemberId
    description: str
    retention: RetentionPolicy
    proof: bytes = b""
    """On a channel with tickets: that it comes from the creator of the group (creator_proofs.py)."""
    credential: bytes = b""


class GroupRecord(NamedTuple):
    """What the sender knows about a group, or a part of it."""

    group: GroupId
    descriptor: GroupDescriptor | None
    members: tuple[MembershipRecord, ...]


class HistoryDigest(NamedTuple):
    """Fingerprint of the messages a member has received: equal digests, equal messages."""

    group: GroupId
    message_count: int
    digest: int


_HYPER = struct.Struct(">Q")
_TWO_HYPERS = struct.Struct(">QQ")
_POST = struct.Struct(">QQQQQI")
_HAS_PARENT, _IS_STRIPPED, _HAS_PROOF = 1, 2, 4


def _checked_counter(value: int) -> int:
    if not 0 < value <= settings.COUNT_MAX:
        raise WireError(f"sequence number or version out of range: {value}")
    return value


def _hyper(convert: Callable[[int], int]) -> Xdr:
    def unpack(buffer: Buffer, position: int) -> tuple[int, int]:
        return convert(_HYPER.unpack_from(buffer, position)[0]), position + 8

    return Xdr(xdr.HYPER.pack, unpack)


def _checked_interval(first: int, last: int) -> Interval:
    if first > last:
        raise WireError(f"interval from {first} to {last}")
    return first, last


_COUNTER = _hyper(_checked_counter)
_MEMBER_ID = _hyper(MemberId)
_GROUP_ID = _hyper(GroupId)
_NAME = xdr.string(settings.NAME_BYTES_MAX)
_INTERVALS = xdr.array(structure(_checked_interval, _COUNTER, _COUNTER), settings.ENTRIES_MAX)
_RETENTION = structure(RetentionPolicy, xdr.UINT, xdr.UINT, xdr.HYPER, xdr.BOOL)


def _pack_retention(retention: RetentionPolicy, out: list[bytes]) -> None:
    _RETENTION.pack((retention.messages_max, retention.age_max_s, retention.bytes_max, retention.ids_only), out)


# Written out for speed: a directory page consists mostly of these.
def _pack_member_record(record: MembershipRecord, out: list[bytes]) -> None:
    out.append(_TWO_HYPERS.pack(record.member, record.version))
    _NAME.pack(record.name, out)


def _unpack_member_record(buffer: Buffer, position: int) -> tuple[MembershipRecord, int]:
    member, version = _TWO_HYPERS.unpack_from(buffer, position)
    name, position = _NAME.unpack(buffer, position + 16)
    return MembershipRecord(MemberId(member), name, _checked_counter(version)), position


_DESCRIPTOR = structure(
    lambda *fields: GroupDescriptor(*fields[:3]),
    _MEMBER_ID,
    xdr.string(settings.DESCRIPTION_BYTES_MAX),
    Xdr(_pack_retention, _RETENTION.unpack),
    *(Xdr(lambda _value, _out: None, lambda _buffer, position: (b"", position)),) * 2,  # proofs follow the records
)
_MEMBER_RECORDS = xdr.array(Xdr(_pack_member_record, _unpack_member_record), settings.ENTRIES_MAX)
_GROUP_RECORD = structure(GroupRecord, _GROUP_ID, xdr.optional(_DESCRIPTOR), _MEMBER_RECORDS)
_GROUP_RECORD_ARRAY = xdr.array(_GROUP_RECORD, settings.ENTRIES_MAX)
_CREDENTIALS = xdr.array(xdr.opaque(settings.CREDENTIAL_BYTES_MAX), settings.PAGE_CREDENTIALS_MAX)
_CREATOR_PROOFS = xdr.array(
    structure(lambda *fields: fields, xdr.UINT, xdr.UINT, xdr.opaque(CREATOR_PROOF_BYTES)), settings.PAGE_PROOFS_MAX
)


def _pack_group_records(records: tuple[GroupRecord, ...], out: list[bytes]) -> None:
    """The records; then, if any descriptor has a proof, the credentials, each once, and for each proof the index of its
    record and that of its credential."""
    _GROUP_RECORD_ARRAY.pack(records, out)
    proven = [
        (number, record.descriptor)
        for number, record in enumerate(records)
        if record.descriptor is not None and record.descriptor.proof
    ]
    if proven:
        credentials = list(dict.fromkeys(descriptor.credential for _, descriptor in proven))
        _CREDENTIALS.pack(tuple(credentials), out)
        _CREATOR_PROOFS.pack(
            tuple((number, credentials.index(each.credential), each.proof) for number, each in proven), out
        )


def _unpack_group_records(buffer: Buffer, position: int) -> tuple[tuple[GroupRecord, ...], int]:
    array, position = _GROUP_RECORD_ARRAY.unpack(buffer, position)
    if position == len(buffer):
        return array, position
    records = list(array)
    credentials, position = _CREDENTIALS.unpack(buffer, position)
    creator_proofs, position = _CREATOR_PROOFS.unpack(buffer, position)
    for number, credential, proof in creator_proofs:
        if number >= len(records) or credential >= len(credentials) or len(proof) != CREATOR_PROOF_BYTES:
            raise WireError("invalid proof of creation")
        descriptor = records[number].descriptor
        if descriptor is None or descriptor.proof:
            raise WireError("proof of creation without a descriptor")
        proven = descriptor._replace(proof=proof, credential=credentials[credential])
        records[number] = records[number]._replace(descriptor=proven)
    return tuple(records), position


_GROUP_RECORDS = Xdr(_pack_group_records, _unpack_group_records)


def _pack_post(post: Post, out: list[bytes]) -> None:
    parent = post.parent_id
    flags = (_HAS_PARENT if parent is not None else 0) | (_IS_STRIPPED if post.is_stripped else 0)
    flags |= _HAS_PROOF if post.proof else 0
    out.append(_POST.pack(post.author, post.sequence, *(parent or (0, 0)), post.sent_at_ms, flags))
    if len(post.data) > settings.DATA_BYTES_MAX:
        raise WireError(f"{len(post.data)} bytes of data; at most {settings.DATA_BYTES_MAX} are allowed")
    xdr.pack_opaque(post.data, out)
    if post.proof:
        xdr.pack_opaque(post.proof, out)


def _unpack_post_head(buffer: Buffer, position: int) -> tuple[MessageId, MessageId | None, int, int]:
    """Everything but the data: ids of the message and its parent, time, flags."""
    author, sequence, parent_id, parent_sequence, sent_at_ms, flags = _POST.unpack_from(buffer, position)
    _checked_counter(sequence)
    parent = None
    if flags & _HAS_PARENT:
        parent = MessageId(MemberId(parent_id), _checked_counter(parent_sequence))
        if parent_id == author and parent_sequence >= sequence:
            raise WireError("a message replies to itself or to a later message of its author")
    elif parent_id or parent_sequence:
        raise WireError("parent id without the parent flag")
    return MessageId(MemberId(author), sequence), parent, sent_at_ms, flags


def _unpack_post(buffer: Buffer, position: int) -> tuple[Post, int]:
    message_id, parent, sent_at_ms, flags = _unpack_post_head(buffer, position)
    data, position = xdr.unpack_opaque(buffer, position + _POST.size, settings.DATA_BYTES_MAX)
    if flags > 7 or (flags & _IS_STRIPPED and data):
        raise WireError(f"invalid flags {flags}")
    proof = b""
    if flags & _HAS_PROOF:
        proof, position = xdr.unpack_opaque(buffer, position, STRIPPED_PROOF_BYTES)
        if len(proof) != (STRIPPED_PROOF_BYTES if flags & _IS_STRIPPED else PROOF_BYTES):
            raise WireError(f"proof of {len(proof)} bytes")
    return Post(*message_id, parent, sent_at_ms, data, bool(flags & _IS_STRIPPED), proof=proof), position


def unpack_post_message_head(buffer: Buffer, position: int) -> tuple[GroupId, MessageId, MessageId | None]:
    """The ids at the beginning of an encoded `PostMessage`, which may be cut off after them."""
    group, position = _GROUP_ID.unpack(buffer, position)
    _, position = _NAME.unpack(buffer, position)
    message_id, parent, _, _ = _unpack_post_head(buffer, position)
    return group, message_id, parent


Name = Annotated[str, _NAME]
MemberIdField = Annotated[MemberId, _MEMBER_ID]
GroupIdField = Annotated[GroupId, _GROUP_ID]
PostField = Annotated[Post, Xdr(_pack_post, _unpack_post)]
Buckets = Annotated[tuple[int, ...], xdr.array(xdr.HYPER, settings.BUCKETS_MAX)]
MemberIds = Annotated[tuple[MemberId, ...], xdr.array(_MEMBER_ID, settings.ENTRIES_MAX)]
HeldIntervals = Annotated[
    tuple[AuthorIntervals, ...], xdr.array(structure(AuthorIntervals, _MEMBER_ID, _INTERVALS), settings.INTERVALS_MAX)
]
HistoryDigests = Annotated[
    tuple[HistoryDigest, ...],
    xdr.array(structure(HistoryDigest, _GROUP_ID, xdr.HYPER, xdr.HYPER), settings.ENTRIES_MAX),
]
MessageIds = Annotated[
    tuple[MessageId, ...], xdr.array(structure(MessageId, _MEMBER_ID, _COUNTER), settings.MESSAGE_IDS_MAX)
]
_POST_ARRAY = xdr.array(Xdr(_pack_post, _unpack_post), settings.ENTRIES_MAX)
_INDEXES = xdr.array(xdr.UINT, settings.PAGE_PROOFS_MAX)


def _pack_post_list(posts: tuple[Post, ...], out: list[bytes]) -> None:
    """The posts; then, if any has a proof, the credentials, each once, and the index of each proof's credential."""
    _POST_ARRAY.pack(posts, out)
    used = [post.credential for post in posts if post.proof]
    if used:
        credentials = tuple(dict.fromkeys(used))
        _CREDENTIALS.pack(credentials, out)
        index = {credential: number for number, credential in enumerate(credentials)}
        _INDEXES.pack(tuple(index[credential] for credential in used), out)


def _unpack_post_list(buffer: Buffer, position: int) -> tuple[tuple[Post, ...], int]:
    posts, position = _POST_ARRAY.unpack(buffer, position)
    proven_count = sum(bool(post.proof) for post in posts)
    if not proven_count:
        return posts, position
    credentials, position = _CREDENTIALS.unpack(buffer, position)
    indexes, position = _INDEXES.unpack(buffer, position)
    if len(indexes) != proven_count or max(indexes) >= len(credentials):
        raise WireError("proofs without a credential")
    remaining = iter(indexes)
    return tuple(
        post._replace(credential=credentials[next(remaining)]) if post.proof else post for post in posts
    ), position


_POSTS = Xdr(_pack_post_list, _unpack_post_list)
Body = Annotated[bytes, xdr.opaque(settings.BODY_BYTES_MAX)]
"""Compressed. Decoded only by members that miss something in it."""
Names = Annotated[
    tuple[tuple[MemberId, str], ...],
    xdr.array(structure(lambda *fields: fields, _MEMBER_ID, _NAME), settings.ENTRIES_MAX),
]


def pack_group_records(records: Iterable[GroupRecord]) -> bytes:
    return compressed(_GROUP_RECORDS, tuple(records))


def unpack_group_records(body: bytes) -> tuple[GroupRecord, ...]:
    return decompressed(_GROUP_RECORDS, body, settings.BODY_BYTES_MAX, "page body")  # type: ignore[no-any-return]


def pack_posts(posts: Iterable[Post]) -> bytes:
    return compressed(_POSTS, tuple(posts))


def unpack_posts(body: bytes) -> tuple[Post, ...]:
    return decompressed(_POSTS, body, settings.BODY_BYTES_MAX, "page body")  # type: ignore[no-any-return]
