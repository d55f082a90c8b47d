"""Random messages of every kind, generated from the annotations of their fields."""

import types
from collections.abc import Mapping
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from broadloom.wire.broadcast_frame import BROADCAST, PRIORITY_MAX, SIGNATURE_BYTES_MAX, Broadcast, encode_broadcast
from broadloom.wire.codec import HEAD, LENGTH_BYTES, WireMessage, encode, kinds
from broadloom.wire.fields import (
    CHANNEL_ID_BYTES,
    OWNER_HASH_BYTES,
    Bool,
    ChannelId,
    CredentialBytes,
    DocumentHash,
    Hyper,
    PartBytes,
    ProofBytes,
    Text,
    UInt,
)
from broadloom.wire.types import Address, PeerId

UINT_MAX = (1 << 32) - 1
HYPER_MAX = (1 << 64) - 1

uints = st.one_of(st.integers(0, UINT_MAX), st.sampled_from([0, 1, UINT_MAX]))
hypers = st.one_of(st.integers(0, HYPER_MAX), st.sampled_from([0, 1, UINT_MAX + 1, HYPER_MAX]))
# What UTF-8 can encode and a C string can hold.
characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
# A character takes at most four bytes, so these stay within the limits, which have their own tests.
texts = st.text(characters, max_size=40)
addresses = st.builds(Address, texts, st.integers(0, 65535))

OF_ANNOTATION: dict[Any, st.SearchStrategy[Any]] = {
    UInt: uints,
    Hyper: hypers,
    Bool: st.booleans(),
    Text: texts,
    ChannelId: st.binary(min_size=CHANNEL_ID_BYTES, max_size=CHANNEL_ID_BYTES),
    DocumentHash: st.binary(min_size=OWNER_HASH_BYTES, max_size=OWNER_HASH_BYTES),
    CredentialBytes: st.binary(max_size=64),
    ProofBytes: st.binary(max_size=64),
    PartBytes: st.binary(max_size=64),
    Address: addresses,
    # Inside named tuples a bare int is a hyper; the one exception, the port, is in `addresses`.
    int: hypers,
    bytes: st.binary(max_size=64),
    PeerId: hypers,
}

# Bundles of equal sizes take another path through the decoder than mixed ones; some are empty.
equal_messages = st.integers(0, 20).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=2, max_size=6)
)
mixed_messages = st.lists(st.binary(max_size=20), min_size=2, max_size=6)
one_message = st.lists(st.binary(max_size=64), min_size=1, max_size=1)
bundles = st.one_of(one_message, equal_messages, mixed_messages).map(tuple)


def _broadcast(stream_start: int, stream_offset: int, messages: tuple[bytes, ...], **rest: Any) -> Broadcast:
    # The sequence number of the last message must not overflow.
    stream_start = min(stream_start, HYPER_MAX + 1 - len(messages))
    sequence = min(stream_start + stream_offset, HYPER_MAX + 1 - len(messages))
    return Broadcast(sequence=sequence, stream_start=stream_start, messages=messages, **rest)


BROADCASTS: st.SearchStrategy[Broadcast] = st.builds(
    _broadcast,
    stream_start=st.one_of(st.integers(1, HYPER_MAX), st.just(1), st.just(HYPER_MAX)),
    stream_offset=uints,
    author=hypers,
    messages=bundles,
    hops=uints,
    age_ms=uints,
    dissemination=uints,
    kind=uints,
    priority=st.integers(0, PRIORITY_MAX),
    ttl_ms=uints,
    signature=st.binary(max_size=SIGNATURE_BYTES_MAX),
)

ALL: dict[int, type[Any]] = {**kinds(), BROADCAST: Broadcast}
"""Every message by number, including the broadcast, which is not in the codec's registry."""


def of_hint(hint: Any) -> st.SearchStrategy[Any]:
    """Values of one annotation. Fails for an unknown one: a new field type needs a strategy."""
    if hint in OF_ANNOTATION:
        return OF_ANNOTATION[hint]
    if get_origin(hint) is Annotated:
        return of_hint(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return st.one_of(*(st.none() if each is type(None) else of_hint(each) for each in get_args(hint)))
    if get_origin(hint) is tuple:
        return st.lists(of_hint(get_args(hint)[0]), max_size=4).map(tuple)
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return st.sampled_from(list(hint))
    if isinstance(hint, type) and issubclass(hint, tuple):
        return st.builds(hint, **{name: of_hint(each) for name, each in get_type_hints(hint).items()})
    raise TypeError(f"no strategy for {hint}")


def hints_of(kind: Any) -> dict[str, Any]:
    """The annotations of the encoded fields, in order."""
    hints = get_type_hints(kind, include_extras=True)
    names = kind.__dataclass_fields__ if issubclass(kind, WireMessage) else kind._fields
    return {name: hints[name] for name in names}


OF_KIND: dict[type[Any], st.SearchStrategy[Any]] = {Broadcast: BROADCASTS}
for _kind in kinds().values():
    OF_KIND[_kind] = st.builds(_kind, **{name: of_hint(hint) for name, hint in hints_of(_kind).items()})

MESSAGES: st.SearchStrategy[Any] = st.one_of(*OF_KIND.values())


def messages_of(kind: type[Any]) -> st.SearchStrategy[Any]:
    return OF_KIND[kind]


def frame_of(message: WireMessage | Broadcast) -> bytes:
    return encode_broadcast(message) if isinstance(message, Broadcast) else encode(message)


def resized(frame: bytes) -> bytes:
    """The frame with its length corrected."""
    return max(len(frame) - LENGTH_BYTES, 0).to_bytes(LENGTH_BYTES, "big")[: len(frame)] + frame[LENGTH_BYTES:]


def frame_with(number: int, body: bytes) -> bytes:
    return HEAD.pack(len(body) + LENGTH_BYTES, number) + body


def plain(value: Any) -> Any:
    """A message as dicts, lists and numbers, for comparison with another decoder."""
    if isinstance(value, Broadcast):
        found = value._asdict()
        found["stream_offset"] = value.sequence - found.pop("stream_start")
        found["message_count"] = len(value.messages)
        found["sizes"] = [len(each) for each in value.messages]
        found["messages"] = b"".join(value.messages)
        return found
    if isinstance(value, WireMessage):
        return {name: plain(getattr(value, name)) for name in hints_of(type(value))} or None
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return int(value) if isinstance(value, IntEnum) else value


def built(hint: Any, value: Any) -> Any:
    """The inverse of `plain` for a value with this annotation."""
    if hint is Broadcast:
        made_of = ("stream_offset", "message_count", "sizes", "messages")
        rest = {name: each for name, each in value.items() if name not in made_of}
        ends = pairwise(accumulate(value["sizes"], initial=0))
        messages = tuple(value["messages"][start:stop] for start, stop in ends)
        return Broadcast(stream_start=value["sequence"] - value["stream_offset"], messages=messages, **rest)
    if get_origin(hint) is Annotated:
        return built(get_args(hint)[0], value)
    if get_origin(hint) in (Union, types.UnionType):
        return None if value is None else built(get_args(hint)[0], value)
    if get_origin(hint) is tuple:
        return tuple(built(get_args(hint)[0], each) for each in value)
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return hint(value)
    if isinstance(hint, type) and issubclass(hint, WireMessage | tuple):
        given: Mapping[str, Any] = value or {}
        return hint(**{name: built(each, given[name]) for name, each in hints_of(hint).items()})
    return value
