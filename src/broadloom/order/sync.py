"""`Order` for synchronous programs: same names, results and exceptions, without `await`.

    with broadloom.sync.connect("games/table-7") as channel, ordered(channel, "moves", mode="available") as order:
        order.submit(b"e4")
        for entry in order:
            print(entry)

Thread-safe. Callbacks run in Broadloom's own thread and must not block.
"""

import functools
import os
from collections.abc import Sequence

import broadloom.sync
from broadloom.order.model import Epoch, Mode
from broadloom.order.order import Order as AsyncOrder
from broadloom.order.order import ordered as async_ordered
from broadloom.order.settings import OrderSettings
from broadloom.sync.bridge import Attribute, ClosableSyncWrapper, awaits, call, iterates, polls, subscribes
from broadloom.wire import PeerId


class Order(ClosableSyncWrapper[AsyncOrder]):
    """The synchronous counterpart of `broadloom.order.Order`. Use it with `with`, or `close` it."""

    name = Attribute[str]()
    mode = Attribute[Mode]()
    epoch = Attribute[Epoch | None](in_loop=True)
    is_sequencer = Attribute[bool](in_loop=True)
    last_index = Attribute[int](in_loop=True)
    participants = Attribute[tuple[PeerId, ...]](in_loop=True)
    unread_count = Attribute[int]()
    submit = awaits(AsyncOrder.submit)
    receive = awaits(AsyncOrder.receive)
    receive_nowait = polls(AsyncOrder.receive_nowait)
    history = awaits(AsyncOrder.history)
    __iter__ = iterates(AsyncOrder.__aiter__)
    on_event = subscribes(AsyncOrder.on_event)
    events = iterates(AsyncOrder.events)


def ordered(
    channel: broadloom.sync.Channel,
    name: str,
    *,
    mode: Mode | str,
    voters: Sequence[str] = (),
    store: str | os.PathLike[str] | None = None,
    from_index: int | None = None,
    settings: OrderSettings | None = None,
) -> Order:
    """As `broadloom.ordered`, with the same parameters."""
    make = functools.partial(
        async_ordered, mode=mode, voters=voters, store=store, from_index=from_index, settings=settings
    )
    return Order(call(make, channel._wrapped, name))
