"""Mailboxes: changes on the tape, and one row per mailbox."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from broadloom.mailboxes import Mailboxes
from broadloom.record import Tape, read
from tests.channel.joined import connected_channels
from tests.pipeline.building import build_in_memory
from tests.pipeline.event_rows import event_table
from tests.support import TIMEOUT_S

BEGIN = datetime(2027, 1, 15, 12, tzinfo=UTC)
A, B, C = "a" * 16, "b" * 16, "c" * 16


def at(second: float) -> datetime:
    return BEGIN + timedelta(seconds=second)


def change(second: float, peer: str, revision: int, status: str = "put", **columns: Any) -> dict[str, Any]:
    usual = {"kind": "mailbox_change", "author": A, "owner": "shop", "name": "price", "size_bytes": 10 * revision}
    return {**usual, "event_time": at(second), "peer": peer, "sequence": revision, "status": status, **columns}


def test_mailbox_has_its_last_revision_and_the_peers_that_know_it() -> None:
    rows = [
        change(1, A, 1, "empty", size_bytes=None),
        change(2, A, 2),
        change(2.5, B, 2),
        change(3, C, 2),
        change(4, A, 3),
        change(4.5, B, 3),
        change(6, B, 3, "gone", reason="owner_gone", size_bytes=None),
        change(5, C, 1, name="stock", author=C),
    ]
    found = build_in_memory(event_table(*rows), "mailbox_stats")["mailbox_stats"].to_dicts()
    assert found == [
        {"channel": "c", "owner": "shop", "mailbox_name": "price", "put_count": 2, "writer_count": 1}
        | {"revision_number": 3, "status": "gone", "reason": "owner_gone", "size_bytes": 30}
        | {"peer_count": 3, "current_peer_count": 2, "first_change_time": at(1), "last_change_time": at(6)},
        {"channel": "c", "owner": "shop", "mailbox_name": "stock", "put_count": 1, "writer_count": 1}
        | {"revision_number": 1, "status": "put", "reason": None, "size_bytes": 10}
        | {"peer_count": 1, "current_peer_count": 1, "first_change_time": at(5), "last_change_time": at(5)},
    ]


async def test_tape_of_a_real_channel_has_the_values_of_its_mailboxes(tmp_path: Path) -> None:
    tape = Tape(tmp_path)
    async with connected_channels(2, tape=tape) as (here, there), Mailboxes(here) as own, Mailboxes(there) as other:
        price = await own.bind("price")
        for data in (b"12", b"12.50"):
            await price.put(data)
        async with asyncio.timeout(TIMEOUT_S):
            async for seen in await other.watch("price"):
                if seen.value.data == b"12.50":
                    break
    tape.close()
    (row,) = build_in_memory(read(tmp_path), "mailbox_stats")["mailbox_stats"].to_dicts()
    assert (row["mailbox_name"], row["put_count"], row["revision_number"], row["size_bytes"]) == ("price", 2, 3, 5)
    assert (row["peer_count"], row["current_peer_count"]) == (2, 2)
