"""The messages with which state is fetched."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broadloom.wire.state_messages import (
    CHUNKS_MAX,
    ChunkQuery,
    StateManifest,
    StateMessage,
    StateQuery,
    StateRelease,
    decode_state,
    encode_state,
)
from broadloom.wire.xdr import WireError

HYPERS = st.integers(0, (1 << 64) - 1)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60)
POSITIONS = st.lists(st.tuples(HYPERS, HYPERS), max_size=5).map(tuple)
HASHES = st.binary(min_size=16, max_size=16)
MESSAGES: st.SearchStrategy[StateMessage] = st.one_of(
    st.builds(StateQuery, NAMES, POSITIONS),
    st.builds(ChunkQuery, HASHES),
    st.builds(StateRelease, NAMES),
    st.builds(
        StateManifest,
        POSITIONS,
        st.lists(st.tuples(HYPERS, HYPERS, HYPERS), max_size=3).map(tuple),
        st.lists(st.tuples(HASHES, st.integers(0, (1 << 32) - 1)), max_size=4).map(tuple),
    ),
)


@given(MESSAGES)
def test_state_messages_round_trip(message: StateMessage) -> None:
    assert decode_state(encode_state(message)) == message


@given(st.integers(0, 6), st.binary(max_size=200))
def test_any_bytes_are_a_state_message_or_a_wire_error(number: int, data: bytes) -> None:
    try:
        message = decode_state(number.to_bytes(4, "big") + data)
    except WireError:
        return
    assert encode_state(message) == number.to_bytes(4, "big") + data


@given(MESSAGES, st.data())
def test_truncated_state_messages_are_wire_errors(message: StateMessage, data: st.DataObject) -> None:
    encoded = encode_state(message)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(WireError):
        decode_state(encoded[:cut])


def test_manifest_with_too_many_chunks_is_rejected_before_they_are_decoded() -> None:
    head = (4).to_bytes(4, "big") + bytes(8)
    with pytest.raises(WireError, match="at most 4096"):
        decode_state(head + (CHUNKS_MAX + 1).to_bytes(4, "big"))
