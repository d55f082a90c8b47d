"""Cards as JSON: what is encoded is decoded, and nothing else is accepted."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.protocol.owner.card import ChannelCard, Quota, decode_card, encode_card

CARD = ChannelCard("chess/club-42", 7, quotas={"producer": Quota(messages_per_s=10, message_bytes_max=1000)}, text="hi")


def test_card_survives_encoding() -> None:
    assert decode_card(encode_card(CARD)) == CARD


INVALID: dict[str, dict[str, Any]] = {
    "number": {"number": -1},
    "large number": {"number": 1 << 63},
    "number as text": {"number": "7"},
    "level": {"level": "secret"},
    "state": {"state": "ajar"},
    "degree": {"degree": 2},
    "channel": {"channel": "no slash"},
    "role": {"quotas": {"admin": {}}},
    "quota": {"quotas": {"producer": {"messages_per_s": 0}}},
    "burst": {"quotas": {"producer": {"burst_s": 0.5}}},
    "quota field": {"quotas": {"producer": {"seats": 3}}},
    "text": {"text": "a\nb"},
    "bootstrap": {"bootstrap": [1]},
    "version": {"version": 2},
    "unknown field": {"motto": "x"},
}


@pytest.mark.parametrize("changed", INVALID.values(), ids=INVALID)
def test_invalid_card_raises_value_error(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode_card(json.dumps({**json.loads(encode_card(CARD)), **changed}).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"7", b"\xff", b"[" * 10_000, b"x" * 20_000])
def test_other_bytes_raise_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode_card(data)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_changed_bytes_are_decoded_or_raise_value_error(data: st.DataObject) -> None:
    encoded = bytearray(encode_card(CARD))
    place = data.draw(st.integers(0, len(encoded) - 1))
    encoded[place] = data.draw(st.integers(0, 255))
    try:
        decode_card(bytes(encoded))
    except ValueError:
        return


def test_closing_card_keeps_the_rest() -> None:
    closed = CARD.closed("bye")
    assert closed.is_closed
    assert (closed.number, closed.text, closed.quotas) == (0, "bye", CARD.quotas)
