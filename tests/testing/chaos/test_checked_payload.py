"""Checked payloads: intact or rejected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broadloom.testing.workloads.checked_payload import (
    SIZE_MIN_BYTES,
    CheckedPayload,
    PayloadCorruptedError,
    decode,
    encode,
)

U64 = st.integers(0, 2**64 - 1)
PAYLOADS = st.builds(CheckedPayload, U64, U64, U64, U64)


@given(PAYLOADS, st.integers(SIZE_MIN_BYTES, 400))
def test_payload_round_trips(content, size):
    data = encode(content, size)
    assert len(data) == size
    assert decode(data) == content


@given(PAYLOADS, st.integers(SIZE_MIN_BYTES, 200), st.data())
def test_single_flipped_bit_is_detected(content, size, draw):
    data = bytearray(encode(content, size))
    bit = draw.draw(st.integers(0, 8 * size - 1))
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(PayloadCorruptedError):
        decode(bytes(data))


def test_truncated_payload_is_rejected():
    data = encode(CheckedPayload(1, 2, 3, 4), 100)
    with pytest.raises(PayloadCorruptedError):
        decode(data[:33])
    assert decode(encode(CheckedPayload(1, 2, 3, 4), 50)) == CheckedPayload(1, 2, 3, 4)
