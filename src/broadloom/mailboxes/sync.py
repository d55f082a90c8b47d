"""`Mailboxes`, `Mailbox` and `Watch` for synchronous programs: same names, results and exceptions, without `await`.

    with broadloom.sync.connect("plant/hall-3", name="kiln") as channel, Mailboxes(channel) as boxes:
        temperature = boxes.bind("kiln/temperature")
        temperature.put(b"21.5")

Thread-safe. Callbacks run in Broadloom's own thread and must not block.
"""

import functools
import os

import broadloom.sync
from broadloom.mailboxes.classes import MailboxClass
from broadloom.mailboxes.limits import MailboxSettings
from broadloom.mailboxes.mailbox import Mailbox as AsyncMailbox
from broadloom.mailboxes.mailboxes import Mailboxes as AsyncMailboxes
from broadloom.mailboxes.runtime import MailboxStore
from broadloom.mailboxes.watch import Watch as AsyncWatch
from broadloom.sync.bridge import (
    Attribute,
    ClosableSyncWrapper,
    SyncWrapper,
    awaits,
    awaits_into,
    call,
    calls,
    iterates,
    subscribes,
)
from broadloom.wire import PeerId


class Mailbox(SyncWrapper[AsyncMailbox]):
    """The synchronous twin of `broadloom.mailboxes.Mailbox`."""

    name = Attribute[str]()
    mailbox_class = Attribute[MailboxClass]()
    is_bound = Attribute[bool](in_loop=True)
    revision = Attribute[int](in_loop=True)
    unread_count = Attribute[int]()
    put = awaits(AsyncMailbox.put)
    invalidate = awaits(AsyncMailbox.invalidate)
    get = calls(AsyncMailbox.get)
    on_letters = calls(AsyncMailbox.on_letters)
    receive = awaits(AsyncMailbox.receive)
    receive_nowait = calls(AsyncMailbox.receive_nowait)
    __iter__ = iterates(AsyncMailbox.__aiter__)
    send = awaits(AsyncMailbox.send)
    unbind = awaits(AsyncMailbox.unbind)


class Watch(ClosableSyncWrapper[AsyncWatch]):
    """The synchronous twin of `broadloom.mailboxes.Watch`."""

    pattern = Attribute[str]()
    owner = Attribute[str | None]()
    skipped_count = Attribute[int]()
    unread_count = Attribute[int]()
    receive = awaits(AsyncWatch.receive)
    receive_nowait = calls(AsyncWatch.receive_nowait)
    __iter__ = iterates(AsyncWatch.__aiter__)


class Mailboxes(ClosableSyncWrapper[AsyncMailboxes]):
    """The synchronous twin of `broadloom.mailboxes.Mailboxes`. Use it with `with`, or `close` it."""

    def __init__(
        self,
        channel: broadloom.sync.Channel,
        owner: str | None = None,
        *,
        store: MailboxStore | str | os.PathLike[str] | None = None,
        settings: MailboxSettings | None = None,
    ) -> None:
        self.channel = channel
        make = functools.partial(AsyncMailboxes, store=store, settings=settings)
        super().__init__(call(make, channel._wrapped, owner))

    owner = Attribute[str]()
    keepers = Attribute[tuple[PeerId, ...]](in_loop=True)
    rejected_count = Attribute[int]()
    on_event = subscribes(AsyncMailboxes.on_event)
    events = iterates(AsyncMailboxes.events)
    wait_until_synced = awaits(AsyncMailboxes.wait_until_synced)
    bind = awaits_into(Mailbox, AsyncMailboxes.bind)
    rebind = awaits_into(Mailbox, AsyncMailboxes.rebind)
    unbind = awaits(AsyncMailboxes.unbind)
    list_mailboxes = awaits(AsyncMailboxes.list_mailboxes)
    fetch = awaits(AsyncMailboxes.fetch)
    watch = awaits_into(Watch, AsyncMailboxes.watch)
    post = awaits(AsyncMailboxes.post)
    ring = awaits(AsyncMailboxes.ring)
