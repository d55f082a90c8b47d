"""One person who has signed in to the pages of a delivery service: its service, and the topics that it reads.

A topic is connected only while a page shows it, because connect time can cost money.
"""

import asyncio
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broadloom.apps.delivery import Account, DeliveryError, Item, Producer, Service, Topic
from broadloom.web.error_messages import describe_error

if TYPE_CHECKING:
    from broadloom.apps.delivery import Feed

DESK_S = 10.0
"""Time for a desk to answer a page."""
ITEMS_MAX = 100
"""Items of a topic that are kept for its pages."""
LINGER_S = 3.0
"""A page that is loaded again within this time keeps its connection."""
AUDIENCE_AGE_S = 3.0
"""All pages of a visitor share one answer of the meters until then."""
TEXT_CHARS_MAX = 4_000


@dataclass(frozen=True, slots=True)
class SeenItem:
    number: int
    topic: str
    producer: str
    text: str
    advert: str | None
    seen_at: float


class Reading:
    """A topic or category that the visitor reads."""

    def __init__(self, service: Service, path: str, plan: str) -> None:
        self.path = path
        self.items: deque[SeenItem] = deque(maxlen=ITEMS_MAX)
        self.connected_at = 0.0
        self.count = 0
        self._feed = service.subscribe(path, plan=plan, timeout_s=DESK_S)
        self._reader: asyncio.Task[None] | None = None

    @property
    def feed(self) -> "Feed":
        return self._feed

    @property
    def is_over(self) -> bool:
        """It was withdrawn, or the topic was closed: there will be no more items."""
        return self._reader is not None and self._reader.done()

    async def start(self) -> None:
        """Raises `DeliveryError`."""
        await self._feed.__aenter__()
        self.connected_at = time.time()
        self._reader = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        async for item in self._feed:
            self.count += 1
            self.items.append(
                SeenItem(self.count, item.topic, item.producer, item_text(item), item.advert, time.time())
            )

    async def close(self) -> None:
        await self._feed.aclose()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)


class Visitor:
    def __init__(self, service: Service) -> None:
        self.service = service
        self.account = Account(service.subscriber)
        self.readings: dict[str, Reading] = {}
        self.free: set[str] = set()
        """Topics without plans that were subscribed to: no desk remembers them."""
        self.problem = ""
        """Why a topic is not connected."""
        self.pages = 0
        """Open pages."""
        self.left_at = time.monotonic()
        """When the last page was closed."""
        self._views: dict[str, set[str]] = {}
        """The open pages by topic."""
        self._producers: dict[str, Producer] = {}
        self._lock = asyncio.Lock()
        self.last_audience: dict[str, int] = {}
        self._asked_at: dict[str, float] = {}
        """When meters were asked about a topic."""
        self._asking = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        return self.service.subscriber

    async def refresh_account(self) -> None:
        self.account = await self.service.account(timeout_s=DESK_S)

    # -- subscriptions

    def plan(self, topic: Topic) -> str | None:
        """The plan that was chosen; None if it is not subscribed to."""
        known = self.account.subscriptions.get(topic.entry.path)
        return known.plan if known is not None and known.plan is not None else ("" if topic.path in self.free else None)

    def plan_of(self, path: str) -> str | None:
        """The plan of a topic, or of the first topic of a category that is subscribed to."""
        plans = [plan for topic in self.service.topics(path) if (plan := self.plan(topic)) is not None]
        return plans[0] if plans else None

    async def subscribe(self, path: str, plan: str) -> None:
        """Raises `DeliveryError`."""
        self.problem = ""
        await self._connect(path, plan)
        states = self.readings[path].feed.topics
        self.free |= {
            topic.path
            for topic in self.service.topics(path)
            if not topic.entry.offer.plans and states.get(topic.path) == "connected"
        }
        await self.refresh_account()

    async def unsubscribe(self, path: str) -> None:
        await self._disconnect(path)
        topics = self.service.topics(path)
        self.free -= {topic.path for topic in topics}
        if any(topic.entry.path in self.account.subscriptions for topic in topics):
            await self.service.unsubscribe(path, timeout_s=DESK_S)
        await self.refresh_account()

    # -- connections

    async def show(self, path: str, client_id: str) -> None:
        """A page shows a topic: connect, if it is subscribed to."""
        self._views.setdefault(path, set()).add(client_id)
        plan = self.plan_of(path)
        if plan is None:
            return
        try:
            await self._connect(path, plan)
            self.problem = ""
        except DeliveryError as problem:
            self.problem = str(problem)

    def is_shown(self, path: str) -> bool:
        """A page shows the topic now."""
        return bool(self._views.get(path))

    def hide(self, path: str, client_id: str) -> None:
        """The page was closed; the connection ends soon if no other shows the topic."""
        views = self._views.get(path, set())
        views.discard(client_id)
        if not views:
            self._start(self._close_later(path))

    async def _close_later(self, path: str) -> None:
        await asyncio.sleep(LINGER_S)
        if not self.is_shown(path):
            await self._disconnect(path)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._closing.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            describe_error(problem)  # logs it

    async def _connect(self, path: str, plan: str) -> None:
        async with self._lock:
            old = self.readings.get(path)
            if old is not None and not old.is_over:
                return
            if old is not None:
                del self.readings[path]
                await old.close()
            reading = Reading(self.service, path, plan)
            await reading.start()
            self.readings[path] = reading

    async def _disconnect(self, path: str) -> None:
        async with self._lock:
            reading, producer = self.readings.pop(path, None), self._producers.pop(path, None)
            if reading is not None:
                await reading.close()
            if producer is not None:
                await producer.aclose()

    # -- producing

    async def publish(self, path: str, text: str, advert: str = "") -> None:
        """Raises `DeliveryError`, or `ValueError` if the name of the ad cannot be one."""
        async with self._lock:
            producer = self._producers.get(path)
            if producer is None:
                producer = self.service.produce(path, timeout_s=DESK_S)
                await producer.__aenter__()
                self._producers[path] = producer
        if advert:
            await producer.advertise(advert, text.encode())
        else:
            await producer.publish_text(text)

    # -- audiences

    async def audience(self, paths: tuple[str, ...]) -> dict[str, int]:
        """How many subscribers are connected to these topics, as meters know it. Topics that no meter knows are
        missing."""
        async with self._asking:
            now = asyncio.get_running_loop().time()
            self._asked_at = {path: at for path, at in self._asked_at.items() if now < at + AUDIENCE_AGE_S}
            if wanted := [path for path in paths if path not in self._asked_at]:
                found = await self.service.audience(*wanted)
                kept = {path: count for path, count in self.last_audience.items() if path in self._asked_at}
                self.last_audience = kept | found
                self._asked_at |= dict.fromkeys(wanted, now)
            return {path: self.last_audience[path] for path in paths if path in self.last_audience}

    async def close(self) -> None:
        for task in tuple(self._closing):
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        for path in {*self.readings, *self._producers}:
            await self._disconnect(path)
        await self.service.aclose()


def item_text(item: Item) -> str:
    """The text of an item, or its size if it is not text."""
    try:
        text = item.text
    except ValueError:
        return f"({len(item.data):,} bytes of binary data)"
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]} …"
