"""Every message survives encoding; anything that is not exactly a message raises `WireError` and nothing else."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.wire.codec import WireMessage, decode, encode, kinds, message, number_of
from broadloom.wire.exchange_messages import (
    MAGIC,
    VERSION,
    DiscoverRequest,
    EdgeOffer,
    EdgeOfferResponse,
    EdgeOfferResult,
    Hello,
    PartitionProbe,
    Reject,
    RejectReason,
)
from broadloom.wire.fields import CHANNEL_ID_BYTES, PEER_INFOS_MAX, UInt
from broadloom.wire.framing import FrameSplitter
from broadloom.wire.link_messages import Digest, Heartbeat, Want
from broadloom.wire.types import Address, AuthorState, PeerInfo
from broadloom.wire.xdr import UnknownMessageError, WireError
from tests.wire.wire_strategies import HYPER_MAX, UINT_MAX, frame_with, messages_of, resized

every_message = pytest.mark.parametrize("kind", kinds().values(), ids=lambda kind: kind.__name__)

HERE = Address("host", 80)
PEER_INFO = PeerInfo(5, HERE)
HELLO = Hello(MAGIC, VERSION, bytes(CHANNEL_ID_BYTES), 5, HERE, True, False)


@every_message
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_message_survives_encode_and_decode(kind: type[WireMessage], data: st.DataObject) -> None:
    made = data.draw(messages_of(kind))
    frame = encode(made)
    found = decode(frame)
    assert (type(found), found) == (kind, made)
    assert decode(memoryview(frame)) == made
    assert FrameSplitter().feed(frame) == [frame]
    assert number_of(frame) == kind.number


@every_message
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_truncated_message_raises_wire_error(kind: type[WireMessage], data: st.DataObject) -> None:
    frame = encode(data.draw(messages_of(kind)))
    for end in range(len(frame)):
        for cut in (frame[:end], resized(frame[:end])):
            with pytest.raises(WireError):
                decode(cut)


@every_message
@settings(max_examples=10, deadline=None)
@given(data=st.data(), extra=st.binary(min_size=1, max_size=8))
def test_trailing_bytes_raise_wire_error(kind: type[WireMessage], data: st.DataObject, extra: bytes) -> None:
    frame = encode(data.draw(messages_of(kind))) + extra
    for longer in (frame, resized(frame)):
        with pytest.raises(WireError):
            decode(longer)


@settings(deadline=None)
@given(st.integers(0, UINT_MAX).filter(lambda number: number not in kinds()), st.binary(max_size=40))
def test_unknown_number_raises_unknown_message_error(number: int, body: bytes) -> None:
    with pytest.raises(UnknownMessageError):
        decode(frame_with(number, body))


def test_importing_the_package_registers_all_messages() -> None:
    # In a fresh interpreter: here, other imports have registered them already.
    program = "import broadloom.wire; print(len(broadloom.wire.codec.kinds()))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(run.stdout) == len(kinds())


def test_declaration_rejects_used_number_and_field_without_format() -> None:
    before = kinds()
    with pytest.raises(TypeError, match="both have number 1"):

        @message(1)
        class Other(WireMessage):
            field: UInt

    with pytest.raises(TypeError, match="has no XDR type"):

        @message(999)
        class Bare(WireMessage):
            field: int

    assert kinds() == before


# Each has one defect and is otherwise valid.


def changed(message: WireMessage, old: bytes, new: bytes) -> bytes:
    """The frame of a message with a unique byte sequence replaced."""
    frame = encode(message)
    assert frame.count(old) == 1
    return resized(frame.replace(old, new))


def uint(value: int) -> bytes:
    return value.to_bytes(4, "big")


TEXT = Reject(RejectReason.BUSY, "abcde")
BAD_BYTES = {
    "enum without such a value": changed(EdgeOfferResponse(EdgeOfferResult.NO_FREE_SLOT), uint(3), uint(4)),
    "enum of zero": changed(EdgeOfferResponse(EdgeOfferResult.NO_FREE_SLOT), uint(3), uint(0)),
    "enum below zero": changed(EdgeOfferResponse(EdgeOfferResult.NO_FREE_SLOT), uint(3), uint(UINT_MAX)),
    "bool of two": encode(HELLO)[:-4] + uint(2),
    "bool with a high bit": encode(HELLO)[:-4] + uint(0x80000001),
    "flag of optional data": changed(
        PartitionProbe(None, 77, (), None, False, ()), uint(0) + uint(77), uint(2) + uint(77)
    ),
    "padding not zero": encode(TEXT)[:-1] + b"\1",
    "padding missing": resized(encode(TEXT)[:-1]),
    "padding too long": resized(encode(TEXT) + bytes(4)),
    "text not UTF-8": changed(TEXT, b"abcde", b"ab\xffde"),
    "text of a lone surrogate": changed(TEXT, b"abcde", b"\xed\xa0\x80de"),
    "text with NUL": changed(TEXT, b"abcde", b"ab\0de"),
    "text longer than the frame": changed(TEXT, uint(5), uint(9)),
    "text of 4 GB": changed(TEXT, uint(5), uint(UINT_MAX)),
    "host not UTF-8": changed(HELLO, b"host", b"h\xff\xffs"),
    "host with NUL": changed(HELLO, b"host", b"ho\0t"),
    "port of 65536": changed(HELLO, uint(80), uint(65536)),
    "port of 4 billion": changed(HELLO, uint(80), uint(UINT_MAX)),
    "elements announced and not there": changed(DiscoverRequest(True, 77, ()), uint(77) + uint(0), uint(77) + uint(1)),
    "too many elements": changed(
        DiscoverRequest(True, 77, ()), uint(77) + uint(0), uint(77) + uint(PEER_INFOS_MAX + 1)
    ),
    "4 billion elements": changed(DiscoverRequest(True, 77, ()), uint(77) + uint(0), uint(77) + uint(UINT_MAX)),
    "a length that is too small": uint(4) + encode(HELLO)[4:],
    "a length that is too large": uint(1 << 20) + encode(HELLO)[4:],
    "no length": b"",
    "no number": uint(0),
}


@pytest.mark.parametrize("frame", BAD_BYTES.values(), ids=list(BAD_BYTES))
def test_malformed_bytes_raise_wire_error(frame: bytes) -> None:
    for form in (frame, memoryview(frame)):
        with pytest.raises(WireError) as caught:
            decode(form)
        assert str(caught.value)
        assert type(caught.value) is WireError


def edge_offer(far_end: PeerInfo) -> EdgeOffer:
    return EdgeOffer(walk_id=1, far_end=far_end, splits_pair=False, near_neighbors=(), far_neighbors=(), is_final=False)


BAD_VALUES: dict[str, WireMessage] = {
    "uint of 2^32": DiscoverRequest(True, UINT_MAX + 1, ()),
    "uint below zero": DiscoverRequest(True, -1, ()),
    "hyper of 2^64": Want(HYPER_MAX + 1, 1, 1),
    "hyper below zero": Want(1, -1, 1),
    "channel id too short": replace(HELLO, channel=bytes(CHANNEL_ID_BYTES - 1)),
    "channel id too long": replace(HELLO, channel=bytes(CHANNEL_ID_BYTES + 1)),
    "port of 65536": replace(HELLO, address=Address("host", 65536)),
    "port below zero": replace(HELLO, address=Address("host", -1)),
    "port inside a contact": edge_offer(PeerInfo(5, Address("host", 65536))),
    "peer inside a contact": edge_offer(PeerInfo(HYPER_MAX + 1, HERE)),
    "host too long": edge_offer(PeerInfo(5, Address("h" * 256, 80))),
    "host too long in bytes only": edge_offer(PeerInfo(5, Address("é" * 128, 80))),
    "host of a lone surrogate": edge_offer(PeerInfo(5, Address("\ud800", 80))),
    "host with NUL": edge_offer(PeerInfo(5, Address("a\0b", 80))),
    "text too long": Reject(RejectReason.BUSY, "x" * 1025),
    "text too long in bytes only": Reject(RejectReason.BUSY, "é" * 513),
    "text of a lone surrogate": Reject(RejectReason.BUSY, "\ud800"),
    "text with NUL": Reject(RejectReason.BUSY, "a\0b"),
    "enum without such a value": EdgeOfferResponse(99),  # type: ignore[arg-type]
    "too many elements": DiscoverRequest(True, 0, (PEER_INFO,) * (PEER_INFOS_MAX + 1)),
    "a bad element": Digest(False, False, (AuthorState(1, 1, 1, -1),), ()),
}


@pytest.mark.parametrize("made", BAD_VALUES.values(), ids=list(BAD_VALUES))
def test_invalid_value_raises_wire_error_when_encoded(made: WireMessage) -> None:
    with pytest.raises(WireError) as caught:
        encode(made)
    assert type(made).__name__ in str(caught.value), "the error names the message"


def test_wire_error_names_the_message() -> None:
    with pytest.raises(WireError, match=r"^Heartbeat: 4 extra bytes"):
        decode(frame_with(Heartbeat.number, bytes(4)))


def test_messages_are_frozen_and_compare_by_value() -> None:
    assert replace(HELLO) == HELLO
    assert hash(HELLO) == hash(replace(HELLO))
    with pytest.raises(AttributeError):
        HELLO.peer_id = 6  # type: ignore[misc]
    unset: Any = Hello
    with pytest.raises(TypeError):
        unset()
