"""The messages of ordered conversations: bytes and back, and nothing else than `WireError` for other bytes."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broadloom.order.codec import OrderMessage, decode, encode, message_types
from broadloom.order.log import EpochStart, LogEntry
from broadloom.order.messages import LastNumber, Run, Submit
from broadloom.order.model import Epoch
from broadloom.wire.xdr import UnknownMessageError, WireError

TOP = Path(__file__).parent.parent.parent
HYPER = st.integers(0, 2**64 - 1)
UINT = st.integers(0, 2**32 - 1)
CHAIN = st.binary(min_size=16, max_size=16)
EPOCH = st.builds(Epoch, HYPER, HYPER)
STARTS = st.lists(st.builds(EpochStart, EPOCH, HYPER), max_size=5).map(tuple)
HYPERS = st.lists(HYPER, max_size=5).map(tuple)
ENTRY = st.builds(LogEntry, HYPER, HYPER, HYPER, st.binary(max_size=64), st.binary(max_size=100))
BY_FIELD: dict[str, st.SearchStrategy[Any]] = {
    "epoch": EPOCH,
    "fence": EPOCH,
    "chain": CHAIN,
    "chain_before": CHAIN,
    "lineage": STARTS,
    "runs": st.lists(st.builds(Run, HYPER, HYPER, UINT, HYPER), max_size=5).map(tuple),
    "counted": HYPERS,
    "participants": HYPERS,
    "enrolled": HYPERS,
    "entries": st.lists(ENTRY, max_size=5).map(tuple),
    "last_numbers": st.lists(st.builds(LastNumber, HYPER, HYPER), max_size=5).map(tuple),
    "key": st.binary(max_size=64),
    "data": st.binary(max_size=100),
    "is_snapshot": st.booleans(),
}


def messages() -> st.SearchStrategy[OrderMessage]:
    return st.one_of(
        *(st.builds(kind, *(BY_FIELD.get(name, HYPER) for name, _ in kind.packs)) for kind in message_types().values())
    )


@given(messages())
def test_message_is_equal_after_encoding_and_decoding(message: OrderMessage) -> None:
    assert decode(encode(message)) == message


@given(messages(), st.data())
def test_truncated_message_is_malformed(message: OrderMessage, data: st.DataObject) -> None:
    encoded = encode(message)
    with pytest.raises(WireError):
        decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@given(st.binary(max_size=300), st.sampled_from([*message_types()]))
def test_other_bytes_are_malformed_or_a_message(data: bytes, number: int) -> None:
    try:
        message = decode(bytes((1, number)) + data)
    except WireError:
        return
    assert encode(message) == bytes((1, number)) + data


def test_later_versions_and_messages_are_unknown() -> None:
    for data in (b"\x02\x01", b"\x01\xff"):
        with pytest.raises(UnknownMessageError):
            decode(data)


def test_message_beyond_a_limit_is_not_encoded() -> None:
    with pytest.raises(WireError, match="at most 65536 are allowed"):
        encode(Submit(1, 1, b"", bytes(65_537)))
    with pytest.raises(WireError, match="at most 64 are allowed"):
        encode(Submit(1, 1, bytes(65), b""))


def test_every_message_is_documented() -> None:
    text = (TOP / "docs" / "order.md").read_text(encoding="utf-8")
    assert [kind.__name__ for kind in message_types().values() if f"`{kind.__name__}`" not in text] == []
