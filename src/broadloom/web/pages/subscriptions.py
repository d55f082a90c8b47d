"""My subscriptions: connect time and cost of this month, and bills."""

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

from nicegui import ui

from broadloom.pipeline.billing.export import ISSUED
from broadloom.web.bills import Amount, this_month, total
from broadloom.web.delivery_site import DeliverySite
from broadloom.web.pages.layout import button, data_table, empty_state, every, paragraph, section
from broadloom.web.pages.sign_in import signed_in
from broadloom.web.pages.topics import topic_link
from broadloom.web.sources import Sources
from broadloom.web.visitor import Visitor

REFRESH_S = 2.0
BILLS_MAX = 100
COLUMNS = ("Topic", "Plan", "Since", "Connected this month", "Cost so far", "")
BILL_COLUMNS = ("Month", "Topic", "Plan", "Connected", "Amount", "Invoice")


def build(sources: Sources) -> None:
    sentence = "What you are subscribed to, how long you were connected this month, and what it costs so far."
    signed_in(sources, "/topics/mine", "My subscriptions", sentence, SubscriptionsPage)


class SubscriptionsPage:
    def __init__(self, site: DeliverySite, visitor: Visitor) -> None:
        self._site = site
        self._visitor = visitor
        self._shown: object = None
        self._note = paragraph("", "bl-quiet bl-small")
        self._note.props("role=status")
        self._body = ui.element("div").classes("bl-stack bl-mine")
        every(REFRESH_S, self._refresh)

    async def _refresh(self) -> None:
        visitor, bills = self._visitor, self._site.bills
        rows = await asyncio.to_thread(bills.months, visitor.name) if bills is not None else []
        written_at = bills.written_at if bills is not None else ""
        await visitor.refresh_account()
        amounts = this_month(rows)
        current, in_all = self._current(amounts), total(amounts.values())
        issued = [row for row in rows if row["kind"] in ISSUED][:BILLS_MAX]
        if (current, issued, written_at) == self._shown:
            return
        self._shown = (current, issued, written_at)
        self._note.set_text(
            f"Times and amounts as of {written_at[:19].replace('T', ' ')} UTC, when the tables were built."
            if written_at
            else "No bills yet: the tables were not built, or this server was started without --bills."
        )
        self._body.clear()
        with self._body:
            self._show(current, in_all, issued)

    def _current(self, amounts: dict[str, Amount]) -> list[tuple[str, str, str, str, str]]:
        """Path, plan, since, connect time and cost of each subscription, and of topics that have ended this month."""
        visitor = self._visitor
        plans: dict[str, tuple[str, str]] = {}
        for path, each in visitor.account.subscriptions.items():
            if each.plan is not None:
                plans[path] = (each.plan, _day(each.periods[-1].start_ms))
        for path in visitor.free:
            topic = visitor.service.directory.topic(path)
            if topic is not None and topic.entry.path not in plans:
                plans[path] = ("free", "this visit")
        found = []
        for path in sorted({*plans, *(topic for topic in amounts if topic and topic not in plans)}):
            amount = total(each for topic, each in amounts.items() if topic == path or topic.startswith(f"{path}/"))
            if path not in plans and any(path.startswith(f"{other}/") for other in plans):
                continue
            plan, since = plans.get(path, ("ended", ""))
            found.append((path, plan, since, duration_text(amount.connected_ms), amount.text or "–"))
        return found

    def _show(
        self, current: list[tuple[str, str, str, str, str]], in_all: Amount, issued: list[dict[str, Any]]
    ) -> None:
        with section("This month"):
            if not current:
                empty_state("You are not subscribed to anything.", "Choose a topic on the page All topics.")
            else:
                with ui.element("div").classes("bl-scroll bl-cards").props("role=region tabindex=0") as container:
                    container.props["aria-label"] = "Subscriptions"
                    with ui.element("table"):
                        self._head()
                        with ui.element("tbody"):
                            for row in current:
                                self._row(row)
                if in_all.money:
                    paragraph(f"In all: {duration_text(in_all.connected_ms)}, {in_all.text}.", "bl-guarantee bl-total")
        with section("Bills"):
            if issued:
                data_table("Bills", BILL_COLUMNS, [_bill(row) for row in issued])
            else:
                paragraph("None yet. A month is billed when it is over and all tapes have arrived.", "bl-quiet")

    def _head(self) -> None:
        with ui.element("thead"), ui.element("tr"):
            for name in COLUMNS:
                with ui.element("th").props("scope=col"):
                    ui.label(name)

    def _row(self, row: tuple[str, str, str, str, str]) -> None:
        path, plan, *_ = row
        with ui.element("tr"):
            for name, text in zip(COLUMNS, row, strict=False):
                with ui.element("td") as cell:
                    if name == COLUMNS[0]:
                        with ui.element("a").props(f'href="{topic_link(path)}"'):
                            ui.label(text)
                    else:
                        ui.label(text)
                cell.props["data-label"] = name
            with ui.element("td") as cell:
                if plan != "ended":
                    button("Unsubscribe", partial(self._unsubscribe, path), "unsubscribe")
            cell.props["data-label"] = ""

    async def _unsubscribe(self, path: str) -> None:
        await self._visitor.unsubscribe(path)
        await self._refresh()


def duration_text(milliseconds: Decimal) -> str:
    seconds = int(milliseconds / 1000)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return f"{hours:,} h {minutes:02} min" if hours else f"{minutes} min {seconds % 60:02} s"


def _day(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d}"


def _bill(row: dict[str, Any]) -> tuple[str, ...]:
    kind = "" if row["kind"] == "invoice" else " (correction)"
    return (
        row["billing_month"],
        row["topic"] or "",
        row["plan_name"] or "",
        duration_text(row["connected_ms"]),
        f"{row['amount']:,.2f} {row['currency']}{kind}",
        row["invoice_id"][:8],
    )
