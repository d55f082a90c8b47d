"""`python -m tests.web.news_site RESULTS`: the pages of a small news service, in a process of its own. It prints the
address of its pages, and the ticket of a reader."""

import asyncio
import json
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from broadloom.pipeline.tables import table
from broadloom.web.delivery_site import DeliverySite
from broadloom.web.server import serve
from tests.apps.delivery.newsroom import Newsroom
from tests.channel.joined import QUICK
from tests.web.sample_data import write_tables

SCORES = "sports/nfl/scores"
PUBLISH_S = 0.2


def make_bills(folder: Path) -> None:
    """What the pipeline would write about anna's reading and an ad."""
    now = datetime.now(UTC)
    rows: dict[str, list[dict[str, Any]]] = {
        "invoices": [
            invoice_row("anna", f"{now:%Y-%m}", "open", Decimal("754000"), Decimal("0.0950")),
            invoice_row("anna", "2026-01", "invoice", Decimal("7200000"), Decimal("0.9000")),
            invoice_row("ben", f"{now:%Y-%m}", "open", Decimal("3600000"), Decimal("0.4500")),
        ],
        "ad_broadcasts": [
            dict.fromkeys(each.name for each in table("ad_broadcasts").columns)
            | {"ad_name": "spring-sale", "topic": SCORES, "broadcast_time": now, "audience_count": 2}
            | {"fee": Decimal("1.0250"), "currency": "EUR", "channel": "0" * 16}
        ],
    }
    write_tables(folder, rows)


def invoice_row(
    subscriber: str,
    month: str,
    kind: str,
    connected_ms: Decimal,
    amount: Decimal,
    topic: str = SCORES,
    currency: str = "EUR",
) -> dict[str, Any]:
    return dict.fromkeys(each.name for each in table("invoices").columns) | {
        "invoice_id": "c0ffee" * 4 if kind == "invoice" else None,
        "kind": kind,
        "billing_month": month,
        "subscriber": subscriber,
        "topic": topic,
        "plan_name": "visitor",
        "connected_ms": connected_ms,
        "amount": amount,
        "currency": currency,
        "time_zone": "UTC",
        "channel": "0" * 16,
    }


async def main(results_dir: Path) -> None:
    make_bills(results_dir)
    async with Newsroom() as room:
        await room.desk(
            prices={"visitor": "0.45 EUR per hour", "reader": "9.90 EUR per month"},
            qualifications={"paid": ["anna"]},
        )
        editor, nfl = await room.open("editor"), await room.open("nfl")
        await editor.create(SCORES, producers=["nfl"], plans=["visitor", "reader"], title="Scores as they change")
        await editor.create("sports/nfl/injuries", producers=["nfl"], plans=["reader"], qualifications=["vip"])
        await editor.create("weather", topics={"berlin": ["dwd"], "paris": ["meteo"]}, title="Forecasts")
        await room.meter(results_dir / "tapes")
        await nfl.wait_for(SCORES)
        producer = await room.enter(nfl.produce(SCORES))
        reader = room.ticket("anna")
        site = DeliverySite(
            room.name,
            options={"settings": QUICK},
            tickets=[room.ticket("editor"), room.ticket("nfl")],
            bills_dir=results_dir,
        )

        def on_ready(url: str) -> None:
            reader.save(results_dir / "anna.ticket")
            print(json.dumps({"url": url, "ticket": (results_dir / "anna.ticket").read_text()}), flush=True)

        async def publish() -> None:
            number = 0
            while True:
                number += 1
                if number % 5 == 0:
                    await producer.advertise("spring-sale", b"Tea at half price")
                else:
                    await producer.publish_text(f"Bears {7 * (number % 6)}:{7 * (number % 4)} <b>{number}</b>")
                await asyncio.sleep(PUBLISH_S)

        publishing = asyncio.get_running_loop().create_task(publish())
        try:
            await serve(port=0, on_ready=on_ready, delivery=site)
        finally:
            publishing.cancel()


if __name__ == "__main__":
    from broadloom.cli.runner import StopSignal, command

    @command("test")
    async def work(stop: StopSignal) -> None:
        stop.interrupt_is_success = True
        await main(Path(sys.argv[1]))

    sys.exit(work())
