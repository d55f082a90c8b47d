"""Subscribers instead of peer ids: from tickets, given names and the roster, in the tables and end to end."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import broadloom
from broadloom import NotPermittedError
from broadloom.pipeline.compact import compact
from broadloom.pipeline.engine.events import load
from broadloom.protocol.identity import Role
from broadloom.record import Tape, read
from broadloom.record.arrow_import import pa, pq
from broadloom.record.schema import VERSION_KEY, columns_in_version
from broadloom.security import Authority
from tests.channel.joined import QUICK, unique_name
from tests.pipeline.building import build_in_memory
from tests.pipeline.event_rows import event_table
from tests.record.tape_kit import CHANNEL, ManualClock, finished_files, make_tape
from tests.support import eventually

BEGIN = datetime(2027, 1, 15, 12, tzinfo=UTC)
SESSION = ("subscriber", "ticket_serial", "is_proven", "end_status", "evidence", "identification_count")


def row(kind: str, after_s: float, author: str | None = None, **columns: Any) -> dict[str, Any]:
    return {"kind": kind, "event_time": BEGIN + timedelta(seconds=after_s), "peer": "r", "author": author, **columns}


def ticket(name: str, serial: str) -> dict[str, Any]:
    return {"name": name, "role": "consumer", "ticket_serial": serial, "is_proven": True}


def given(name: str | None) -> dict[str, Any]:
    return {"name": name, "is_proven": False}


def sessions(rows: pa.Table) -> list[tuple[Any, ...]]:
    return build_in_memory(rows, "sessions")["sessions"].sort("subscriber", "start_time").select(SESSION).rows()


def test_one_recorder_knows_all_members() -> None:
    found = build_in_memory(
        event_table(
            row("joined", 0, **given("recorder")),
            row("member_joined", 0, "p1", **ticket("ann", "5e1")),
            row("member_joined", 1, "p2", **given("bob")),
            row("member_joined", 2, "p3", **given(None)),
            row("member_joined", 3, "p4", **given("cid")),
            row("member_left", 100, "p1", **ticket("ann", "5e1")),
            # Renews her ticket and comes back.
            row("member_joined", 100, "p5", **ticket("ann", "5e2")),
            row("member_lost", 200, "p2", **given("bob"), reason="dead"),
            # In another part of the fabric for a while.
            row("member_lost", 200, "p4", **given("cid"), reason="unreachable"),
            row("member_joined", 260, "p4", **given("cid")),
            row("sent", 1000, "r", sequence=1),
        ),
        "sessions",
    )
    assert found["sessions"].sort("subscriber").select(*SESSION, "peer_count", "connected_ms").rows() == [
        ("ann", "5e2", True, "open", "roster", 0, 2, 1_000_000),
        ("bob", None, False, "crashed", "roster", 0, 1, 199_000),
        ("cid", None, False, "open", "roster", 0, 1, 997_000),
        ("p3", None, False, "open", "roster", 0, 1, 998_000),
        ("recorder", None, False, "open", "membership", 0, 1, 1_000_000),
    ]
    members = found["membership_intervals"].sort("peer")
    assert members.select("peer", "name", "role", "ticket_serial", "is_proven", "end_status").rows() == [
        ("p1", "ann", "consumer", "5e1", True, "left"),
        ("p2", "bob", None, None, False, "crashed"),
        ("p3", None, None, None, None, "present"),
        ("p4", "cid", None, None, False, "present"),
        ("p5", "ann", "consumer", "5e2", True, "present"),
        ("r", "recorder", None, None, False, "present"),
    ]


def test_member_that_another_recorder_still_has_is_not_lost() -> None:
    """The first recorder is cut off; the second one is not."""
    rows = event_table(
        row("joined", 0),
        row("joined", 0, peer="s"),
        row("member_joined", 0, "p1", **given("ann")),
        row("member_joined", 0, "p1", **given("ann"), peer="s"),
        row("member_lost", 50, "p1", **given("ann")),
        row("sent", 500, "s", sequence=1, peer="s"),
    )
    found = build_in_memory(rows, "membership_intervals")["membership_intervals"].filter(peer="p1")
    assert found.select("end_status", "end_time").rows() == [("present", None)]


def test_session_does_not_extend_beyond_the_recorder_that_saw_the_member() -> None:
    """A member that leaves while nothing is recorded; another one stays."""
    rows = event_table(
        row("joined", 0),
        row("member_joined", 0, "p1", **ticket("ann", "5e1")),
        row("member_joined", 0, "p2", **ticket("bob", "5e2")),
        row("left", 100),
        # The next day, the recorder runs again.
        row("joined", 90_000, peer="s"),
        row("member_joined", 90_000, "p2", **ticket("bob", "5e2"), peer="s"),
        row("sent", 99_000, "s", sequence=1, peer="s"),
    )
    found = build_in_memory(rows, "sessions")["sessions"].filter("is_proven").sort("subscriber")
    assert found.select("subscriber", "connected_ms", "end_status").rows() == [
        ("ann", 100_000, "timed_out"),
        ("bob", 99_000_000, "open"),
    ]


def test_self_chosen_name_never_replaces_a_proven_one() -> None:
    rows = event_table(
        row("member_joined", 0, "p1", **ticket("ann", "5e1")),
        # The recorder did not know the ticket yet.
        row("identification", 1, "p1", **given("mallory")),
        row("identification", 2, "p1", **given(None)),
        # Claims the name of a ticket.
        row("identification", 3, "p2", **given("ann")),
        row("identification", 4, "p3", **given("bob")),
        # Named in the roster only.
        row("member_joined", 4, "p4", **given("cid")),
        row("identification", 5, "p4", **given(None)),
        row("member_left", 60, "p4", **given("cid")),
        row("sent", 100, "r", sequence=1),
    )
    assert sessions(rows) == [
        ("ann", "5e1", True, "open", "identifications", 1),
        ("bob", None, False, "open", "identifications", 1),
        ("cid", None, False, "left", "identifications", 1),
        ("p2", None, False, "open", "identifications", 1),
    ]


def test_ticket_holders_are_billed_without_identification(tmp_path: Path) -> None:
    (tmp_path / "billing.toml").write_text(BILLING)
    rows = event_table(
        row("joined", 0, **ticket("recorder", "0")),
        row("member_joined", 0, "p1", **ticket("ann", "5e1")),
        row("member_joined", 0, "p2", **given("bob")),
        row("identification", 0, "p3", **given("cid")),
        row("member_left", 3600, "p1", **ticket("ann", "5e1")),
        row("sent", 3600 * 24 * 40, "r", sequence=1),
    )
    found = build_in_memory(rows, "invoices", billing_file=str(tmp_path / "billing.toml"))["invoices"]
    invoices = found.filter(kind="invoice").sort("subscriber")
    assert invoices.select("subscriber", "connected_ms", "is_proven").rows() == [
        ("ann", 3_600_000, True),
        ("cid", 3_600_000, False),
    ]
    # Invoices of an earlier version stay as they are.
    issued = found.drop("is_proven")
    again = build_in_memory(rows, "invoices", invoices=issued, billing_file=str(tmp_path / "billing.toml"))["invoices"]
    assert again.filter(kind="invoice").drop("is_proven").equals(found.filter(kind="invoice").drop("is_proven"))
    assert again.filter(kind="invoice")["is_proven"].to_list() == [None, None]


BILLING = """
currency = "EUR"
time_zone = "UTC"
default_plan = "hourly"
[plans.hourly]
kind = "hour"
hour = 0.30
"""


def test_tables_read_tapes_of_version_3(tmp_path: Path) -> None:
    """Next to files of the current version, and compacted."""
    clock = ManualClock()
    clock.now -= timedelta(days=365).total_seconds()  # rows of the future are left out
    for number, name in enumerate(("ann", "bob"), start=1):
        with make_tape(tmp_path / "tapes", clock) as tape:
            tape.observer(CHANNEL, 7).identification(name, number)
    path = finished_files(tmp_path / "tapes")[0]
    table = pq.read_table(path, partitioning=None)
    third = table.select([each.name for each in columns_in_version(3)])
    pq.write_table(third.replace_schema_metadata({**table.schema.metadata, VERSION_KEY: b"3"}), path)
    loaded = load([str(path)], ["name", "is_proven", "ticket_serial"])
    assert loaded.cast({"name": pl.String, "ticket_serial": pl.String}).rows() == [
        (table["name"][0].as_py(), None, None)
    ]
    compact(tmp_path / "tapes", tmp_path / "compacted")
    for folder in ("tapes", "compacted"):
        found = sessions(read(tmp_path / folder))
        assert [each[:3] for each in found[-2:]] == [("ann", None, False), ("bob", None, False)]


async def test_sessions_of_ticket_holders_end_to_end(tmp_path: Path) -> None:
    """Real channels and one recorder. Two members do nothing for it, a third identifies itself."""
    owner, channel = Authority.generate(), unique_name()
    names = {"recorder": Role.CONSUMER, "ann": Role.CONSUMER, "bob": Role.PRODUCER, "cid": Role.PRODUCER}
    end = datetime.now(UTC) + timedelta(days=1)
    tickets = {name: owner.issue_ticket(name, role, end) for name, role in names.items()}
    with Tape(tmp_path) as tape:
        async with broadloom.connect(channel, ticket=tickets["recorder"], tape=tape, settings=QUICK) as recorder:
            ann = await broadloom.connect(channel, ticket=tickets["ann"], settings=QUICK)
            bob = await broadloom.connect(channel, ticket=tickets["bob"], settings=QUICK)
            cid = await broadloom.connect(channel, ticket=tickets["cid"], settings=QUICK)
            await eventually(lambda: {each.name for each in recorder.members()} >= {"ann", "bob", "cid"})
            with pytest.raises(NotPermittedError, match="consumer"):
                await ann.identify()
            await cid.identify({"customer": "4711"})
            await cid.broadcast(b"done")
            assert (await recorder.receive(20)).data == b"done"
            await ann.leave()
            await cid.leave()
            await eventually(lambda: {each.name for each in recorder.members()}.isdisjoint({"ann", "cid"}))
            await bob.leave()
            await eventually(lambda: "bob" not in {each.name for each in recorder.members()})
    serials = {name: each.serial for name, each in tickets.items()}
    rows = read(tmp_path)
    (identified,) = (each for each in rows.to_pylist() if each["kind"] == "identification")
    assert (identified["name"], identified["ticket_serial"], identified["role"], identified["is_proven"]) == (
        "cid",
        serials["cid"],
        "producer",
        True,
    )
    assert identified["attributes"] == '{"customer": "4711"}'
    linked = {each["name"] for each in rows.to_pylist() if each["kind"] == "link_up"}
    assert linked <= {"ann", "bob", "cid"}
    assert sessions(rows) == [
        ("ann", serials["ann"], True, "left", "roster", 0),
        ("bob", serials["bob"], True, "left", "roster", 0),
        ("cid", serials["cid"], True, "left", "identifications", 1),
        ("recorder", serials["recorder"], True, "left", "membership", 0),
    ]


async def test_sessions_without_tickets_end_to_end(tmp_path: Path) -> None:
    channel = unique_name()
    options: dict[str, Any] = {"tls": False, "settings": QUICK}
    with Tape(tmp_path) as tape:
        async with broadloom.connect(channel, tape=tape, **options) as recorder:
            ann = await broadloom.connect(channel, name="ann", **options)
            bob = await broadloom.connect(channel, name="bob", **options)
            await eventually(lambda: len(recorder.members()) == 3)
            await bob.identify()
            await bob.advert("tea", topic="drinks")
            await bob.broadcast(b"done")
            assert (await recorder.receive(20)).data == b"done"
            ann.abort()
            await eventually(lambda: len(recorder.members()) == 2)
            await bob.leave()
            await eventually(lambda: len(recorder.members()) == 1)
            # Under the same name, as another peer.
            async with broadloom.connect(channel, name="bob", **options) as again:
                await eventually(lambda: len(recorder.members()) == 2)
                await asyncio.wait_for(again.identify(), 20)
                await again.broadcast(b"done")
                assert (await recorder.receive(20)).data == b"done"
    rows = read(tmp_path)
    assert [(each["name"], each["topic"]) for each in rows.to_pylist() if each["kind"] == "ad_impression"] == [
        ("tea", "drinks")
    ]
    found = sessions(rows)
    assert [each[:3] for each in found if each[0] in ("ann", "bob")][:2] == [("ann", None, False), ("bob", None, False)]
    assert {each[0] for each in found} == {"ann", "bob", str(recorder.peer_id)}
    assert ("ann", None, False, "crashed", "roster", 0) in found
    assert sum(each[5] for each in found if each[0] == "bob") == 2
