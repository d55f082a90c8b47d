"""A meter that is killed with SIGKILL at random moments, in a process of its own."""

import asyncio
import random
import shutil
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from broadloom.record import read
from tests.apps.delivery.bills import built
from tests.apps.delivery.newsroom import Newsroom
from tests.support import TIMEOUT_S, eventually

SCORES = "sports/nfl/scores"
KILLS = 4
LATEST_S = 1.5
"""A meter is killed up to this long after it began to meter."""


class MeterProcess:
    def __init__(self, room: Newsroom, folder: Path) -> None:
        self._ticket = folder / "meter.ticket"
        room.ticket("meter").save(self._ticket)
        self._words = [room.name, str(self._ticket), str(folder / "tapes"), SCORES]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.apps.delivery.meter_process", *self._words, stdout=asyncio.subprocess.PIPE
        )
        assert self._process.stdout is not None
        assert await asyncio.wait_for(self._process.stdout.readline(), TIMEOUT_S) == b"metering\n"

    async def end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        await asyncio.wait_for(self._process.communicate(), TIMEOUT_S)
        assert self._process.returncode == (-9 if number is signal.SIGKILL else 0)


def has_row(tapes: Path, name: str, meters: int = 1) -> Callable[[], bool]:
    """Whether the finished files have an identification of this subscriber, by this number of meters."""

    def found() -> bool:
        if not any(tapes.rglob("*.parquet")):
            return False
        rows = pl.DataFrame(read(tapes, kinds=["identification"]))
        return rows.filter(pl.col("name") == name)["run_id"].n_unique() >= meters

    return found


@pytest.mark.long
@pytest.mark.parametrize("is_alone", [True, False])
async def test_killed_meter_loses_no_time_and_bills_none_twice(is_alone: bool, tmp_path: Path) -> None:
    rng = random.Random(is_alone)
    survivor, tapes = tmp_path / "survivor", tmp_path / "killed" / "tapes"
    for folder in (survivor, tapes.parent):
        folder.mkdir()
    async with Newsroom() as room:
        await room.desk()
        editor, anna, ben = await room.open("editor"), await room.open("anna"), await room.open("ben")
        await editor.create(SCORES, producers=["nfl"])
        await anna.wait_for(SCORES)
        await ben.wait_for(SCORES)
        victim, other = MeterProcess(room, tapes.parent), MeterProcess(room, survivor)
        await victim.start()
        if not is_alone:
            await other.start()
        async with anna.subscribe(SCORES):
            await eventually(has_row(tapes, "anna"))
            identified_at = datetime.now(UTC)
            for kill in range(KILLS):
                async with ben.subscribe(SCORES):
                    if not is_alone:
                        await eventually(has_row(survivor / "tapes", "ben"))
                    await asyncio.sleep(rng.uniform(0, LATEST_S))
                    await victim.end(signal.SIGKILL)
                await asyncio.sleep(rng.uniform(0, LATEST_S / 3))
                await victim.start()
                await eventually(has_row(tapes, "anna", kill + 2))
            ended_at = datetime.now(UTC)
        await victim.end(signal.SIGTERM)
        if not is_alone:
            await other.end(signal.SIGTERM)
    sessions = built(tapes.parent, "sessions")["sessions"]
    (session,) = sessions.filter(pl.col("subscriber") == "anna").to_dicts()
    assert (session["peer_count"], session["end_status"], session["is_proven"]) == (1, "left", True)
    assert session["start_time"] <= identified_at
    assert session["end_time"] >= ended_at
    if not is_alone:
        shutil.copytree(tapes, tmp_path / "both" / "tapes")
        shutil.copytree(survivor / "tapes", tmp_path / "both" / "tapes", dirs_exist_ok=True)
        one, both = [built(folder, "sessions", "invoices") for folder in (survivor, tmp_path / "both")]
        assert sessions_of(one) == sessions_of(both) == {"anna": 1, "ben": KILLS}
        assert amounts(one) == amounts(both) == {"anna": Decimal("0.4500")}


def sessions_of(tables: dict[str, pl.DataFrame]) -> dict[str, int]:
    found = tables["sessions"].filter(pl.col("topic") == SCORES)
    return dict(found.group_by("subscriber").len().rows())


def amounts(tables: dict[str, pl.DataFrame]) -> dict[str, Decimal]:
    """An hour that has begun is paid for."""
    billed = tables["invoices"].filter(pl.col("amount") > 0)
    return dict(billed.select("subscriber", "amount").rows())
