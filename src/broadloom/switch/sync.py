"""`Switch` for synchronous programs: same names, results and exceptions, without `await`.

    with broadloom.sync.connect("office/hq") as channel, Switch(channel, session="anna") as switch:
        print(switch.request("create_object", b"box").text)

Thread-safe. Handlers and callbacks are plain functions. They run in Broadloom's own thread and must not block.
"""

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import broadloom.sync
from broadloom.switch.observer import Observer as AsyncObserver
from broadloom.switch.program_types import ProgramType
from broadloom.switch.queue_store import QueueStore
from broadloom.switch.switch import Switch as AsyncSwitch
from broadloom.sync.bridge import Attribute, ClosableSyncWrapper, awaits, call, calls, calls_into, iterates, polls

F = TypeVar("F", bound=Callable[..., Any])


def _in_loop(register: Callable[[Any], Any]) -> Callable[[F], F]:
    """A decorator that registers in the background thread."""

    def decorate(function: F) -> F:
        call(register, function)
        return function

    return decorate


class Observer(ClosableSyncWrapper[AsyncObserver]):
    """The synchronous counterpart of `broadloom.switch.Observer`."""

    unread_count = Attribute[int]()
    dropped_count = Attribute[int]()
    receive = awaits(AsyncObserver.receive)
    receive_nowait = polls(AsyncObserver.receive_nowait)
    __iter__ = iterates(AsyncObserver.__aiter__)


class Switch(ClosableSyncWrapper[AsyncSwitch]):
    """The synchronous counterpart of `broadloom.switch.Switch`, with the same options. Use it with `with`, or `close`
    it."""

    def __init__(
        self,
        channel: broadloom.sync.Channel,
        *,
        session: str | None = None,
        program: str | None = None,
        programs: Mapping[str, ProgramType] | str | os.PathLike[str] | None = None,
        store: QueueStore | str | os.PathLike[str] | None = None,
    ) -> None:
        self.channel = channel
        make = functools.partial(AsyncSwitch, session=session, program=program, programs=programs, store=store)
        super().__init__(call(make, channel._wrapped))

    session = Attribute[str]()
    program = Attribute[str]()
    is_complete = Attribute[bool](in_loop=True)
    handle = calls_into(_in_loop, AsyncSwitch.handle)
    unregister = calls(AsyncSwitch.unregister)
    observe = calls_into(Observer, AsyncSwitch.observe)
    add_file = calls(AsyncSwitch.add_file)
    remove_file = calls(AsyncSwitch.remove_file)
    request = awaits(AsyncSwitch.request)
    notify = awaits(AsyncSwitch.notify)
    request_all = iterates(AsyncSwitch.request_all)
    follow = iterates(AsyncSwitch.follow)
    registrations = calls(AsyncSwitch.registrations)
    joins = calls(AsyncSwitch.joins)
    has_handler = calls(AsyncSwitch.has_handler)
    wait_until_complete = awaits(AsyncSwitch.wait_until_complete)
    wait_for_handler = awaits(AsyncSwitch.wait_for_handler)
    queue = calls(AsyncSwitch.queue)
    queues = awaits(AsyncSwitch.queues)
    drop_queue = calls(AsyncSwitch.drop_queue)
    status = calls(AsyncSwitch.status)
