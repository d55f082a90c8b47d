"""`Service`, `Feed` and `Producer` for synchronous programs: same names, results and exceptions, without `await`.

    with delivery.sync.join("delivery/news", "ann.ticket") as service:
        with service.subscribe("sports", plan="visitor") as feed:
            for item in feed:
                print(item.topic, item.text)

Thread-safe. Callbacks run in Broadloom's own thread and must not block.
"""

import os
from typing import Any, Self, TypeVar

from broadloom.apps.delivery.directory import Directory
from broadloom.apps.delivery.feed import Feed as AsyncFeed
from broadloom.apps.delivery.producer import Producer as AsyncProducer
from broadloom.apps.delivery.service import Service as AsyncService
from broadloom.channel.closable import AsyncClosable
from broadloom.security import Ticket
from broadloom.sync.bridge import Attribute, ClosableSyncWrapper, awaits, call, calls, calls_into, iterates, run

C = TypeVar("C", bound=AsyncClosable)


class _EnteredSyncWrapper(ClosableSyncWrapper[C]):
    """A twin whose counterpart connects when its `async with` begins."""

    def __enter__(self) -> Self:
        run(self._wrapped.__aenter__())
        return self


class Feed(_EnteredSyncWrapper[AsyncFeed]):
    """The synchronous twin of `delivery.Feed`."""

    patterns = Attribute[tuple[str, ...]]()
    topics = Attribute[dict[str, str]](in_loop=True)
    rejected_count = Attribute[int](in_loop=True)
    member_names = calls(AsyncFeed.member_names)
    receive = awaits(AsyncFeed.receive)
    receive_nowait = calls(AsyncFeed.receive_nowait)
    __iter__ = iterates(AsyncFeed.__aiter__)


class Producer(_EnteredSyncWrapper[AsyncProducer]):
    """The synchronous twin of `delivery.Producer`."""

    path = Attribute[str]()
    state = Attribute[str](in_loop=True)
    wait_for_subscribers = awaits(AsyncProducer.wait_for_subscribers)
    wait_briefly_for_subscribers = awaits(AsyncProducer.wait_briefly_for_subscribers)
    publish = awaits(AsyncProducer.publish)
    publish_text = awaits(AsyncProducer.publish_text)
    advertise = awaits(AsyncProducer.advertise)


class Service(_EnteredSyncWrapper[AsyncService]):
    """The synchronous twin of `delivery.Service`. Use it with `with`."""

    name = Attribute[str]()
    subscriber = Attribute[str]()
    directory = Attribute[Directory]()
    leave = awaits(AsyncService.leave)
    topics = calls(AsyncService.topics)
    search = calls(AsyncService.search)
    desks = calls(AsyncService.desks)
    wait_for = awaits(AsyncService.wait_for)
    subscribe = calls_into(Feed, AsyncService.subscribe)
    produce = calls_into(Producer, AsyncService.produce)
    create = awaits(AsyncService.create)
    close_topic = awaits(AsyncService.close_topic)
    withdraw = awaits(AsyncService.withdraw)
    reinstate = awaits(AsyncService.reinstate)
    unsubscribe = awaits(AsyncService.unsubscribe)
    account = awaits(AsyncService.account)
    subscribers = awaits(AsyncService.subscribers)
    prices = awaits(AsyncService.prices)
    audience = awaits(AsyncService.audience)


def join(name: str, ticket: str | os.PathLike[str] | Ticket, **options: Any) -> Service:
    """Use a delivery service: `with delivery.sync.join("delivery/news", "ann.ticket") as service`."""
    return Service(call(AsyncService, name, ticket, **options))
