"""One topic or category: what it costs, who is there, its items as they arrive; subscribing, and publishing."""

import time
from functools import partial

from nicegui import Client, ui

from broadloom.apps.delivery import Topic
from broadloom.apps.delivery.entitlements import DESK, METER
from broadloom.protocol.owner.card import SecurityLevel
from broadloom.web.delivery_site import DeliverySite
from broadloom.web.pages.layout import button, call_soon, empty_state, every, paragraph
from broadloom.web.visitor import AUDIENCE_AGE_S, TEXT_CHARS_MAX, Reading, SeenItem, Visitor

REFRESH_S = 0.5
ITEMS_SHOWN_MAX = 50
NAMES_SHOWN_MAX = 20
TOPICS_SHOWN_MAX = 100
"""States of the topics of a category."""
FREE = "free"


class TopicPanel:
    def __init__(self, site: DeliverySite, visitor: Visitor, path: str) -> None:
        self._visitor = visitor
        self._path = path
        self._prices: dict[str, str] = {}
        self._topics = _topics(visitor, path)
        self._state: tuple[object, ...] = ()
        self._last = 0
        self._shown: list[ui.element] = []
        with ui.element("h2").classes("bl-topic-path"):
            ui.label(path.replace("/", " / "))
        self._body = ui.element("div")
        call_soon(self._open)
        if self._topics:
            # Before anything is awaited: a tab that is closed while its page loads is disconnected, too. Not when the
            # page is deleted, which is later: connect time can cost money.
            client = ui.context.client
            client.on_connect(partial(visitor.show, path, client.id))
            client.on_disconnect(partial(self._on_disconnected, client))

    def _on_disconnected(self, client: Client) -> None:
        if not client.has_socket_connection:  # else this was the old connection of a tab that has connected again
            self._visitor.hide(self._path, client.id)

    async def _open(self) -> None:
        self._prices = await self._visitor.service.prices()
        self._body.clear()
        with self._body:
            if not self._topics:
                empty_state(f"There is no topic {self._path}.", "It may have been closed. The list has all others.")
                return
            self._build()
            every(REFRESH_S, self._refresh)
            every(AUDIENCE_AGE_S, self._refresh_audience)

    # -- parts

    def _build(self) -> None:
        first, is_category = self._topics[0], self._topics[0].path != self._path
        if first.title and first.entry.path == self._path:
            paragraph(first.title, "bl-topic-title")
        with ui.element("dl").classes("bl-leaving bl-facts"):
            if is_category:
                self._fact("Topics", f"{len(self._topics):,}")
            self._fact("Price", self._price_text())
            self._fact("Producers", _names({name for topic in self._topics for name in topic.producers}) or "anyone")
            needed = {name for topic in self._topics for name in topic.entry.offer.qualifications}
            self._fact("For", f"subscribers with: {_names(needed)}" if needed else "everyone with a ticket")
            self._here = self._fact("Here now", "…")
        self._status = paragraph("", "bl-topic-status")
        self._status.props("role=status")
        with ui.element("div").classes("bl-do") as self._joining:
            plans = self._plans()
            self._plan = ui.radio({plan: self._plan_text(plan) for plan in plans}, value=next(iter(plans), None))
            self._plan.props("dense").classes("bl-plans").set_visibility(len(plans) > 1)
            button("Subscribe", self._subscribe, "subscribe", is_primary=True)
            if first.entry.offer.level is SecurityLevel.TICKETS:
                paragraph("Other readers see your name while you are connected.", "bl-quiet bl-small")
        with ui.element("div").classes("bl-do") as self._leaving:
            button("Unsubscribe", self._unsubscribe, "unsubscribe")
        if not is_category and self._visitor.name in first.producers:
            self._build_publishing()
        self._items_title = ui.element("h3").classes("bl-subheading")
        with self._items_title:
            ui.label("Items")
        self._empty = paragraph("", "bl-quiet")
        self._list = ui.element("ol").classes("bl-items").props('aria-label="Items, newest first"')

    def _fact(self, name: str, text: str) -> ui.label:
        with ui.element("dt"):
            ui.label(name)
        with ui.element("dd"):
            return ui.label(text)

    def _build_publishing(self) -> None:
        with ui.element("details").classes("bl-more bl-publishing").props("open"):
            with ui.element("summary"):
                ui.label("Publish on this topic")
            self._text = ui.textarea("Text").props(f"outlined dense stack-label rows=2 maxlength={TEXT_CHARS_MAX}")
            with ui.element("div").classes("bl-do"):
                button("Publish", self._publish, "publish", is_primary=True)
                self._ad = ui.input("Name of the ad").props("outlined dense stack-label maxlength=100")
                button("Show as an ad", self._advertise, "advertise")

    def _plans(self) -> list[str]:
        return list(dict.fromkeys(plan for topic in self._topics for plan in topic.entry.offer.plans))

    def _plan_text(self, plan: str) -> str:
        return f"{plan} ({self._prices[plan]})" if plan in self._prices else plan

    def _price_text(self) -> str:
        plans = self._plans()
        is_free = any(not topic.entry.offer.plans for topic in self._topics)
        return ", ".join([FREE] * is_free + [self._plan_text(plan) for plan in plans])

    # -- actions

    async def _subscribe(self) -> None:
        self._status.set_text("Connecting …")
        try:
            await self._visitor.subscribe(self._path, str(self._plan.value or ""))
        finally:
            self._state = ()
            self._refresh()

    async def _unsubscribe(self) -> None:
        await self._visitor.unsubscribe(self._path)
        self._refresh()

    async def _publish(self) -> None:
        if text := str(self._text.value or "").strip():
            await self._visitor.publish(self._path, text)
            self._text.set_value("")

    async def _advertise(self) -> None:
        text, name = str(self._text.value or "").strip(), str(self._ad.value or "").strip()
        if not text or not name:
            raise ValueError("an ad needs a text, and the name under which it is billed")
        await self._visitor.publish(self._path, text, name)
        self._text.set_value("")

    # -- showing

    def _refresh(self) -> None:
        reading = self._visitor.readings.get(self._path)
        plan = self._visitor.plan_of(self._path)
        states = tuple(reading.feed.topics.items()) if reading is not None else ()
        state = (plan, states, self._visitor.problem)
        if state != self._state:
            self._state = state
            self._show_state(reading, plan, states)
        if reading is not None:
            self._show_items(reading)

    def _show_state(self, reading: Reading | None, plan: str | None, states: tuple[tuple[str, str], ...]) -> None:
        self._joining.set_visibility(plan is None)
        self._leaving.set_visibility(plan is not None)
        self._items_title.set_visibility(reading is not None)
        self._list.set_visibility(reading is not None)
        connected = sum(text == "connected" for _, text in states)
        others = [f"{topic}: {text}" for topic, text in states if text != "connected"][:TOPICS_SHOWN_MAX]
        self._status.props(f"data-state={'connected' if connected else 'waiting' if plan is not None else 'none'}")
        if reading is None:
            self._empty.set_text("")
            self._status.set_text("Connecting …" if plan is not None and not self._visitor.problem else "")
            if plan is not None and self._visitor.problem:
                self._status.set_text(f"Not connected: {self._visitor.problem}")
            return
        since = time.strftime("%H:%M:%S", time.localtime(reading.connected_at))
        of_all = f" to {connected} of {len(states)} topics" if len(states) > 1 else ""
        cost = f" Your plan: {self._plan_text(plan)}." if plan else ""
        sentence = f"Connected{of_all} since {since}, while this page is open.{cost}" if connected else ""
        self._status.set_text(" ".join([sentence, *others]).strip())
        if not reading.items:
            self._empty.set_text("No items yet. They appear as producers publish them.")

    def _show_items(self, reading: Reading) -> None:
        for item in [each for each in reading.items if each.number > self._last]:
            with self._list:
                element = ui.element("li").classes("bl-item" + " bl-ad" * (item.advert is not None))
                with element:
                    self._show_item(item)
            element.move(target_index=0)
            self._shown.append(element)
            self._last = item.number
        if self._shown:
            self._empty.set_text("")
        while len(self._shown) > ITEMS_SHOWN_MAX:
            self._shown.pop(0).delete()

    def _show_item(self, item: SeenItem) -> None:
        with ui.element("div").classes("bl-who"):
            if item.advert is not None:
                ui.label(f"Ad · {item.advert}").classes("bl-ad-mark")
            ui.label(item.producer or "unproven").classes("bl-guarantee")
            if item.topic != self._path:
                ui.label(item.topic).classes("bl-quiet bl-small")
            with ui.element("time").classes("bl-quiet bl-small"):
                ui.label(time.strftime("%H:%M:%S", time.localtime(item.seen_at)))
        ui.label(item.text).classes("bl-text")

    async def _refresh_audience(self) -> None:
        reading = self._visitor.readings.get(self._path)
        counts = await self._visitor.audience(tuple(topic.path for topic in self._topics[:TOPICS_SHOWN_MAX]))
        text = f"{sum(counts.values()):,} subscriber{'s' * (sum(counts.values()) != 1)}" if counts else "not known"
        others = {METER, DESK, *(name for topic in self._topics for name in topic.producers)}
        names = reading.feed.member_names() - others if reading is not None else frozenset()
        self._here.set_text(f"{text}: {_names(names)}" if names else text)


def _topics(visitor: Visitor, path: str) -> list[Topic]:
    try:
        return visitor.service.topics(path)
    except ValueError:  # no path at all
        return []


def _names(names: set[str] | frozenset[str]) -> str:
    shown = sorted(names)[:NAMES_SHOWN_MAX]
    return ", ".join(shown) + (f" and {len(names) - len(shown):,} more" if len(names) > len(shown) else "")
