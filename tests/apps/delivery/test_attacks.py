"""Members that lie: to desks, to meters, in the directory and on topics."""

import contextlib
import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import broadloom
from broadloom import RefusedError, Role
from broadloom.apps.delivery.directory import MAILBOX_PREFIX
from broadloom.apps.delivery.entry import decode_entry
from broadloom.apps.delivery.feed import Feed, FeedConnection
from broadloom.apps.delivery.messages import (
    DESK_LAYER,
    METER_LAYER,
    Action,
    DeskReply,
    DeskRequest,
    Presence,
    PresenceState,
    decode,
    encode,
)
from broadloom.apps.delivery.service_keys import ServiceKeys
from broadloom.apps.delivery.subscribers import decode_record
from broadloom.channel.direct_request import DirectRequest
from broadloom.mailboxes import Mailboxes
from broadloom.protocol.roster.member import Member
from broadloom.security import Authority
from tests.apps.delivery.bills import built
from tests.apps.delivery.newsroom import END, Newsroom
from tests.channel.joined import QUICK
from tests.support import eventually

SCORES = "sports/nfl/scores"


def connection_of(feed: Feed) -> FeedConnection:
    connection = feed._memberships[SCORES].connection
    assert isinstance(connection, FeedConnection)
    return connection


def meters_of(connection: FeedConnection) -> list[Member]:
    """The meters to which this connection identifies itself."""
    assert connection._identifier is not None
    return connection._identifier._meters()


async def test_member_cannot_add_change_or_hide_entries_of_the_directory() -> None:
    async with Newsroom() as room:
        await room.desk()
        editor, anna = await room.open("editor"), await room.open("anna")
        entry = await editor.create(SCORES, title="true")
        await anna.wait_for(SCORES)
        # Even with the role producer, and so with mailboxes of its own.
        ticket = room.authority.issue_ticket("mallory", Role.PRODUCER, END)
        channel = await room.enter(broadloom.connect(room.name, ticket=ticket, settings=QUICK))
        boxes = await room.enter(Mailboxes(channel))
        with pytest.raises(ValueError, match="the name on the ticket"):
            Mailboxes(channel, "desk")
        for path in (SCORES, "fake/news"):
            box = await boxes.bind(MAILBOX_PREFIX + path, fetch=True)
            await box.put(entry.encode().replace(b'"true"', b'"false"'))
        await editor.create("marker")
        await anna.wait_for("marker")
        assert {topic.path: topic.title for topic in anna.topics()} == {SCORES: "true", "marker": ""}


async def test_desk_refuses_malformed_requests_and_goes_on() -> None:
    async with Newsroom() as room:
        await room.desk()
        editor, mallory = await room.open("editor"), await room.open("mallory")
        await editor.create(SCORES)
        await mallory.wait_for(SCORES)
        (desk,) = mallory.desks()
        layer = mallory.channel.layer(DESK_LAYER)
        subscribe = json.loads(encode(DeskRequest(action=Action.SUBSCRIBE, paths=(SCORES,))))
        for data in (
            b"",
            b"[]",
            b"\xff",
            b"[" * 100_000,
            json.dumps({"action": "become operator"}).encode(),
            json.dumps({**subscribe, "key": "AAAA"}).encode(),
            json.dumps({**subscribe, "key": 5}).encode(),
            json.dumps({**subscribe, "paths": [SCORES] * 300}).encode(),
            json.dumps({**subscribe, "paths": [["a"]]}).encode(),
            json.dumps({"action": "create", "offer": {"path": "a/*/b"}}).encode(),
            json.dumps({"action": "create", "offer": {"path": 5, "unknown": 7}}).encode(),
            json.dumps({"action": "withdraw", "paths": [SCORES], "name": "editor"}).encode(),
        ):
            with pytest.raises(RefusedError):
                await layer.request(desk, data, timeout_s=20)
        async with mallory.subscribe(SCORES) as feed:
            assert feed.topics == {SCORES: "connected"}


async def test_member_that_calls_itself_a_desk_or_a_meter_is_not_asked() -> None:
    async with Newsroom() as room:
        desk = await room.desk()
        editor, mallory = await room.open("editor"), await room.open("mallory")
        await editor.create(SCORES)
        await mallory.wait_for(SCORES)
        heard: list[bytes] = []

        def hear(request: DirectRequest) -> bytes:
            heard.append(request.data)
            return b"{}"

        false_desk = mallory.channel.layer(DESK_LAYER, on_batch=lambda _batch: None)
        false_desk.on_request(hear)
        await eventually(
            lambda: any(DESK_LAYER in each.layers and each.name == "mallory" for each in editor.channel.members())
        )
        assert [each.name for each in editor.desks()] == ["desk"]
        feed = await room.enter(mallory.subscribe(SCORES))
        channel = connection_of(feed).channel
        false_meter = channel.layer(METER_LAYER, on_batch=lambda _batch: None)
        false_meter.on_request(hear)
        anna = await room.open("anna")
        await anna.wait_for(SCORES)
        async with anna.subscribe(SCORES) as other:
            own = connection_of(other).channel
            await eventually(lambda: any(METER_LAYER in each.layers for each in own.members()))
            assert meters_of(connection_of(other)) == []
        assert heard == []
        assert desk.channel.is_connected


async def test_forged_identification_is_recorded_under_the_ticket_of_its_sender(tmp_path: Path) -> None:
    async with Newsroom() as room:
        await room.desk()
        editor, mallory = await room.open("editor"), await room.open("mallory")
        meter = await room.meter(tmp_path / "tapes")
        await editor.create(SCORES)
        await mallory.wait_for(SCORES)
        await meter.wait_until_metering(SCORES)
        with pytest.raises(TimeoutError, match=r"no/topic: not metered within 0\.01 s"):
            await meter.wait_until_metering("no/topic", timeout_s=0.01)
        feed = await room.enter(mallory.subscribe(SCORES))
        connection = connection_of(feed)
        await eventually(lambda: meters_of(connection))
        (found,) = meters_of(connection)
        layer = connection.channel.layer(METER_LAYER)
        presence = Presence(id="x", state=PresenceState.HERE, topics=(SCORES,))
        forged = {**json.loads(encode(presence)), "name": "anna", "subscriber": "anna", "ticket_serial": "5e1"}
        await layer.request(found, json.dumps(forged).encode(), timeout_s=20)
        for false in ({**forged, "topics": ["other/topic"]}, {**forged, "topics": []}, {**forged, "state": "paid"}):
            with pytest.raises(RefusedError):
                await layer.request(found, json.dumps(false).encode(), timeout_s=20)
    tables = built(tmp_path, "invoices")
    identified = tables["sessions"].filter(pl.col("evidence") == "identifications")
    assert identified.select("subscriber", "topic", "is_proven").rows() == [("mallory", SCORES, True)]
    assert "anna" not in tables["invoices"]["subscriber"].to_list()


async def test_only_the_ticket_named_meter_may_meter() -> None:
    async with Newsroom() as room:
        await room.desk(qualifications={"paid": ()})
        editor, mallory = await room.open("editor"), await room.open("mallory")
        await editor.create(SCORES, qualifications=["paid"])
        await mallory.wait_for(SCORES)
        for action in (Action.METER, Action.PRODUCE, Action.SUBSCRIBE):
            (grant,) = await mallory._grants(action, [SCORES], "", 20)
            assert grant.refusal
            assert not (grant.ticket)
            assert not (grant.key)


def test_other_services_and_members_cannot_read_what_desks_remember() -> None:
    service = "delivery/news"
    keys = ServiceKeys(Authority.generate(), service)
    data = keys.encrypt(b"ann", "one")
    assert b"ann" not in data
    assert keys.decrypt(data, "one") == b"ann"
    for other, purpose in ((keys, "two"), (ServiceKeys(Authority.generate(), service), "one")):
        with pytest.raises(ValueError, match="not written by a desk"):
            other.decrypt(data, purpose)
    with pytest.raises(ValueError, match="not written by a desk"):
        keys.decrypt(data[:-1] + bytes([data[-1] ^ 1]), "one")


@given(
    data=st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "action",
                        "paths",
                        "key",
                        "offer",
                        "grants",
                        "version",
                        "card",
                        "topics",
                        "state",
                        "id",
                        "subscriptions",
                        "name",
                        "periods",
                    ]
                ),
                inner,
                max_size=6,
            )
        ),
    ).map(lambda value: json.dumps(value).encode())
)
def test_decoders_raise_only_value_errors(data: bytes) -> None:
    for decoder in (
        decode_entry,
        decode_record,
        lambda data: decode(DeskRequest, data),
        lambda data: decode(DeskReply, data),
        lambda data: decode(Presence, data),
    ):
        with contextlib.suppress(ValueError):
            decoder(data)
