"""What stands in group messages: the nouns, and how each is written in XDR.

Everything is checked as it is read: sequences and counters are in range, spans are the right way round, a message does
not respond to itself.
"""

import struct
import zlib
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

from weft.groups import limits
from weft.groups.names import GroupId, MemberId, MessageId, Post
from weft.groups.settings import Keep
from weft.wire import xdr
from weft.wire.errors import WireError
from weft.wire.xdr import Buffer, Xdr

Span = tuple[int, int]
"""First and last of sequences that follow each other."""


class Have(NamedTuple):
    """What somebody has of one author."""

    author: MemberId
    spans: tuple[Span, ...]


class Stand(NamedTuple):
    """How a member stands to a group. The step grows by one each time: odd is in, even is out."""

    member: MemberId
    name: str
    step: int


class Charter(NamedTuple):
    """What a group is, fixed at its creation. If two give the same identity, the smaller charter holds for all."""

    creator: MemberId
    description: str
    keep: Keep


class Roster(NamedTuple):
    """What somebody knows of a group, or a part of it."""

    group: GroupId
    charter: Charter | None
    stands: tuple[Stand, ...]


class Holding(NamedTuple):
    """How much of a group's messages somebody has had: equal marks, equal messages."""

    group: GroupId
    held: int
    mark: int


_H = struct.Struct(">Q")
_HH = struct.Struct(">QQ")
_HHH = struct.Struct(">QQQ")
_POST = struct.Struct(">QQQQQI")
_KEEP = struct.Struct(">IIQI")
_NAME = xdr.string(limits.NAME_BYTES_MAX)
_DESCRIPTION = xdr.string(limits.DESCRIPTION_BYTES_MAX)
_HAS_PARENT, _HOLLOW = 1, 2


def _limited(value: int) -> int:
    if not 0 < value <= limits.COUNT_MAX:
        raise WireError(f"{value} is no sequence or counter")
    return value


def _pack_span(span: Span, out: list[bytes]) -> None:
    out.append(_HH.pack(*span))


def _unpack_span(buffer: Buffer, position: int) -> tuple[Span, int]:
    first, last = _HH.unpack_from(buffer, position)
    if _limited(first) > _limited(last):
        raise WireError(f"from {first} to {last}")
    return (first, last), position + 16


_SPANS = xdr.array(Xdr(_pack_span, _unpack_span), limits.ENTRIES_MAX)


def _pack_have(have: Have, out: list[bytes]) -> None:
    out.append(_H.pack(have.author))
    _SPANS.pack(have.spans, out)


def _unpack_have(buffer: Buffer, position: int) -> tuple[Have, int]:
    (author,) = _H.unpack_from(buffer, position)
    spans, position = _SPANS.unpack(buffer, position + 8)
    return Have(author, spans), position


def _pack_stand(stand: Stand, out: list[bytes]) -> None:
    out.append(_HH.pack(stand.member, stand.step))
    _NAME.pack(stand.name, out)


def _unpack_stand(buffer: Buffer, position: int) -> tuple[Stand, int]:
    member, step = _HH.unpack_from(buffer, position)
    name, position = _NAME.unpack(buffer, position + 16)
    return Stand(member, name, _limited(step)), position


def _pack_charter(charter: Charter, out: list[bytes]) -> None:
    keep = charter.keep
    out.append(_H.pack(charter.creator))
    _DESCRIPTION.pack(charter.description, out)
    out.append(_KEEP.pack(keep.messages, keep.age_s, keep.total_bytes, keep.ids_only))


def _unpack_charter(buffer: Buffer, position: int) -> tuple[Charter, int]:
    (creator,) = _H.unpack_from(buffer, position)
    description, position = _DESCRIPTION.unpack(buffer, position + 8)
    messages, age_s, total_bytes, ids_only = _KEEP.unpack_from(buffer, position)
    if ids_only > 1:
        raise WireError(f"{ids_only} is neither true nor false")
    return Charter(creator, description, Keep(messages, age_s, total_bytes, bool(ids_only))), position + _KEEP.size


_CHARTER = xdr.optional(Xdr(_pack_charter, _unpack_charter))
_STANDS = xdr.array(Xdr(_pack_stand, _unpack_stand), limits.ENTRIES_MAX)


def _pack_roster(roster: Roster, out: list[bytes]) -> None:
    out.append(_H.pack(roster.group))
    _CHARTER.pack(roster.charter, out)
    _STANDS.pack(roster.stands, out)


def _unpack_roster(buffer: Buffer, position: int) -> tuple[Roster, int]:
    (group,) = _H.unpack_from(buffer, position)
    charter, position = _CHARTER.unpack(buffer, position + 8)
    stands, position = _STANDS.unpack(buffer, position)
    return Roster(group, charter, stands), position


def _pack_post(post: Post, out: list[bytes]) -> None:
    parent = post.parent
    flags = (_HAS_PARENT if parent is not None else 0) | (_HOLLOW if post.hollow else 0)
    out.append(_POST.pack(post.author, post.sequence, *(parent or (0, 0)), post.sent_ms, flags))
    if len(post.data) > limits.DATA_BYTES_MAX:
        raise WireError(f"{len(post.data)} bytes where at most {limits.DATA_BYTES_MAX} are possible")
    xdr.pack_opaque(post.data, out)


def _unpack_post_head(buffer: Buffer, position: int) -> tuple[MessageId, MessageId | None, int, int]:
    """All but the data: the names of message and parent, the time, the flags."""
    author, sequence, above, parent_sequence, sent_ms, flags = _POST.unpack_from(buffer, position)
    _limited(sequence)
    parent = None
    if flags & _HAS_PARENT:
        parent = MessageId(above, _limited(parent_sequence))
        if above == author and parent_sequence >= sequence:
            raise WireError("a message that responds to itself or to a later one of its author")
    elif above or parent_sequence:
        raise WireError("half a parent")
    return MessageId(author, sequence), parent, sent_ms, flags


def _unpack_post(buffer: Buffer, position: int) -> tuple[Post, int]:
    named, parent, sent_ms, flags = _unpack_post_head(buffer, position)
    data, position = xdr.unpack_opaque(buffer, position + _POST.size, limits.DATA_BYTES_MAX)
    if flags > 3 or (flags & _HOLLOW and data):
        raise WireError(f"flags {flags} do not fit")
    return Post(*named, parent, sent_ms, data, bool(flags & _HOLLOW)), position


def unpack_said_head(buffer: Buffer, position: int) -> tuple[GroupId, MessageId, MessageId | None]:
    """The names at the beginning of a `Said`, of which more need not be there."""
    (group,) = _H.unpack_from(buffer, position)
    _, position = _NAME.unpack(buffer, position + 8)
    named, parent, _, _ = _unpack_post_head(buffer, position)
    return group, named, parent


def _pack_id(named: MessageId, out: list[bytes]) -> None:
    out.append(_HH.pack(*named))


def _unpack_id(buffer: Buffer, position: int) -> tuple[MessageId, int]:
    author, sequence = _HH.unpack_from(buffer, position)
    return MessageId(author, _limited(sequence)), position + 16


def _pack_holding(holding: Holding, out: list[bytes]) -> None:
    out.append(_HHH.pack(*holding))


def _unpack_holding(buffer: Buffer, position: int) -> tuple[Holding, int]:
    return Holding(*_HHH.unpack_from(buffer, position)), position + _HHH.size


def _pack_names(names: tuple[MemberId, str], out: list[bytes]) -> None:
    out.append(_H.pack(names[0]))
    _NAME.pack(names[1], out)


def _unpack_names(buffer: Buffer, position: int) -> tuple[Any, int]:
    (member,) = _H.unpack_from(buffer, position)
    name, position = _NAME.unpack(buffer, position + 8)
    return (member, name), position


Name = Annotated[str, _NAME]
PostField = Annotated[Post, Xdr(_pack_post, _unpack_post)]
Buckets = Annotated[tuple[int, ...], xdr.array(xdr.HYPER, limits.BUCKETS_MAX)]
Ids = Annotated[tuple[int, ...], xdr.array(xdr.HYPER, limits.ENTRIES_MAX)]
_ROSTERS = xdr.array(Xdr(_pack_roster, _unpack_roster), limits.ENTRIES_MAX)
Haves = Annotated[tuple[Have, ...], xdr.array(Xdr(_pack_have, _unpack_have), limits.HAVES_MAX)]
Holdings = Annotated[tuple[Holding, ...], xdr.array(Xdr(_pack_holding, _unpack_holding), limits.ENTRIES_MAX)]
Wanted = Annotated[tuple[MessageId, ...], xdr.array(Xdr(_pack_id, _unpack_id), limits.WANT_MAX)]
_POSTS = xdr.array(Xdr(_pack_post, _unpack_post), limits.ENTRIES_MAX)
Body = Annotated[bytes, xdr.opaque(limits.BODY_BYTES_MAX)]
"""Read only by those who lack something of it."""
Names = Annotated[tuple[tuple[MemberId, str], ...], xdr.array(Xdr(_pack_names, _unpack_names), limits.ENTRIES_MAX)]


def pack_rosters(rosters: Iterable[Roster]) -> bytes:
    return _pack_body(_ROSTERS, tuple(rosters))


def unpack_rosters(body: bytes) -> tuple[Roster, ...]:
    return _unpack_body(_ROSTERS, body)  # type: ignore[no-any-return]


def pack_posts(posts: Iterable[Post]) -> bytes:
    return _pack_body(_POSTS, tuple(posts))


def unpack_posts(body: bytes) -> tuple[Post, ...]:
    return _unpack_body(_POSTS, body)  # type: ignore[no-any-return]


def _pack_body(kind: Xdr, values: tuple[Any, ...]) -> bytes:
    """Compressed: what stands around a short message is larger than the message, and nearly the same each time."""
    out: list[bytes] = []
    kind.pack(values, out)
    return zlib.compress(b"".join(out), 1)


def _unpack_body(kind: Xdr, body: bytes) -> Any:
    """Who announces little and unpacks to much is refused at the limit."""
    opened = zlib.decompressobj()
    try:
        plain = opened.decompress(body, limits.BODY_BYTES_MAX)
        value, position = kind.unpack(plain, 0)
    except (struct.error, zlib.error):
        raise WireError("the body of a page is damaged") from None
    if not opened.eof or opened.unused_data:
        raise WireError("the body of a page is larger than may be, or does not end where it should")
    if position != len(plain):
        raise WireError(f"{len(plain) - position} bytes too many")
    return value
