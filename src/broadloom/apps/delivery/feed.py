"""`Feed`: the items of any number of topics, on any number of channels, in one place."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from broadloom.apps.delivery.directory import Topic
from broadloom.apps.delivery.entry import Entry
from broadloom.apps.delivery.errors import DeliveryError, DeniedError, NoDeskError, NoTopicError
from broadloom.apps.delivery.identification import Identifier
from broadloom.apps.delivery.intake import Intake
from broadloom.apps.delivery.item import Item, ItemQueue
from broadloom.apps.delivery.membership import FINAL, Membership, MembershipState
from broadloom.apps.delivery.messages import Action
from broadloom.apps.delivery.producer import ADVERT_HEADER
from broadloom.channel import Channel
from broadloom.channel.closable import AsyncClosable, close_all
from broadloom.channel.item_reader import ItemReader
from broadloom.channel.subscription import Subscription
from broadloom.errors import BroadloomError
from broadloom.protocol.events import Message
from broadloom.protocol.owner.card import SecurityLevel

if TYPE_CHECKING:
    from broadloom.apps.delivery.service import Service

RETRY_S = 1.0
"""Pause before new topics are joined again, if no desk has answered."""
DRAIN_S = 1.0
"""Time to hand on what has arrived when leaving a channel."""


class Feed(ItemReader[Item], AsyncClosable):
    """Use it with `async with`, then iterate over it, or call `receive`."""

    _end_error = DeliveryError

    def __init__(self, service: "Service", patterns: tuple[str, ...], plan: str, timeout_s: float | None) -> None:
        if not patterns:
            raise ValueError("subscribe to at least one topic, category or pattern")
        super().__init__()
        self.patterns = patterns
        self._service = service
        self._plan = plan
        self._timeout_s = timeout_s
        self._items = ItemQueue(self._wakeup)
        self._memberships: dict[str, Membership] = {}
        """By the path of the entry."""
        self._intakes: dict[str, Intake] = {}
        self._is_closed = False
        self._remove_listener: Callable[[], None] | None = None
        self._follower: asyncio.Task[None] | None = None
        self._directory_changed = asyncio.Event()

    @property
    def topics(self) -> dict[str, str]:
        """The state of each topic: `connected`, or what it waits for, or why it is refused."""
        return {
            topic: str(each) for path, each in sorted(self._memberships.items()) for topic in self._intakes[path].topics
        }

    @property
    def rejected_count(self) -> int:
        """Messages of members that are not producers of their topic."""
        return sum(each.rejected_count for each in self._intakes.values())

    def member_names(self) -> frozenset[str]:
        """The names on the tickets of all members of its channels now: subscribers, producers and meters."""
        connections = [each.connection for each in self._memberships.values() if each.connection is not None]
        members = [member for each in connections for member in each.channel.members()]
        return frozenset(member.name for member in members if member.is_proven)

    async def __aenter__(self) -> Self:
        for pattern in self.patterns:
            if not self._service.topics(pattern):
                raise NoTopicError(f"{self._service.name} has no topic {pattern}; `broadloom topics list` shows all")
        self._service._open[self] = None
        try:
            await self._join_new()
            self._remove_listener = self._service.directory.on_change(self._directory_changed.set)
            self._follower = asyncio.get_running_loop().create_task(self._follow())
            await self._settle()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def _settle(self) -> None:
        memberships = list(self._memberships.values())
        try:
            async with asyncio.timeout(self._timeout_s):
                await asyncio.gather(*(each.settled() for each in memberships))
        except TimeoutError:
            waiting = next(each for each in memberships if each.state is MembershipState.WAITING)
            raise NoDeskError(f"{waiting.entry.path}: {waiting.reason}") from None
        if all(each.state in FINAL for each in memberships):
            raise DeniedError(memberships[0].reason)

    async def _join_new(self) -> None:
        """Join the channels of topics that match and are not joined yet, with one question to a desk."""
        wanted: dict[str, list[str]] = {}
        entries: dict[str, Entry] = {}
        for pattern in self.patterns:
            for topic in self._service.topics(pattern):
                if topic.entry.path not in self._memberships:
                    _add(wanted, entries, topic)
        if not wanted:
            return
        grants = await self._service._grants(Action.SUBSCRIBE, list(wanted), self._plan, self._timeout_s)
        for grant in grants:
            entry = entries[grant.path]
            intake = self._intakes[grant.path] = Intake(entry, wanted[grant.path])
            membership = self._membership(entry, intake)
            self._memberships[grant.path] = membership
            membership.begin(grant)

    def _membership(self, entry: Entry, intake: Intake) -> Membership:
        return Membership(
            self._service,
            entry,
            Action.SUBSCRIBE,
            lambda channel: FeedConnection(channel, intake, self._items, self._plan),
            plan=self._plan,
            on_replaced=intake.begin_handover,
            on_change=self._wakeup.set,
        )

    async def _follow(self) -> None:
        """Topics that are created later belong to the feed as well."""
        while True:
            await self._directory_changed.wait()
            self._directory_changed.clear()
            try:
                await self._join_new()
            except BroadloomError:
                await asyncio.sleep(RETRY_S)
                self._directory_changed.set()

    def _take(self) -> Item | None:
        return self._items.pop()

    def _check_open(self) -> None:
        """No topic will ever have an item if all have refused or lost this subscriber."""
        if self._is_closed:
            raise DeliveryError("the feed was closed")
        if self._memberships and all(each.state in FINAL for each in self._memberships.values()):
            raise DeliveryError("; ".join(f"{path}: {state}" for path, state in self.topics.items()))

    def _awaited(self) -> str:
        return f"item of {', '.join(self.patterns)}"

    async def aclose(self) -> None:
        """Leave all channels. The subscriptions stay: `Service.unsubscribe` ends them."""
        if self._is_closed:
            return
        self._is_closed = True
        self._wakeup.set()
        if self._remove_listener is not None:
            self._remove_listener()
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)
        self._service._open.pop(self, None)
        await close_all(*(each.end() for each in self._memberships.values()))


class FeedConnection:
    """One connection to the channel of an entry."""

    def __init__(self, channel: Channel, intake: Intake, items: ItemQueue, plan: str) -> None:
        self.channel = channel
        self._intake = intake
        self._items = items
        self._subscriptions = [channel.subscribe(topic) for topic in intake.topics]
        self._readers: list[asyncio.Task[None]] = []
        self._identifier: Identifier | None = None
        self._identifying: asyncio.Task[None] | None = None
        offer = intake.entry.offer
        if offer.level is SecurityLevel.TICKETS:
            self._identifier = Identifier(channel, intake.topics, plan, offer.identify_s)
            self._identifying = asyncio.get_running_loop().create_task(self._identifier.run())

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._readers = [loop.create_task(self._read(each)) for each in self._subscriptions]

    async def _read(self, subscription: Subscription) -> None:
        async for message in subscription:
            item = self._item(message)
            if item is not None:
                await self._items.put(item)

    def _item(self, message: Message) -> Item | None:
        identity = self.channel.identity(message.author)
        producer = self._intake.producer(message.topic, message.author, message.sequence, identity)
        if producer is None or message.topic is None:
            return None
        advert = message.headers.get(ADVERT_HEADER)
        return Item(message.topic, producer, message.data, message.sent_at_ms, advert, message.content_type)

    async def stop(self) -> None:
        """Leave, and hand on what has arrived."""
        if self._identifying is not None and self._identifier is not None:
            self._identifying.cancel()
            await asyncio.gather(self._identifying, return_exceptions=True)
            await self._identifier.end()
        await self.channel.leave()
        if self._readers:
            # A reader that waits for room in the feed is not waited for: nobody reads it any more.
            await asyncio.wait(self._readers, timeout=DRAIN_S)
            for each in self._readers:
                each.cancel()
            await asyncio.gather(*self._readers, return_exceptions=True)


def _add(wanted: dict[str, list[str]], entries: dict[str, Entry], topic: Topic) -> None:
    topics = wanted.setdefault(topic.entry.path, [])
    entries[topic.entry.path] = topic.entry
    if topic.path not in topics:
        topics.append(topic.path)
