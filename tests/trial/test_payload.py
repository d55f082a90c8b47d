"""Payloads: whole or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.trial.payload import SIZE_MIN_BYTES, Altered, Said, make, read

U64 = st.integers(0, 2**64 - 1)
SAID = st.builds(Said, U64, U64, U64, U64)


@given(SAID, st.integers(SIZE_MIN_BYTES, 400))
def test_what_was_made_is_read_again(said, size):
    data = make(said, size)
    assert len(data) == size
    assert read(data) == said


@given(SAID, st.integers(SIZE_MIN_BYTES, 200), st.data())
def test_one_wrong_bit_is_seen(said, size, draw):
    data = bytearray(make(said, size))
    bit = draw.draw(st.integers(0, 8 * size - 1))
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Altered):
        read(bytes(data))


def test_a_piece_is_not_the_whole():
    data = make(Said(1, 2, 3, 4), 100)
    with pytest.raises(Altered):
        read(data[:33])
    assert read(make(Said(1, 2, 3, 4), 50)) == Said(1, 2, 3, 4)
