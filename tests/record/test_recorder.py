"""Every kind of event and every column survives recording and reading."""

import tempfile
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.channel.fragments import fragment
from broadloom.groups.codec import LAYER, encode
from broadloom.groups.messages import GoingOffline, PostMessage
from broadloom.groups.model import MessageId, Post
from broadloom.protocol import PeerState
from broadloom.protocol.events import (
    Batch,
    LayerEvent,
    LinkDown,
    LinkDownReason,
    LinkUp,
    Message,
    Missed,
    StateChanged,
    TraceEvent,
)
from broadloom.protocol.runtime import Observer
from broadloom.protocol.runtime import ObserverFactory as FabricTape
from broadloom.record import COLUMNS, EventKind, PayloadMetadata, Recorder, read
from broadloom.record.schema import INT64_MAX
from broadloom.wire import Address, Broadcast, PeerInfo
from broadloom.wire.payload_kind import PayloadKind, layer_kind
from tests.record.tape_kit import CHANNEL, DAY, FOLDER, ME, OTHER, ManualClock, make_tape, rows

NEIGHBOR = PeerInfo(OTHER, Address("10.0.0.7", 4711))
PEERS = st.integers(0, (1 << 64) - 1)
NUMBERS = st.integers(0, INT64_MAX)


def test_recorder_implements_observer(tmp_path: Path) -> None:
    with make_tape(tmp_path, ManualClock()) as tape:
        known_to_the_fabric: FabricTape = tape
        observer: Observer = known_to_the_fabric.observer(CHANNEL, ME)
        assert isinstance(observer, Recorder)


def recorded_row(tmp_path: Path, kind: str) -> dict[str, Any]:
    """The one row of this kind, without null and common columns."""
    (row,) = read(tmp_path, kinds=[kind]).to_pylist()
    common = ("ordinal", "run_id", "kind", "channel", "event_date", "event_time")
    return {name: value for name, value in row.items() if value is not None and name not in common}


def test_each_event_becomes_row(tmp_path: Path) -> None:
    clock = ManualClock()
    with make_tape(tmp_path, clock) as tape:
        recorder = tape.observer(CHANNEL, ME, name="ada")
        for state in PeerState:
            recorder.on_event(StateChanged(state))
        recorder.on_event(TraceEvent("for a person"))
        recorder.on_event(LinkUp(NEIGHBOR))
        recorder.on_event(LinkDown(NEIGHBOR, LinkDownReason.HEARTBEAT_TIMEOUT))
        recorder.sent(7, b"abc")
        recorder.received(Broadcast(OTHER, 9, 1, (b"abcd",), hops=3), 0xC0FFEE)
        recorder.duplicates(12)
        recorder.delivered(Batch.from_message(Message(OTHER, 9, b"abcd", 3)))
        recorder.missed(Missed(OTHER, 10, 14))
        recorder.identification("bob", OTHER, group_id="club", topic="chess", attributes={"seat": "7"})
        recorder.ad_impression("tea", group_id="club", topic="drinks")
        request: dict[str, Any] = {"author": ME, "sequence": 4, "name": "print", "scope": "file", "file_name": "notes"}
        flags: dict[str, Any] = {"is_notice": False, "is_repeatable": True}
        recorder.on_event(LayerEvent("request_step", **request, **flags, status="failed", reason="handler_died"))
        recorder.on_event(LayerEvent("handler_step", **request, **flags, status="accepted", handler=OTHER))
        hit: dict[str, Any] = {
            "name": "rule 2",
            "rule_number": 2,
            "actions": "copy",
            "status": "passed",
            "duration_ms": 0.5,
        }
        recorder.on_event(LayerEvent("rule_hit", **hit))
        change: dict[str, Any] = {"sequence": 3, "name": "price", "owner": "shop", "status": "put", "size_bytes": 9}
        recorder.on_event(LayerEvent("mailbox_change", OTHER, **change))
        entry: dict[str, Any] = {
            "sequence": 4,
            "name": "auction",
            "owner": "anna",
            "status": "bid",
            "actions": '{"lot":"tulips"}',
        }
        recorder.on_event(LayerEvent("app_entry", OTHER, **entry))
        line: dict[str, Any] = {"sequence": 1, "name": "game", "status": "head"}
        recorder.on_event(LayerEvent("app_log", **line, payload=b"only with payloads"))
        recorder.on_event(LayerEvent("unknown"))
    me, other = {"peer": "00000000000000ab"}, "fedcba9876543210"
    assert recorded_row(tmp_path, "joined") == me | {"name": "ada", "is_proven": False}
    assert recorded_row(tmp_path, "leaving") == me
    assert recorded_row(tmp_path, "left") == me
    assert recorded_row(tmp_path, "link_up") == me | {"neighbor": other, "address": "10.0.0.7:4711"}
    assert recorded_row(tmp_path, "link_down") == me | {
        "neighbor": other,
        "address": "10.0.0.7:4711",
        "reason": "heartbeat_timeout",
    }
    assert recorded_row(tmp_path, "sent") == me | {"author": "00000000000000ab", "sequence": 7, "size_bytes": 3}
    received = {"author": other, "sequence": 9, "hops": 3, "neighbor": "0000000000c0ffee", "size_bytes": 4}
    assert recorded_row(tmp_path, "received") == me | received
    assert recorded_row(tmp_path, "duplicates") == me | {"event_count": 12}
    assert recorded_row(tmp_path, "delivered") == me | {"author": other, "sequence": 9, "hops": 3, "size_bytes": 4}
    assert recorded_row(tmp_path, "missed") == me | {"author": other, "sequence": 10, "last_sequence": 14}
    assert recorded_row(tmp_path, "identification") == me | {
        "author": other,
        "name": "bob",
        "group_id": "club",
        "topic": "chess",
        "is_proven": False,
        "attributes": '{"seat": "7"}',
    }
    assert recorded_row(tmp_path, "ad_impression") == me | {"name": "tea", "group_id": "club", "topic": "drinks"}
    request["author"] = "00000000000000ab"
    failed = {"status": "failed", "reason": "handler_died"}
    assert recorded_row(tmp_path, "request_step") == me | request | flags | failed
    assert recorded_row(tmp_path, "handler_step") == me | request | flags | {"status": "accepted", "handler": other}
    assert recorded_row(tmp_path, "rule_hit") == me | hit
    assert recorded_row(tmp_path, "mailbox_change") == me | change | {"author": other}
    assert recorded_row(tmp_path, "app_entry") == me | entry | {"author": other}
    assert recorded_row(tmp_path, "app_log") == me | line
    kinds = rows(tmp_path, "kind")
    elsewhere = {EventKind.ROWS_DROPPED, EventKind.MEMBER_JOINED, EventKind.MEMBER_LEFT, EventKind.MEMBER_LOST}
    assert set(kinds) == {kind.value for kind in EventKind if kind not in elsewhere}
    assert rows(tmp_path, "ordinal") == list(range(len(kinds)))
    at = datetime.fromtimestamp(clock.now, UTC)
    assert set(rows(tmp_path, "run_id", "event_time", "channel", "event_date")) == {
        (tape.run_id, at, FOLDER[-16:], at.date())
    }
    assert at.date().isoformat() == DAY


def test_payload_metadata_fills_optional_columns(tmp_path: Path) -> None:
    def describe(data: bytes, _kind: int) -> PayloadMetadata | None:
        if data == b"plain":
            return None
        return PayloadMetadata(group_id="club", parent=(OTHER, 5), topic=data.decode())

    with make_tape(tmp_path, ManualClock(), include_payload=True) as tape:
        recorder = tape.observer(CHANNEL, ME, describe=describe)
        recorder.sent(1, b"opening")
        recorder.delivered(Batch.from_message(Message(OTHER, 1, b"plain", 1)))
        recorder.delivered(Batch.from_message(Message(OTHER, 2, b"\xff not text", 1)))
    assert rows(tmp_path, "group_id", "parent_author", "parent_sequence", "topic", "payload") == [
        ("club", "fedcba9876543210", 5, "opening", b"opening"),
        (None, None, None, None, b"plain"),
        (None, None, None, None, b"\xff not text"),
    ]


def group_payload(data: bytes, parent: MessageId | None = None) -> bytes:
    return encode(PostMessage(0xC1B, "Anna", Post(0xA, 7, parent, 1000, data)))


def test_group_messages_are_recorded_with_ids(tmp_path: Path) -> None:
    large = group_payload(bytes(150_000), MessageId(0xB, 1))
    layer = layer_kind(LAYER)
    with make_tape(tmp_path, ManualClock()) as tape:
        recorder = tape.observer(CHANNEL, ME)
        recorder.sent(1, group_payload(b"question"), layer)
        answer = group_payload(b"answer", MessageId(0xB, 3))
        recorder.delivered(Batch.from_message(Message(OTHER, 1, answer, 1, layer)))
        for number, part in enumerate(fragment(9, large, layer), start=2):
            recorder.sent(number, part, PayloadKind.FRAGMENT)
        for number, strange in enumerate(
            (b"BG", b"BG\x01\x07", group_payload(b"cut off")[:-4], encode(GoingOffline(0xA)), b"")
        ):
            recorder.sent(5 + number, strange, layer)
        # Messages of the application that happen to look like it.
        recorder.sent(10, group_payload(b"question"))
        recorder.sent(11, next(iter(fragment(9, large, 0))), PayloadKind.FRAGMENT)
    club, anna = "0000000000000c1b", "000000000000000a"
    names = ("group_id", "member", "member_sequence", "parent_member", "parent_member_sequence")
    assert rows(tmp_path, "sequence", *names) == [
        (1, club, anna, 7, None, None),
        (1, club, anna, 7, "000000000000000b", 3),
        (2, club, anna, 7, "000000000000000b", 1),
        *((number, None, None, None, None, None) for number in range(3, 12)),
    ]
    assert set(rows(tmp_path, "parent_author", "parent_sequence")) == {(None, None)}


def test_payload_is_recorded_only_when_enabled(tmp_path: Path) -> None:
    with make_tape(tmp_path, ManualClock()) as tape:
        tape.observer(CHANNEL, ME).sent(1, b"secret")
    assert rows(tmp_path, "payload", "size_bytes") == [(None, 6)]
    assert b"secret" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*.parquet"))


def test_channel_name_is_not_on_tape(tmp_path: Path) -> None:
    """It may be a secret."""
    with make_tape(tmp_path, ManualClock()) as tape:
        tape.observer(CHANNEL, ME).sent(1, b"")
    (path,) = tmp_path.rglob("*.parquet")
    assert CHANNEL.id.hex().encode() in path.read_bytes()
    assert CHANNEL.instance not in str(path.relative_to(tmp_path))
    assert str(CHANNEL).encode() not in path.read_bytes()


def test_numbers_beyond_spark_range_are_clamped(tmp_path: Path) -> None:
    def describe(_data: bytes, _kind: int) -> PayloadMetadata:
        return PayloadMetadata(parent=(-1, 1 << 64), topic="half \ud800")

    with make_tape(tmp_path, ManualClock()) as tape:
        recorder = tape.observer(CHANNEL, (1 << 64) - 1, describe=describe)
        recorder.delivered(Batch.from_message(Message(OTHER, (1 << 64) - 1, b"", 2**32 - 1)))
        recorder.sent(1, b"")
    assert rows(tmp_path, "sequence", "hops", "topic", "parent_author") == [
        (INT64_MAX, 2**32 - 1, "half ?", None),
        (1, None, "half ?", None),
    ]
    assert set(rows(tmp_path, "peer")) == {"f" * 16}
    assert tape.dropped_rows == 0


def test_id_over_64_bits_is_rejected(tmp_path: Path) -> None:
    with make_tape(tmp_path, ManualClock()) as tape, pytest.raises(ValueError, match="64-bit"):
        tape.observer(CHANNEL, 1 << 64)


NAMES = st.none() | st.tuples(PEERS, NUMBERS)
DELIVERIES = st.tuples(
    st.integers(0, 10**9),  # microseconds after noon
    PEERS,  # observer
    PEERS,  # author
    NUMBERS,
    st.binary(max_size=20),
    st.integers(0, 2**32 - 1),
    st.none() | st.builds(PayloadMetadata, st.none() | st.text(), NAMES, st.none() | st.text(), NAMES, NAMES),
)


def _always(about: PayloadMetadata | None, _data: bytes, _kind: int) -> PayloadMetadata | None:
    return about


@settings(max_examples=25, deadline=None)
@given(st.lists(DELIVERIES, max_size=30), st.integers(1, 7))
def test_rows_survive_writing_and_reading(events: list[Any], batch_rows: int) -> None:
    clock = ManualClock()
    noon = clock.now
    with tempfile.TemporaryDirectory() as directory:
        with make_tape(Path(directory), clock, include_payload=True, batch_rows=batch_rows) as tape:
            for after_us, observer, author, sequence, data, hops, about in events:
                clock.now = noon + after_us / 1e6
                recorder = tape.observer(CHANNEL, observer, describe=partial(_always, about))
                recorder.delivered(Batch.from_message(Message(author, sequence, data, hops)))
        back = read(directory).to_pylist()
    expected = []
    for ordinal, (after_us, observer, author, sequence, data, hops, about) in enumerate(events):
        meant = about or PayloadMetadata()
        row: dict[str, Any] = {column.name: None for column in COLUMNS}
        time = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=int((noon + after_us / 1e6) * 1e6))
        row |= {
            "ordinal": ordinal,
            "run_id": tape.run_id,
            "kind": "delivered",
            "event_time": time,
            "peer": f"{observer:016x}",
        }
        row |= {
            "author": f"{author:016x}",
            "sequence": sequence,
            "hops": hops,
            "size_bytes": len(data),
            "payload": data,
        }
        row |= {"group_id": meant.group_id, "topic": meant.topic}
        for named, names in (
            (meant.parent, ("parent_author", "parent_sequence")),
            (meant.message_id, ("member", "member_sequence")),
            (meant.parent_message_id, ("parent_member", "parent_member_sequence")),
        ):
            if named is not None:
                row |= {names[0]: f"{named[0]:016x}", names[1]: named[1]}
        expected.append(row | {"channel": CHANNEL.id.hex()[:16], "event_date": time.date()})
    assert back == expected
