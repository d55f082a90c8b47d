"""The operator page: create topics; their producers, subscribers, revenue and ads."""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

from nicegui import ui
from nicegui.events import GenericEventArguments

from broadloom.apps.delivery import Entry, Subscription
from broadloom.protocol.owner.card import SecurityLevel
from broadloom.web.bills import Amount, total
from broadloom.web.delivery_site import DeliverySite
from broadloom.web.pages.layout import button, data_table, empty_state, every, paragraph, section
from broadloom.web.pages.sign_in import signed_in
from broadloom.web.sources import Sources
from broadloom.web.visitor import DESK_S, Visitor

REFRESH_S = 3.0
SUBSCRIBERS_AGE_S = 10.0
"""How old the list of subscribers may be."""
ENTRIES_MAX = 100
NAMES_SHOWN_MAX = 200
ADS_MAX = 100
AD_COLUMNS = ("Time", "Ad", "Topic", "Audience", "Fee")


def build(sources: Sources) -> None:
    sentence = "Create topics; see the producers, subscribers, revenue and ads of yours."
    signed_in(sources, "/topics/operator", "Operator", sentence, OperatorPage)


class OperatorPage:
    def __init__(self, site: DeliverySite, visitor: Visitor) -> None:
        self._site = site
        self._visitor = visitor
        self._shown: object = None
        self._shown_ads: list[dict[str, Any]] | None = None
        self._open: set[str] = set()
        self._summaries: dict[str, ui.label] = {}
        self._subscribers: dict[str, dict[str, Subscription]] = {}
        self._asked_at = -SUBSCRIBERS_AGE_S
        with ui.element("div").classes("bl-cluster bl-operator"):
            with ui.element("div").classes("bl-cluster-controls"), section("Create a topic"):
                self._build_form()
            with ui.element("div").classes("bl-cluster-view"):
                self._list = section("Topics")
                self._ads = section("Ads")
        with self._list:
            self._entries = ui.element("div").classes("bl-stack")
        with self._ads:
            self._ad_table = ui.element("div")
        every(REFRESH_S, self._refresh)

    def _build_form(self) -> None:
        with ui.element("div").classes("bl-stack bl-form"):
            self._path = _field("Path", "sports/nfl/scores")
            self._title = _field("Title", "A line for readers")
            self._producers = _field("Producers", "Names, separated by commas")
            self._topics = ui.textarea("Topics of a category").props(
                'outlined dense stack-label rows=2 maxlength=4000 hint="Optional: they share one channel." '
                'placeholder="berlin = dwd, meteo"'
            )
            self._plans = _field("Plans", "Empty: free of charge")
            self._qualifications = _field("Qualifications", "Empty: everyone with a ticket")
            levels = {each.value: each.value for each in SecurityLevel}
            self._level = ui.select(levels, value=SecurityLevel.TICKETS.value, label="Members connect with")
            self._level.props("outlined dense options-dense")
        with ui.element("div").classes("bl-do"):
            button("Create", self._create, "create-topic", is_primary=True)
        self._created = paragraph("", "bl-quiet bl-small")
        self._created.props("role=status")

    async def _create(self) -> None:
        lines = [line for line in str(self._topics.value or "").splitlines() if line.strip()]
        topics = {name.strip(): _split(names) for name, _, names in (line.partition("=") for line in lines)}
        entry = await self._visitor.service.create(
            str(self._path.value or "").strip(),
            title=str(self._title.value or "").strip(),
            producers=_split(self._producers.value),
            topics=topics or None,
            plans=_split(self._plans.value),
            qualifications=_split(self._qualifications.value),
            level=str(self._level.value),
            timeout_s=DESK_S,
        )
        self._created.set_text(f"Created {entry.path}.")
        for field in (self._path, self._title, self._topics):
            field.set_value("")
        await self._refresh()

    # -- what there is

    async def _refresh(self) -> None:
        visitor, bills = self._visitor, self._site.bills
        await visitor.refresh_account()
        account = visitor.account
        entries = {topic.entry.path: topic.entry for topic in visitor.service.topics()}
        own = [each for each in entries.values() if account.is_operator or each.creator == account.name][:ENTRIES_MAX]
        topics = [topic for each in own for topic in each.offer.topics]
        audience = await visitor.audience(tuple(topics))
        subscribers = await self._subscribers_of(own)
        revenue = await asyncio.to_thread(bills.revenue, topics) if bills is not None else {}
        ads = await asyncio.to_thread(bills.ads, topics, ADS_MAX) if bills is not None else []
        if (own, subscribers) != self._shown:
            self._shown = (own, subscribers)
            self._entries.clear()
            self._summaries = {}
            with self._entries:
                if not own:
                    may = (
                        "You may create topics." if account.is_creator else "You may not create any: ask the operator."
                    )
                    empty_state("There is no topic here that you may administer.", may)
                for each in own:
                    self._show_entry(each, subscribers[each.path])
        for each in own:
            self._summaries[each.path].set_text(_summary(each, audience, subscribers[each.path], revenue))
        if ads != self._shown_ads:
            self._shown_ads = ads
            self._ad_table.clear()
            with self._ad_table:
                self._show_ads(ads)

    async def _subscribers_of(self, entries: list[Entry]) -> dict[str, dict[str, Subscription]]:
        """One request for each entry, so not at every refresh."""
        now = asyncio.get_running_loop().time()
        if now >= self._asked_at + SUBSCRIBERS_AGE_S or any(each.path not in self._subscribers for each in entries):
            ask = self._visitor.service.subscribers
            self._subscribers = {each.path: await ask(each.path, timeout_s=DESK_S) for each in entries}
            self._asked_at = now
        return self._subscribers

    async def _refresh_all(self) -> None:
        self._asked_at = -SUBSCRIBERS_AGE_S
        await self._refresh()

    def _show_entry(self, entry: Entry, subscribers: dict[str, Subscription]) -> None:
        offer = entry.offer
        active = sorted(name for name, each in subscribers.items() if each.plan is not None)
        withdrawn = sorted(name for name, each in subscribers.items() if each.is_withdrawn)
        details = ui.element("details").classes("bl-entry")
        details.props["data-path"], details.props["open"] = entry.path, entry.path in self._open
        details.on("toggle", partial(self._on_toggled, entry.path), js_handler="(event) => emit(event.target.open)")
        with details:
            with ui.element("summary"):
                ui.label(entry.path).classes("bl-guarantee")
                self._summaries[entry.path] = ui.label("").classes("bl-quiet")
            with ui.element("dl").classes("bl-leaving bl-facts"):
                for name, text in self._facts(entry):
                    with ui.element("dt"):
                        ui.label(name)
                    with ui.element("dd"):
                        ui.label(text)
            if active:
                data_table(
                    f"Subscribers of {entry.path}",
                    ("Subscriber", "Plan"),
                    [(name, str(subscribers[name].plan)) for name in active[:NAMES_SHOWN_MAX]],
                )
            elif not offer.plans:
                paragraph("Desks do not remember who reads a topic without plans.", "bl-quiet bl-small")
            with ui.element("div").classes("bl-do"):
                chosen = ui.select([*active, *withdrawn], label="Subscriber or producer", new_value_mode="add-unique")
                chosen.props("outlined dense options-dense use-input hide-selected fill-input").classes("bl-select")
                button("Withdraw", partial(self._withdraw, entry.path, chosen), "withdraw", is_destructive=True)
                if withdrawn:
                    button("Reinstate", partial(self._reinstate, entry.path, chosen), "reinstate")
                button("Close the topic", partial(self._close, entry.path), "close-topic", is_destructive=True)
            if withdrawn:
                paragraph(f"Withdrawn: {', '.join(withdrawn[:NAMES_SHOWN_MAX])}", "bl-quiet bl-small")

    def _on_toggled(self, path: str, event: GenericEventArguments) -> None:
        (self._open.add if event.args else self._open.discard)(path)

    def _facts(self, entry: Entry) -> Iterable[tuple[str, str]]:
        for topic, producers in entry.offer.topics.items():
            label = "Producers" if topic == entry.path else f"Producers of {topic.removeprefix(entry.path + '/')}"
            yield label, ", ".join(producers) or "none"
        yield "Plans", ", ".join(entry.offer.plans) or "free"
        needed = ", ".join(entry.offer.qualifications)
        yield "For", f"subscribers with: {needed}" if needed else "everyone with a ticket"
        yield "Created by", entry.creator or "a desk"

    def _show_ads(self, ads: list[dict[str, Any]]) -> None:
        if not ads:
            paragraph("None in the tables of this server.", "bl-quiet")
            return
        rows = [
            (
                f"{row['broadcast_time']:%Y-%m-%d %H:%M:%S}",
                row["ad_name"],
                row["topic"] or "",
                f"{row['audience_count']:,}",
                f"{row['fee']:,.4f} {row['currency']}" if row["fee"] is not None else row["reason"] or "not charged",
            )
            for row in ads
        ]
        data_table("Ads", AD_COLUMNS, rows)

    # -- actions

    async def _withdraw(self, path: str, chosen: ui.select) -> None:
        await self._visitor.service.withdraw(_chosen(chosen), path, timeout_s=DESK_S)
        await self._refresh_all()

    async def _reinstate(self, path: str, chosen: ui.select) -> None:
        await self._visitor.service.reinstate(_chosen(chosen), path, timeout_s=DESK_S)
        await self._refresh_all()

    async def _close(self, path: str) -> None:
        with ui.dialog() as dialog, ui.element("div").classes("bl-card bl-dialog"):
            paragraph(f"Close {path}? Its subscribers and producers are disconnected, and nobody is admitted any more.")
            with ui.element("div").classes("bl-do"):
                button("Close it", lambda: dialog.submit(True), "close-confirmed", is_destructive=True)
                button("Keep it", lambda: dialog.submit(False), "close-canceled")
        is_confirmed = await dialog
        dialog.delete()
        if not is_confirmed:
            return
        await self._visitor.service.close_topic(path, timeout_s=DESK_S)
        await self._refresh_all()


def _summary(
    entry: Entry, audience: dict[str, int], subscribers: dict[str, Subscription], revenue: dict[str, Amount]
) -> str:
    topics = entry.offer.topics
    active = sum(each.plan is not None for each in subscribers.values())
    here = sum(audience.get(topic, 0) for topic in topics)
    earned = total(revenue[topic] for topic in topics if topic in revenue)
    money = f"{earned.text} this month" if earned.money else "no revenue yet"
    return f"{active:,} subscribed · {here:,} here now · {money}"


def _chosen(field: ui.select) -> str:
    if not field.value:
        raise ValueError("choose a name first")
    return str(field.value)


def _split(text: object) -> tuple[str, ...]:
    return tuple(part.strip() for part in str(text or "").split(",") if part.strip())


def _field(label: str, hint: str) -> ui.input:
    field = ui.input(label).props("outlined dense stack-label maxlength=400")
    field.props["placeholder"] = hint
    return field
