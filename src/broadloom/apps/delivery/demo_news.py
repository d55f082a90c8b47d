"""`NewsDemo`: a small news service beside the cluster of `broadloom demo`, whose tape Spark turns into bills.

Desk, meter, producers and readers share the process of the demo; their connections are real.
"""

import asyncio
import itertools
import logging
import random
import secrets
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from broadloom.apps.delivery.billing_file import subscribers_toml
from broadloom.apps.delivery.desk import Desk
from broadloom.apps.delivery.meter import Meter
from broadloom.apps.delivery.service import Service
from broadloom.errors import BroadloomError
from broadloom.protocol.identity import Role
from broadloom.security import Authority, Ticket

if TYPE_CHECKING:
    from broadloom.pipeline.sidecar_client import SidecarClient

log = logging.getLogger("broadloom")

SCORES, BERLIN, PARIS = "sports/nfl/scores", "weather/berlin", "weather/paris"
TABLES = ("invoices", "ad_broadcasts")
"""What is built for the bills."""
TAPE_FILE_S = 5.0
"""Age at which files of the tape are finished, and can be billed."""
ITEM_S = 1.0
AD_EVERY = 8
"""Every such item is an ad."""
AWAY_S, HERE_S = 4.0, 8.0
"""A reader that comes and goes is away and here for about this long."""
STOP_S = 10.0
TEAMS = ("Bears", "Packers", "Lions", "Vikings")
POINTS_MAX = 28
"""Ends a match."""
LIFETIME = timedelta(days=30)
BILLING = """currency = "EUR"
exempt = ["desk", "meter", "nfl", "dwd"]

[plans.visitor]
kind = "hour"
hour = 7.20

[plans.reader]
kind = "flat"
month = 9.90

[[advertisers]]
name = "acme"
ads = ["spring-*"]
broadcast_fee = 0.10
subscriber_fee = 0.0125

"""
PRICES = {"visitor": "7.20 EUR per hour", "reader": "9.90 EUR per month"}


class NewsDemo:
    """Use it with `async with`, which does not wait until the service runs. `problem` says why it does not."""

    def __init__(self, directory: Path) -> None:
        self.name = f"delivery/news-{secrets.token_hex(4)}"
        self.tapes, self.results = directory / "tapes", directory / "results"
        self.billing_file = directory / "billing.toml"
        self.problem = ""
        self._authority = Authority.generate()
        self._desk: Desk | None = None
        self._is_serving = False
        self._is_stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def tickets(self) -> list[Ticket]:
        """For visitors: a reader, the creator of the topics, and a producer."""
        return [self._ticket(name) for name in ("ann", "editor", "nfl")]

    def _ticket(self, name: str) -> Ticket:
        return self._authority.issue_ticket(name, Role.CONSUMER, datetime.now(UTC) + LIFETIME)

    async def __aenter__(self) -> Self:
        self.tapes.mkdir(parents=True, exist_ok=True)
        self.write_billing_file()
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """End all programs of the service. The tape is complete then, and so is the billing file."""
        self._is_stopping.set()
        if self._task is not None:
            if self._is_serving:
                await asyncio.wait([self._task], timeout=STOP_S)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def write_billing_file(self) -> None:
        """With the subscribers until now."""
        found = subscribers_toml(self._desk.subscribers(), self._desk.listing_of) if self._desk is not None else ""
        self.billing_file.write_text(BILLING + found, encoding="utf-8")

    async def _run(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                await self._serve(stack)
                self._is_serving = True
                await self._is_stopping.wait()
                self.write_billing_file()
        except (BroadloomError, OSError, TimeoutError) as problem:
            self.problem = str(problem)
            log.warning("%s: %s", self.name, problem)

    async def _serve(self, stack: AsyncExitStack) -> None:
        from broadloom.record import Tape, TapeSettings

        tape = Tape(self.tapes, settings=TapeSettings(file_duration_s=TAPE_FILE_S))
        stack.push_async_callback(asyncio.to_thread, tape.close)
        desk = Desk(self.name, self._authority, creators=["editor"], prices=PRICES)
        self._desk = await stack.enter_async_context(desk)
        names = ("editor", "nfl", "dwd", "ben", "cleo")
        editor, nfl, dwd, ben, cleo = [
            await stack.enter_async_context(Service(self.name, self._ticket(name))) for name in names
        ]
        await editor.create(SCORES, producers=["nfl"], plans=["visitor", "reader"], title="Scores as they change")
        weather = {path.rpartition("/")[2]: ["dwd"] for path in (BERLIN, PARIS)}
        await editor.create("weather", topics=weather, title="Temperatures", plans=["visitor"])
        meter = await stack.enter_async_context(Meter(self.name, self._ticket("meter"), tape))
        await meter.wait_until_metering(SCORES, "weather")
        for service in (nfl, dwd, ben, cleo):
            await service.wait_for(SCORES, BERLIN, PARIS)
        loop = asyncio.get_running_loop()
        work = (_play(nfl), _measure(dwd), _read(ben, SCORES, "visitor"), _come_and_go(cleo, "weather", "visitor"))
        tasks = [loop.create_task(each) for each in work]
        stack.push_async_callback(_cancel, tasks)

    async def bill(self, spark: "SidecarClient") -> list[dict[str, Any]]:
        """Let Spark bill what the finished files of the tape have. Raises `SidecarError`."""
        from broadloom.pipeline.results import Results
        from broadloom.pipeline.tables import table

        if not any(self.tapes.rglob("*.parquet")):
            return []
        await spark.build(self.tapes, self.results, TABLES, {"billing_file": str(self.billing_file)})
        rows = Results(self.results).read(table("invoices")).to_pylist()
        billed = [row for row in rows if row["amount"] is not None and row["plan_name"] is not None]
        keys = ("subscriber", "topic", "plan_name", "currency")
        found = [{key: row[key] for key in keys} | _figures(row) for row in billed]
        return sorted(found, key=lambda row: (row["subscriber"], row["topic"] or ""))


def _figures(row: dict[str, Any]) -> dict[str, Any]:
    amount: Decimal = row["amount"]
    return {"connected_s": round(float(row["connected_ms"]) / 1000, 1), "amount": f"{amount:.2f}"}


async def _play(nfl: Service) -> None:
    teams = dict.fromkeys(TEAMS[:2], 0)
    async with nfl.produce(SCORES) as producer:
        for number in itertools.count(1):
            if number % AD_EVERY == 0:
                await producer.advertise("spring-sale", b"Tea at half price")
            else:
                if max(teams.values()) >= POINTS_MAX:
                    teams = dict.fromkeys(random.sample(TEAMS, 2), 0)
                team = random.choice(list(teams))
                teams[team] += random.choice((3, 7))
                score = ":".join(str(points) for points in teams.values())
                await producer.publish_text(f"{' – '.join(teams)} {score} ({team} score)")
            await asyncio.sleep(ITEM_S)


async def _measure(dwd: Service) -> None:
    async with dwd.produce(BERLIN) as berlin, dwd.produce(PARIS) as paris:
        while True:
            for producer in (berlin, paris):
                await producer.publish_text(f"{random.uniform(-5, 30):.1f} °C")
            await asyncio.sleep(2 * ITEM_S)


async def _read(service: Service, path: str, plan: str) -> None:
    async with service.subscribe(path, plan=plan) as feed:
        async for _ in feed:
            pass


async def _come_and_go(service: Service, path: str, plan: str) -> None:
    while True:
        async with service.subscribe(path, plan=plan):
            await asyncio.sleep(random.uniform(0.5, 1.5) * HERE_S)
        await asyncio.sleep(random.uniform(0.5, 1.5) * AWAY_S)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
