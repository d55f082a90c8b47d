"""A member sends encoded messages that lie about themselves. Each is reported as missed, and the channel goes on."""

import zlib
from uuid import uuid4

import pytest

import broadloom
from broadloom.channel.encodings import GROWTH_MAX, SMALL_BYTES, undo_encodings
from broadloom.rules import SealingPrivateKey
from broadloom.security.sealing import KEY_BYTES, RECIPIENTS_MAX, seal, unseal
from broadloom.wire import WireError
from broadloom.wire.message_headers import (
    ENCODING,
    ENCODINGS_MAX,
    FORWARDS_MAX,
    Envelope,
    Headers,
    decode_headers,
    encode_headers,
    with_headers,
)
from broadloom.wire.payload_kind import HAS_HEADERS
from tests.channel.joined import QUICK
from tests.support import eventually

KEY = SealingPrivateKey.generate()
BOMB = zlib.compress(bytes(50 << 20))
SEALED = seal(b"plan", [KEY.public])


def opened(data: bytes, *encodings: str, bytes_max: int = 64 << 20) -> bytes:
    envelope, data = undo_encodings(Envelope(Headers(encodings=encodings), 0), data, [KEY], bytes_max)
    assert not envelope.remaining
    return data


DAMAGED = {
    "bomb": (BOMB, ("zlib",)),
    "bomb in a bomb": (zlib.compress(BOMB), ("zlib", "zlib")),
    "nothing": (b"", ("zlib",)),
    "not compressed": (b"not compressed", ("zlib",)),
    "truncated": (zlib.compress(b"plan")[:-1], ("zlib",)),
    "followed by more": (zlib.compress(b"plan") + b"more", ("zlib",)),
    "no head": (b"", ("x25519",)),
    "no recipients": (b"\0" * 500, ("x25519",)),
    "too many recipients": (bytes((RECIPIENTS_MAX + 1,)) + bytes(2000), ("x25519",)),
    "key without meaning": (bytes((1,)) + bytes(KEY_BYTES) + bytes(100), ("x25519",)),
    "encrypted and truncated": (SEALED[:-1], ("x25519",)),
    "encrypted and changed": (SEALED[:-1] + bytes((SEALED[-1] ^ 1,)), ("x25519",)),
    "encrypted and followed by more": (SEALED + b"more", ("x25519",)),
    "encrypted bomb": (seal(BOMB, [KEY.public]), ("zlib", "x25519")),
}


@pytest.mark.parametrize(("data", "encodings"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_or_exploding_data_is_rejected(data: bytes, encodings: tuple[str, ...]) -> None:
    with pytest.raises(WireError):
        opened(data, *encodings)


def test_growth_is_limited_by_factor_and_by_size() -> None:
    assert len(opened(zlib.compress(bytes(SMALL_BYTES)), "zlib")) == SMALL_BYTES
    with pytest.raises(WireError, match="grows to more than"):
        opened(zlib.compress(bytes(SMALL_BYTES + 1)), "zlib")
    with pytest.raises(WireError, match="more than 3 bytes"):
        opened(zlib.compress(b"plan"), "zlib", bytes_max=3)
    assert GROWTH_MAX < 1000, "zlib itself reaches about 1,030"


def test_encryption_for_another_key_does_not_open() -> None:
    assert unseal(seal(b"plan", [SealingPrivateKey.generate().public]), [KEY]) is None


def test_number_of_encodings_and_of_channels_is_limited() -> None:
    for fields in ({"encodings": ("zlib",) * (ENCODINGS_MAX + 1)}, {"forwarded_from": ("a/b",) * (FORWARDS_MAX + 1)}):
        with pytest.raises(WireError, match="too many"):
            decode_headers(encode_headers(None, None, (), **fields))
    with pytest.raises(WireError):
        decode_headers(bytes((ENCODING, 0, 1, 0xFF)))


async def test_hostile_encodings_are_reported_and_the_next_message_arrives() -> None:
    name = f"test/{uuid4().hex}"
    async with (
        broadloom.connect(name, tls=False, settings=QUICK) as hostile,
        broadloom.connect(name, tls=False, settings=QUICK, private_keys=[KEY]) as reader,
    ):
        reader.on_request(lambda request: request.data)
        for data, encodings in ((BOMB, ("zlib",)), (b"x", ("x25519",)), (b"odd", ("unheard of",))):
            await hostile._broadcast_kind(
                with_headers(encode_headers(None, None, (), encodings), 0, data), HAS_HEADERS, 1, None
            )
        await hostile.broadcast(b"the end")
        odd, last = await reader.receive(20), await reader.receive(20)
        assert (odd.data, odd.is_sealed, odd.encodings) == (b"odd", True, ("unheard of",))
        assert (last.data, reader.missed_count) == (b"the end", 2)
        assert reader.status().counters["malformed_headers"] == 2
        await hostile.wait_for_roster(20)
        block = with_headers(encode_headers(None, None, (), ("zlib",)), 0, BOMB)
        with pytest.raises(broadloom.RefusedError, match="malformed request"):
            await hostile._request_packed(reader.peer_id, block, 0, 2, 20, is_tell=False)
        await eventually(lambda: hostile.is_connected)
