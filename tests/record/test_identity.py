"""Who was there: names, tickets, members, identifications and ads on the tape."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broadloom.protocol import PeerState
from broadloom.protocol.events import Batch, LinkUp, Message, StateChanged
from broadloom.protocol.identity import Identity, Role
from broadloom.protocol.roster.member import LossCause, Member, MemberJoined, MemberLeft, MemberLost, Partitioned
from broadloom.record import Recorder, read
from broadloom.record.arrow_import import pq
from broadloom.record.schema import OLDEST_VERSION, SCHEMA, SCHEMA_VERSION, VERSION_KEY, columns_in_version
from broadloom.wire import Address, PeerInfo, WireError
from broadloom.wire.identity_messages import (
    IDENTITY_KIND,
    Advert,
    Identification,
    advert,
    decode_identity,
    encode_identity,
    identification,
)
from broadloom.wire.message_headers import encode_headers, with_headers
from broadloom.wire.payload_kind import HAS_HEADERS
from tests.record.tape_kit import CHANNEL, ME, OTHER, ManualClock, finished_files, make_tape, rows

THIRD = 0x77
ADDRESS = Address("10.0.0.7", 4711)
NAMED = ("name", "role", "ticket_serial", "is_proven")
PROVEN = ("Ann", "consumer", "5e1f", True)


def proven_member(peer: int = OTHER) -> Member:
    return Member(peer, "Ann", Role.CONSUMER, True, ADDRESS, ticket_serial="5e1f")


def delivered(recorder: Recorder, data: bytes, author: int = OTHER, kind: int = IDENTITY_KIND) -> None:
    recorder.delivered(Batch.from_message(Message(author, 1, data, 1, kind)))


def test_members_of_the_roster_become_rows(tmp_path: Path) -> None:
    given_name = Member(THIRD, "Bob", None, False, ADDRESS)
    with make_tape(tmp_path, ManualClock()) as tape:
        recorder = tape.observer(CHANNEL, ME)
        recorder.on_event(MemberJoined(proven_member()))
        recorder.on_event(MemberJoined(given_name))
        recorder.on_event(MemberJoined(Member(5, "", None, False, ADDRESS, is_secondary=True)))
        recorder.on_event(MemberLeft(proven_member()))
        recorder.on_event(MemberLost(given_name, LossCause.DEAD))
        recorder.on_event(Partitioned((given_name,)))
    ann, bob = "fedcba9876543210", f"{THIRD:016x}"
    assert rows(tmp_path, "kind", "author", "reason", *NAMED) == [
        ("member_joined", ann, None, *PROVEN),
        ("member_joined", bob, None, "Bob", None, None, False),
        ("member_left", ann, None, *PROVEN),
        ("member_lost", bob, "dead", "Bob", None, None, False),
    ]
    assert set(rows(tmp_path, "address")) == {"10.0.0.7:4711"}


@pytest.mark.parametrize(
    ("name", "identity", "expected"),
    [
        ("", None, (None, None, None, False)),
        ("Bob", None, ("Bob", None, None, False)),
        ("Bob", Identity(ME), ("Bob", None, None, False)),
        ("", Identity(ME, "Ann", Role.CONSUMER, "5e1f"), PROVEN),
        ("Bob", Identity(ME, "Ann", Role.CONSUMER, "5e1f"), PROVEN),
    ],
)
def test_own_name_is_recorded(tmp_path: Path, name: str, identity: Identity | None, expected: tuple[Any, ...]) -> None:
    with make_tape(tmp_path, ManualClock()) as tape:
        recorder = tape.observer(CHANNEL, ME, name=name, identity=identity)
        recorder.on_event(StateChanged(PeerState.CONNECTED))
        recorder.sent(1, identification(name, {"seat": "7"}), IDENTITY_KIND)
        recorder.sent(2, advert("tea", None), IDENTITY_KIND)
    # An ad is not shown at its author.
    assert rows(tmp_path, "kind", *NAMED, kinds=["joined", "identification", "ad_impression"]) == [
        ("joined", *expected),
        ("identification", *expected),
    ]


def test_neighbor_is_named_by_its_ticket_or_by_the_roster(tmp_path: Path) -> None:
    neighbor = PeerInfo(OTHER, ADDRESS)
    with make_tape(tmp_path, ManualClock()) as tape:
        recorder = tape.observer(CHANNEL, ME)
        recorder.on_event(LinkUp(neighbor))
        recorder.on_event(LinkUp(neighbor, Identity(OTHER)))
        recorder.on_event(LinkUp(neighbor, Identity(OTHER, "Ann", Role.CONSUMER, "5e1f")))
        recorder.on_event(MemberJoined(Member(OTHER, "Bob", None, False, ADDRESS)))
        recorder.on_event(LinkUp(neighbor, Identity(OTHER)))
    assert rows(tmp_path, *NAMED, kinds=["link_up"]) == [
        (None, None, None, None),
        (None, None, None, None),
        PROVEN,
        ("Bob", None, None, False),
    ]


def test_messages_of_the_layer_become_rows(tmp_path: Path) -> None:
    with make_tape(tmp_path, ManualClock()) as tape:
        recorder = tape.observer(CHANNEL, ME)
        delivered(recorder, identification("Bob", {"customer": "4711"}))
        delivered(recorder, identification("", None))
        recorder.on_event(MemberJoined(proven_member()))
        # A name that a member chose itself never replaces that on its ticket.
        delivered(recorder, identification("Bob", None))
        delivered(recorder, advert("tea", "drinks/hot"))
        delivered(recorder, advert("books", None))
    other = "fedcba9876543210"
    assert rows(tmp_path, "author", "attributes", *NAMED, kinds=["identification"]) == [
        (other, '{"customer": "4711"}', "Bob", None, None, False),
        (other, None, None, None, None, False),
        (other, None, *PROVEN),
    ]
    assert rows(tmp_path, "name", "topic", kinds=["ad_impression"]) == [("tea", "drinks/hot"), ("books", None)]
    assert len(rows(tmp_path, "kind", kinds=["delivered"])) == 5


def test_only_the_mark_of_the_layer_counts(tmp_path: Path) -> None:
    with make_tape(tmp_path, ManualClock()) as tape:
        recorder = tape.observer(CHANNEL, ME)
        delivered(recorder, identification("Bob", None), kind=0)
        for malformed in (b"", b"\0\0\0\1", b"\0\0\0\7", identification("Bob", None)[:-1]):
            delivered(recorder, malformed)
    assert set(rows(tmp_path, "kind")) == {"delivered"}


def test_content_type_is_recorded(tmp_path: Path) -> None:
    data = with_headers(encode_headers(None, "text/csv", ()), 1, b"a,b")
    with make_tape(tmp_path, ManualClock()) as tape:
        recorder = tape.observer(CHANNEL, ME)
        recorder.sent(1, data, HAS_HEADERS)
        delivered(recorder, data, kind=HAS_HEADERS)
    assert rows(tmp_path, "content_type", "topic") == [("text/csv", None)] * 2


@pytest.mark.parametrize("version", range(OLDEST_VERSION, SCHEMA_VERSION))
def test_tape_of_an_older_version_is_read(tmp_path: Path, version: int) -> None:
    with make_tape(tmp_path, ManualClock()) as tape:
        recorder = tape.observer(CHANNEL, ME, name="Bob")
        recorder.on_event(StateChanged(PeerState.CONNECTED))
    (path,) = finished_files(tmp_path)
    table = pq.read_table(path, partitioning=None)
    older = table.select([each.name for each in columns_in_version(version)])
    pq.write_table(older.replace_schema_metadata({**table.schema.metadata, VERSION_KEY: str(version)}), path)
    found = read(tmp_path)
    assert found.column_names == [*SCHEMA.names, "channel", "event_date"]
    assert found.select(older.column_names).to_pylist() == table.select(older.column_names).to_pylist()
    is_proven = None if version == 3 else False
    assert rows(tmp_path, *NAMED, "attributes", "status") == [("Bob", None, None, is_proven, None, None)]


PRINTABLE = st.text(max_size=12).filter(str.isprintable)
MESSAGES = st.builds(Identification, PRINTABLE, st.lists(st.tuples(PRINTABLE, PRINTABLE), max_size=4).map(tuple)) | (
    st.builds(Advert, PRINTABLE.filter(bool), st.sampled_from(["", "drinks", "drinks/hot"]))
)


@given(MESSAGES)
def test_messages_survive_encoding(message: Identification | Advert) -> None:
    assert decode_identity(encode_identity(message)) == message


@given(
    st.binary(max_size=80)
    | st.builds(lambda number, rest: bytes((0, 0, 0, number)) + rest, st.integers(0, 3), st.binary())
)
def test_malformed_message_raises_wire_error_or_nothing(data: bytes) -> None:
    try:
        message = decode_identity(data)
    except WireError:
        return
    assert encode_identity(message) == data
