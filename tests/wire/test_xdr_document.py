"""The specification `docs/protocol/broadloom.x` and the code agree: each reads what the other wrote.

The specification is interpreted by an independent decoder (`xdr_language.py` over xdrlib3), so a mistake in the codec
cannot hide in both places.
"""

import re
from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdrlib3 import Packer, Unpacker

from broadloom.wire import broadcast_frame, codec, exchange_messages, fields, framing, xdr
from broadloom.wire.broadcast_frame import BROADCAST, Broadcast, Dissemination, decode_broadcast
from broadloom.wire.codec import LENGTH_BYTES, decode
from broadloom.wire.link_messages import CloseChannel, Digest
from broadloom.wire.payload_kind import PayloadKind
from broadloom.wire.roster_messages import MemberRecord, encode_record
from broadloom.wire.types import Address
from broadloom.wire.xdr import WireError
from tests.wire.wire_strategies import (
    ALL,
    HYPER_MAX,
    built,
    characters,
    frame_of,
    hints_of,
    hypers,
    messages_of,
    plain,
    uints,
)
from tests.wire.xdr_language import UNLIMITED, Declaration, Document

DOCS = Path(__file__).parents[2] / "docs" / "protocol"
DOCUMENT = Document.load(DOCS / "broadloom.x")
README = (DOCS / "README.md").read_text()
FRAME = Declaration("broadloom_frame")
ARMS = DOCUMENT.unions["broadloom_message"].arms

every_message = pytest.mark.parametrize("number", sorted(ALL), ids=lambda number: ALL[number].__name__)


def read_by_document(frame: bytes) -> tuple[int, Any]:
    source = Unpacker(frame)
    found = DOCUMENT.read(source, FRAME)
    source.done()
    assert found["length"] == len(frame) - LENGTH_BYTES
    number, message = found["message"]
    return number, message


def written_by_document(number: int, message: Any) -> bytes:
    target = Packer()
    DOCUMENT.write(target, Declaration("broadloom_message"), (number, message))
    body: bytes = target.get_buffer()
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def read_by_code(frame: bytes) -> Any:
    return decode_broadcast(frame) if codec.number_of(frame) == BROADCAST else decode(frame)


# The names.


def wire_names(kind: type[Any]) -> list[str]:
    # The broadcast has a layout of its own: the prefix that relays change comes first, the stream start is an offset
    # followed by the number of messages, and the messages come last, with their sizes.
    if kind is Broadcast:
        on_the_wire = {"stream_start": ["stream_offset", "message_count"]}
        in_front, at_the_end = ["hops", "age_ms"], ["signature", "sizes", "messages"]
        between = [name for name in kind._fields if name not in (*in_front, *at_the_end)]
        return [*in_front, *(each for name in between for each in on_the_wire.get(name, [name])), *at_the_end]
    return list(hints_of(kind))


def label_of(kind: type[Any]) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).upper()


def test_document_lists_exactly_the_messages_of_the_code() -> None:
    in_code = {number: label_of(kind) for number, kind in ALL.items()}
    assert DOCUMENT.unions["broadloom_message"].labels == in_code


@every_message
def test_document_has_the_same_fields_in_the_same_order(number: int) -> None:
    kind, arm = ALL[number], ARMS[number]
    if arm.kind == "void":
        assert wire_names(kind) == []
    else:
        assert arm.kind == kind.__name__
        assert [each.name for each in DOCUMENT.structs[arm.kind]] == wire_names(kind)


def test_document_has_the_same_enum_values() -> None:
    in_code = {}
    for kind in ALL.values():
        for hint in hints_of(kind).values():
            base = get_args(hint)[0] if get_args(hint) else hint
            if isinstance(base, type) and issubclass(base, IntEnum):
                in_code[base.__name__] = {f"{label_of(base)}_{each.name}": each.value for each in base}
    assert DOCUMENT.enums == in_code


def test_document_has_the_same_constants() -> None:
    modules = (exchange_messages, fields, xdr, broadcast_frame, framing)
    in_code = {name: value for module in modules for name, value in vars(module).items() if name.isupper()}
    numbers = set(DOCUMENT.unions["broadloom_message"].labels.values())
    for name, value in DOCUMENT.consts.items():
        if name not in numbers:
            assert in_code.get(name) == value, name


@every_message
def test_page_describes_every_message_and_field(number: int) -> None:
    kind = ALL[number]
    row = re.search(rf"^\| *{number} *\| *`{kind.__name__}` *\|(?P<fields>[^|]*)\|[^|]*\w[^|]*\|$", README, re.M)
    assert row, f"docs/protocol/README.md has no row for {number}, {kind.__name__}"
    mentioned = re.findall(r"`(\w+)`", row["fields"])
    assert [name for name in mentioned if name in wire_names(kind)] == wire_names(kind)


def test_documents_name_dissemination_and_payload_kinds() -> None:
    # Not an enum in the specification: other kinds are relayed as well.
    for name in ("README.md", "broadloom.x"):
        found = re.findall(r"\b(\d+) (FLOOD|TREE|[A-Z]+(?=[,;]| of))\b", (DOCS / name).read_text())
        assert [(int(value), label) for value, label in found] == [
            (each.value, each.name) for each in (*Dissemination, *PayloadKind)
        ], name


def test_page_describes_only_existing_messages() -> None:
    rows = re.findall(r"^\| *(\d+) *\| *`(\w+)` *\|", README, re.M)
    assert sorted((int(number), name) for number, name in rows) == sorted(
        (number, kind.__name__) for number, kind in ALL.items()
    )


def test_documents_name_the_reserved_numbers() -> None:
    numbers = set(range(Digest.number, CloseChannel.number)) - set(ALL)
    for name in ("README.md", "broadloom.x"):
        sentence = re.search(r"([\d, and]+) are reserved", (DOCS / name).read_text())
        assert sentence, name
        assert {int(number) for number in re.findall(r"\d+", sentence[1])} == numbers, name


def test_record_of_a_member_is_read_by_the_document() -> None:
    record = MemberRecord(1, 2, False, True, Address("10.0.0.5", 4000), "ann", (3, 4), (5,), (6,))
    source = Unpacker(encode_record(record))
    assert DOCUMENT.read(source, Declaration("MemberRecord")) == plain(record)
    source.done()


# The bytes.


@every_message
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_document_decoder_reads_frames_of_the_code(number: int, data: st.DataObject) -> None:
    made = data.draw(messages_of(ALL[number]))
    assert read_by_document(frame_of(made)) == (number, plain(made))


@cache
def values_of(declaration: Declaration) -> st.SearchStrategy[Any]:
    """Random values within the limits of the specification."""
    kind, name, shape, size = declaration
    if name == "port":
        return st.integers(0, DOCUMENT.consts["PORT_MAX"])
    if name == "priority":
        return st.integers(0, DOCUMENT.consts["PRIORITY_MAX"])
    if name == "sizes":
        mixed = st.lists(st.integers(0, 20), min_size=1, max_size=6)
        return mixed | mixed.map(lambda sizes: sizes[:1] * len(sizes))
    if kind == "opaque":
        return st.binary(min_size=size if shape == "[" else 0, max_size=min(size, 64))
    if kind == "string":
        return st.text(characters, max_size=min(size // 4, 40))
    one = DOCUMENT_VALUES[kind] if kind in DOCUMENT_VALUES else values_of_kind(kind)
    if shape == "*":
        return st.none() | one
    return st.lists(one, max_size=min(size, 4)) if shape == "<" else one


DOCUMENT_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "void": st.none(),
    "bool": st.booleans(),
    "unsigned int": uints,
    "unsigned hyper": hypers,
}


def values_of_kind(kind: str) -> st.SearchStrategy[Any]:
    if kind in DOCUMENT.enums:
        return st.sampled_from(sorted(DOCUMENT.enums[kind].values()))
    if kind in DOCUMENT.structs:
        made = st.fixed_dictionaries({each.name: values_of(each) for each in DOCUMENT.structs[kind]})
        return made.map(self_consistent) if kind == "Broadcast" else made
    return values_of(DOCUMENT.typedefs[kind])


def self_consistent(message: dict[str, Any]) -> dict[str, Any]:
    """A broadcast whose fields are consistent, which the XDR language cannot express."""
    count, body_bytes = len(message["sizes"]), sum(message["sizes"])
    sequence = min(max(message["sequence"], 1), HYPER_MAX + 1 - count)
    return message | {
        "sequence": sequence,
        "stream_offset": min(message["stream_offset"], sequence - 1),
        "message_count": count,
        "messages": ((message["messages"] or b"\1") * body_bytes)[:body_bytes],
    }


@every_message
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_code_reads_frames_of_the_document_encoder(number: int, data: st.DataObject) -> None:
    message = data.draw(values_of(ARMS[number]))
    frame = written_by_document(number, message)
    made = read_by_code(frame)
    assert type(made) is ALL[number]
    assert plain(made) == message
    assert frame_of(made) == frame


# The limits.


def smallest_value(declaration: Declaration) -> Any:
    kind, name, shape, size = declaration
    if shape == "*":
        return None
    if kind in ("opaque", "string"):
        return "" if kind == "string" else bytes(size if shape == "[" else 0)
    if shape == "<":
        return [0] if name == "sizes" else []
    if kind in DOCUMENT.structs:
        return {each.name: smallest_value(each) for each in DOCUMENT.structs[kind]}
    if kind in DOCUMENT.enums:
        return min(DOCUMENT.enums[kind].values())
    if kind in DOCUMENT.typedefs:
        return smallest_value(DOCUMENT.typedefs[kind])
    return {"void": None, "bool": False}.get(kind, 1 if name in ("sequence", "message_count") else 0)


def values_at_limit(declaration: Declaration, beyond: int) -> Iterator[Any]:
    """The smallest value of a type, each time with one part of the size of its limit plus `beyond`."""
    kind, name, shape, size = declaration
    if name == "port":
        yield DOCUMENT.consts["PORT_MAX"] + beyond
    elif name == "priority":
        yield DOCUMENT.consts["PRIORITY_MAX"] + beyond
    elif shape == "<" and size < UNLIMITED:
        if kind in ("opaque", "string"):
            yield "x" * (size + beyond) if kind == "string" else bytes(size + beyond)
        else:
            yield [smallest_value(Declaration(kind))] * (size + beyond)
            yield from ([each] for each in values_at_limit(Declaration(kind), beyond))
    elif shape == "*":
        yield from values_at_limit(Declaration(kind), beyond)
    elif kind in DOCUMENT.structs:
        smallest = smallest_value(declaration)
        for field in DOCUMENT.structs[kind]:
            made = (smallest | {field.name: each} for each in values_at_limit(field, beyond))
            yield from map(self_consistent, made) if kind == "Broadcast" else made
    elif kind in DOCUMENT.typedefs:
        yield from values_at_limit(DOCUMENT.typedefs[kind], beyond)


@every_message
def test_value_at_limit_is_accepted(number: int) -> None:
    for message in [smallest_value(ARMS[number]), *values_at_limit(ARMS[number], 0)]:
        frame = written_by_document(number, message)
        assert plain(read_by_code(frame)) == message
        assert frame_of(built(ALL[number], message)) == frame


@every_message
def test_value_beyond_limit_raises_wire_error_in_both_directions(number: int) -> None:
    for message in values_at_limit(ARMS[number], 1):
        with pytest.raises(WireError):
            read_by_code(written_by_document(number, message))
        with pytest.raises(WireError):
            frame_of(built(ALL[number], message))


def largest_bytes(declaration: Declaration) -> int:
    kind, _, shape, size = declaration
    if kind in ("opaque", "string"):
        return (4 if shape == "<" else 0) + (size + 3) // 4 * 4
    if kind in DOCUMENT.structs:
        one = sum(largest_bytes(each) for each in DOCUMENT.structs[kind])
    elif kind in DOCUMENT.typedefs:
        one = largest_bytes(DOCUMENT.typedefs[kind])
    else:
        one = {"void": 0, "unsigned hyper": 8, "hyper": 8}.get(kind, 4)
    return {"": one, "*": 4 + one, "[": size * one, "<": 4 + size * one}[shape]


@pytest.mark.parametrize("number", sorted(codec.kinds()), ids=lambda number: ALL[number].__name__)
def test_largest_message_fits_into_a_frame(number: int) -> None:
    # Except for the broadcast, which fills the frame (see test_broadcast.py).
    assert 8 + largest_bytes(ARMS[number]) <= DOCUMENT.consts["FRAME_BYTES_MAX"]
