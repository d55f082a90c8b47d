"""`Mailboxes`: the public object, one program's mailboxes on a channel, and its view of those of others.

async with broadloom.connect("plant/hall-3", name="kiln") as channel, Mailboxes(channel) as boxes:
    temperature = await boxes.bind("kiln/temperature")
    await temperature.put(b"21.5")
    value = await boxes.fetch("kiln/temperature")
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, Any

from broadloom.channel.arguments import CALLBACK_ERRORS, check_callback, check_count, check_positive_timeout
from broadloom.channel.closable import AsyncClosable
from broadloom.channel.event_listeners import EventListeners
from broadloom.channel.outgoing import Way
from broadloom.errors import NotConnectedError, NotPermittedError, PeerGoneError
from broadloom.mailboxes.channel_runtime import ChannelMailboxRuntime
from broadloom.mailboxes.classes import CLASSES, MailboxClass, Operation, Receive, class_number, class_of
from broadloom.mailboxes.letterbox import Letterbox
from broadloom.mailboxes.limits import ROOM, MailboxSettings, check_name, check_page
from broadloom.mailboxes.mailbox import TIMEOUT_S, Mailbox
from broadloom.mailboxes.messages import LAYER, WireLetter
from broadloom.mailboxes.model import Ack, MailboxEvent, MailboxInfo, Posted, Synced, Undelivered, Value
from broadloom.mailboxes.post_office import PostOffice, value_of
from broadloom.mailboxes.runtime import MailboxStore
from broadloom.mailboxes.sqlite_store import SqliteMailboxStore
from broadloom.mailboxes.watch import Watch, Watches, check_after
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.channel import Channel
    from broadloom.channel.requester import HasPeerId

log = logging.getLogger("broadloom")

PRIORITY_MAX = 255
SYNC_TIMEOUT_S = 10.0
"""After this, a program goes on with the mailboxes that it knows."""

OnPosted = Callable[..., None]
"""Called with a `Posted`, or with a list of them for `Ack.BATCH`."""


class Mailboxes(AsyncClosable):
    """The mailboxes of `channel`. Use it with `async with`, or call `aclose()`.

    - `owner`: the name that our mailboxes have as owner. By default the name on the ticket, or the one given to
      `connect`. A program with neither is known by its peer id, and its values end with it.
    - `store`: an SQLite file (or a `MailboxStore`), which makes this program a keeper: it stores the values of all
      members, so that they outlive their owners.

    Not thread-safe: use it from one event loop.
    """

    def __init__(
        self,
        channel: "Channel",
        owner: str | None = None,
        *,
        store: MailboxStore | str | os.PathLike[str] | None = None,
        settings: MailboxSettings | None = None,
    ) -> None:
        self.channel = channel
        name, is_lasting = _owner(channel, owner)
        self._listeners: EventListeners[MailboxEvent] = EventListeners(channel.name)
        self._watches = Watches()
        self._bound: dict[str, Mailbox] = {}
        self._synced = asyncio.Event()
        self._is_closed = False
        opened = SqliteMailboxStore(store, channel.name) if isinstance(store, str | os.PathLike) else store
        try:
            self._runtime = ChannelMailboxRuntime(
                channel,
                is_keeper=opened is not None,
                on_change=self._watches.put,
                emit=self._emit,
                on_left=self._end_reading,
            )
            self._office = PostOffice(self._runtime, name, is_lasting=is_lasting, store=opened, settings=settings)
        except BaseException:
            if opened is not None:
                opened.close()
            raise
        self._runtime.attach(self._office)

    @property
    def owner(self) -> str:
        """The owner of the mailboxes that this program binds."""
        return self._office.owner

    @property
    def keepers(self) -> tuple[PeerId, ...]:
        """The members that store values, this program included if it has a store."""
        own = [self.channel.peer_id] if self._office.keeper_store is not None else []
        return tuple(sorted([*map(PeerId, self._runtime.keepers()), *own]))

    @property
    def rejected_count(self) -> int:
        """Records and messages of other members that were invalid, or not written by their owner."""
        return self._office.rejected_count

    async def wait_until_synced(self, timeout_s: float = SYNC_TIMEOUT_S) -> bool:
        """Wait until the mailboxes of the channel are known here. Returns False if that takes longer. All other methods
        do this first."""
        self.channel._check_loop()
        check_positive_timeout(timeout_s)
        if not self._synced.is_set():
            try:
                async with asyncio.timeout(timeout_s):
                    await self._synced.wait()
            except TimeoutError:
                return False
        self._check_open()
        return True

    # -- our own mailboxes

    async def bind(
        self,
        name: str,
        mailbox_class: MailboxClass | int | None = None,
        *,
        receive: Receive | str | None = None,
        keep: str = "latest",
        send: bool | None = None,
        fetch: bool | None = None,
        held: bool = False,
        copies: int = 1,
        while_here: bool = False,
        room: int = ROOM,
        sender_room: int | None = None,
        then: Callable[..., None] | None = None,
    ) -> Mailbox:
        """Bind a mailbox of this program. Its class is given by number, or by its attributes.

        - `keep`: `"latest"` for one value, `"queue"` for letters.
        - `receive`: how letters of others are notified: `"through"`, `"delayed"` or `"polled"`.
        - `send`: whether we put values into it, or post from it; by default if it does not receive.
        - `fetch`: whether others can read the value; by default they can.
        - `held`: whether keepers store it, `copies` of them at least.
        - `while_here`: the value is gone when this program is.
        - `room`: letters that wait, `sender_room` of one sender. `then`: called with letters, as `on_letters`.
        """
        found = _class(mailbox_class, keep, receive, send, fetch, held)
        if then is not None:
            found.check(Operation.WAIT, name)
            check_callback(then)
        check_count("copies", copies)
        check_count("room", room)
        if sender_room is not None:
            check_count("sender_room", sender_room)
        check_name(name)
        await self._wait_to_write()
        letterbox = Letterbox(room, sender_room)
        binding = self._office.own.bind(name, found, while_here=while_here, copies=copies, letterbox=letterbox)
        mailbox = self._bound[name] = Mailbox(self, binding)
        if then is not None:
            mailbox.on_letters(then)
        return mailbox

    async def rebind(
        self,
        name: str,
        mailbox_class: MailboxClass | int | None = None,
        *,
        receive: Receive | str | None = None,
        keep: str = "latest",
        send: bool | None = None,
        fetch: bool | None = None,
        held: bool = False,
        copies: int = 1,
        while_here: bool = False,
    ) -> Mailbox:
        """Change the class of a mailbox. A value stays if both classes have one, and letters if both have a queue."""
        found = _class(mailbox_class, keep, receive, send, fetch, held)
        check_count("copies", copies)
        await self._wait_to_write()
        self._office.own.rebind(name, found, while_here=while_here, copies=copies)
        if not found.allows(Operation.WAIT):
            self._bound[name]._then = None
            self._bound[name]._binding.letterbox.consumes = False
        return self._bound[name]

    async def unbind(self, name: str) -> None:
        """Remove a mailbox, with its value, for all members."""
        await self._wait_to_write()
        self._office.own.unbind(name)
        self._bound.pop(name)._end()

    # -- the mailboxes of others

    async def list_mailboxes(self) -> list[MailboxInfo]:
        """All mailboxes on the channel, sorted by name and owner."""
        await self.wait_until_synced()
        found = [
            MailboxInfo(
                record.name,
                record.owner,
                CLASSES[record.class_number],
                PeerId(record.writer),
                record.revision,
                record.is_valid,
                record.is_while_here,
            )
            for record in self._office.table.seen()
        ]
        return sorted(found, key=lambda each: (each.name, each.owner))

    async def fetch(
        self, name: str, *, of: str | None = None, fresh: bool = False, timeout_s: float = TIMEOUT_S
    ) -> Value:
        """The value of a mailbox, of the owner `of` if several have one with this name.

        It is read from this program's copy, also if the owner is gone. With `fresh`, its writer is asked: raises a
        `RequestError` if it does not answer. Raises `UnboundError`, `NotValidError`, `NotFetchableError` or
        `AmbiguousMailboxError`.
        """
        check_positive_timeout(timeout_s)
        await self.wait_until_synced()
        if not fresh:
            return self._office.fetch(name, of)
        done: asyncio.Future[Value | Exception] = asyncio.get_running_loop().create_future()

        def on_done(result: Value | Exception) -> None:
            if not done.done():
                done.set_result(result)

        self._office.fetch_fresh(name, of, timeout_s, on_done)
        result = await done
        if isinstance(result, Exception):
            raise result
        return result

    async def watch(self, pattern: str = "**", *, of: str | None = None, after: int | Mapping[str, int] = 0) -> Watch:
        """The fetchable values whose names match, as they are, and then every change. Patterns are those of topics.

        With `after`, a value that is present is left out unless its revision is higher; a mapping gives a revision per
        name.
        """
        check_after(after)
        await self.wait_until_synced()
        watch = Watch(pattern, of, after, self._watches.remove)
        present = [
            value_of(record)
            for record in self._office.table.seen()
            if record.is_valid and CLASSES[record.class_number].fetchable
        ]
        self._watches.add(watch, sorted(present, key=lambda each: (each.name, each.owner)))
        return watch

    async def post(
        self,
        to: "PeerId | HasPeerId | str",
        name: str,
        data: bytes,
        *,
        ack: Ack | str = Ack.ARRIVAL,
        then: OnPosted | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Post a letter to a mailbox of the member `to`: a peer id, a member, or the name of an owner.

        With `ack="arrival"` it returns when the letter is in the mailbox, and waits up to `timeout_s` while that is
        full. Otherwise it returns at once, and `then` is called when the letter was transmitted: with `"each"` for
        every letter, with `"batch"` once for those that went together, with `"none"` never.

        Raises `UnboundError`, `WrongClassError`, `MailboxFullError` or a `RequestError`.
        """
        await self._post(to, name, data, ack, then, timeout_s)

    async def ring(
        self, to: "PeerId | HasPeerId | str", name: str, *, priority: int = 0, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Call attention to a mailbox without data: a ring overtakes all letters that wait, and rings of a lower
        priority (0 to 255)."""
        check_count("priority", priority, least=0)
        if priority > PRIORITY_MAX:
            raise ValueError(f"priority={priority}: must be from 0 to {PRIORITY_MAX}")
        await self._post(to, name, b"", Ack.ARRIVAL, None, timeout_s, ring=priority)

    async def _post(
        self,
        to: "PeerId | HasPeerId | str",
        name: str,
        data: bytes,
        ack: Ack | str,
        then: OnPosted | None,
        timeout_s: float,
        *,
        reply_to: str = "",
        ring: int | None = None,
    ) -> None:
        wanted = _ack(ack, then)
        data = check_page(data)
        check_positive_timeout(timeout_s)
        data = check_page(await self.channel._filter_content(data, Way.LETTER, check_name(name), LAYER))
        await self.wait_until_synced()
        peer_id = self._resolve(to, name)
        letter = WireLetter(data, reply_to, ring or 0, ring is not None)
        done: asyncio.Future[None] | None = None
        if wanted is Ack.ARRIVAL:
            done = asyncio.get_running_loop().create_future()
        self._office.outbox.post(peer_id, name, letter, wanted, timeout_s, _on_posted(self, wanted, then, done))
        if done is not None:
            await done

    def _resolve(self, to: "PeerId | HasPeerId | str", name: str) -> PeerId:
        """The member to which a letter goes. Raises before it is sent if its mailbox does not take letters."""
        if isinstance(to, str):
            record = self._office.find(name, to)
            CLASSES[record.class_number].check(Operation.POST, name)
            if not self._runtime.is_member(record.writer):
                raise PeerGoneError(f"{to!r} is not on the channel", sent=False)
            return PeerId(record.writer)
        found = getattr(to, "peer_id", to)
        if isinstance(found, bool) or not isinstance(found, int):
            raise TypeError(f"to must be a peer id, a member or the name of an owner, not {type(to).__name__}")
        return PeerId(found)

    # -- events

    def on_event(self, callback: Callable[[MailboxEvent], None]) -> Callable[[], None]:
        """Call `callback` for every event. Returns a function that unsubscribes it."""
        check_callback(callback)
        return self._listeners.add(callback)

    def events(self) -> AsyncGenerator[MailboxEvent, None]:
        """Events as they happen, until this object is closed or the channel is left."""
        return self._listeners.events()

    def _emit(self, event: MailboxEvent) -> None:
        if isinstance(event, Synced):
            self._synced.set()
        self._listeners.emit(event)

    def _call(self, callback: Callable[..., None], argument: Any) -> None:
        try:
            callback(argument)
        except CALLBACK_ERRORS:
            log.exception("%s: a callback of a mailbox failed", self.channel.name)

    # -- closing

    async def _wait_to_write(self) -> None:
        await self.wait_until_synced()
        if not self._runtime.may_write:
            raise NotPermittedError("the ticket of this program has the role consumer: it cannot bind mailboxes")
        await self._runtime.wait_for_window()

    def _check_open(self) -> None:
        if self._is_closed:
            raise NotConnectedError("these mailboxes were closed, or the channel was left")

    async def aclose(self) -> None:
        """Stop. Values stay with the other members, except those that are bound to the presence of this program."""
        if self._is_closed:
            return
        self._end_reading()
        self._office.close()
        await self._runtime.close()

    def _end_reading(self) -> None:
        """Also called when the channel is left."""
        self._is_closed = True
        self._synced.set()
        self._office.own.unbind_all()
        for mailbox in self._bound.values():
            mailbox._end()
        self._watches.close()
        self._listeners.end()


def _owner(channel: "Channel", owner: str | None) -> tuple[str, bool]:
    """The name of the owner, and whether a later program can have the same."""
    signer = channel._post_signer
    if signer is not None:
        if owner not in (None, signer.name):
            raise ValueError(f"owner={owner!r}: on this channel it is the name on the ticket, {signer.name!r}")
        return signer.name, True
    if owner is not None:
        return owner, True
    me = channel.member(channel.peer_id)
    return (me.name, True) if me is not None and me.name else (f"{channel.peer_id:016x}", False)


def _class(
    given: MailboxClass | int | None,
    keep: str,
    receive: Receive | str | None,
    send: bool | None,
    fetch: bool | None,
    held: bool,
) -> MailboxClass:
    if given is not None:
        return class_number(given.number if isinstance(given, MailboxClass) else given)
    if keep not in ("latest", "queue"):
        raise ValueError(f"keep={keep!r}: must be latest or queue")
    send = receive is None if send is None else send
    fetch = keep == "latest" and send if fetch is None else fetch
    return class_of(persistent=keep == "latest", receive=receive, send=send, fetchable=fetch, held=held)


def _ack(ack: Ack | str, then: OnPosted | None) -> Ack:
    if ack not in list(Ack):
        raise ValueError(f"ack={ack!r}: must be one of {', '.join(Ack)}")
    wanted = Ack(ack)
    if (then is not None) != (wanted in (Ack.EACH, Ack.BATCH)):
        raise ValueError("`then` is called with ack='each' and ack='batch', and only with them")
    if then is not None:
        check_callback(then)
    return wanted


def _on_posted(
    mailboxes: Mailboxes, ack: Ack, then: OnPosted | None, done: "asyncio.Future[None] | None"
) -> Callable[[list[Posted]], None]:
    """What the outbox calls when letters were transmitted."""

    def finish(posted: list[Posted]) -> None:
        error = posted[0].error
        if done is not None:
            if not done.done():
                done.set_exception(error) if error is not None else done.set_result(None)
        elif then is not None:
            mailboxes._call(then, posted if ack is Ack.BATCH else posted[0])
        elif error is not None:
            mailboxes._listeners.emit(Undelivered(posted[0]))

    return finish
