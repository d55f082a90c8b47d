"""`Mailbox`: one mailbox of this program, as returned by `Mailboxes.bind`."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broadloom.channel.arguments import check_callback, check_positive_timeout
from broadloom.channel.item_reader import ItemReader
from broadloom.channel.outgoing import Way
from broadloom.mailboxes.classes import MailboxClass, Operation, Receive
from broadloom.mailboxes.errors import NotValidError, UnboundError
from broadloom.mailboxes.limits import TTL_S_MAX, check_page
from broadloom.mailboxes.messages import LAYER
from broadloom.mailboxes.model import Ack, Letter, Value
from broadloom.mailboxes.own_mailboxes import Binding, PutResult

if TYPE_CHECKING:
    from broadloom.channel.requester import HasPeerId
    from broadloom.mailboxes.mailboxes import Mailboxes, OnPosted
    from broadloom.wire import PeerId

TIMEOUT_S = 5.0


class Mailbox(ItemReader[Letter]):
    """What it can do depends on its class: other operations raise `WrongClassError`."""

    _end_error = UnboundError

    def __init__(self, mailboxes: "Mailboxes", binding: Binding) -> None:
        super().__init__()
        self._mailboxes = mailboxes
        self._binding = binding
        self._then: Callable[..., None] | None = None
        self._is_calling_back = False
        """`on_letters` passes on the unread letters."""
        self._put_lock = asyncio.Lock()
        """A value that waits for keepers must not overtake a later one."""
        self.name = binding.name
        binding.letterbox.notify = self._on_letters

    def __repr__(self) -> str:
        return f"Mailbox({self.name!r}, {self.mailbox_class})"

    @property
    def mailbox_class(self) -> MailboxClass:
        return self._binding.mailbox_class

    @property
    def is_bound(self) -> bool:
        return self._mailboxes._office.own.get(self.name) is self._binding

    @property
    def revision(self) -> int:
        """Of the value that all members know; 0 before the mailbox is known."""
        record = self._mailboxes._office.table.get(self._mailboxes.owner, self.name)
        return record.revision if record is not None else 0

    # -- values

    async def put(
        self,
        data: bytes,
        *,
        if_revision: int | None = None,
        ttl_s: float | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> int:
        """Replace the value and return its revision. With `if_revision`, only if that is the current revision: else
        `RevisionMismatchError`. With `ttl_s`, the value is gone after that time.

        If the mailbox is held, it returns when `copies` keepers have the value on disk: else `NotKeptError`.
        """
        self._check(Operation.PUT)
        data = check_page(data)
        check_positive_timeout(timeout_s)
        if ttl_s is not None:
            check_positive_timeout(ttl_s, "ttl_s")
            if ttl_s > TTL_S_MAX:
                raise ValueError(f"ttl_s={ttl_s}: must be at most {TTL_S_MAX:g}; None means no expiry")
        data = check_page(await self._mailboxes.channel._filter_content(data, Way.VALUE, self.name, LAYER))
        await self._mailboxes._wait_to_write()
        async with self._put_lock:
            self._check(Operation.PUT)
            done: asyncio.Future[PutResult] = asyncio.get_running_loop().create_future()

            def on_done(result: PutResult) -> None:
                if not done.done():
                    done.set_result(result)

            own = self._mailboxes._office.own
            own.put(self.name, data, on_done, if_revision=if_revision, ttl_s=ttl_s, timeout_s=timeout_s)
            result = await done
        if isinstance(result, Exception):
            raise result
        return result

    async def invalidate(self) -> int:
        """Remove the value, and return the revision without it. The mailbox stays bound."""
        self._check(Operation.PUT)
        await self._mailboxes._wait_to_write()
        return self._mailboxes._office.own.invalidate(self.name)

    def get(self) -> Value | Letter:
        """The current value: what was put last, or the last letter. Raises `NotValidError` if there is none."""
        self._check(Operation.GET)
        if self.mailbox_class.receive is None:
            return self._mailboxes._office.fetch(self.name, self._mailboxes.owner)
        letter = self._binding.letterbox.latest
        if letter is None:
            raise NotValidError(f"mailbox {self.name!r} has no value yet")
        return letter

    # -- letters

    @property
    def unread_count(self) -> int:
        return len(self._binding.letterbox)

    def on_letters(self, then: Callable[..., None] | None) -> None:
        """Call `then` with each letter, or with the list of those that arrived together, as the class says, beginning
        with the unread ones.

        There is one callback: a new one replaces it, and None removes it.
        """
        self._check(Operation.WAIT)
        if then is not None:
            check_callback(then)
        self._then = then
        letterbox = self._binding.letterbox
        letterbox.consumes = then is not None
        if self._is_calling_back:
            return  # the call below goes on with this callback
        self._is_calling_back = True
        try:
            while self._then is not None and (letters := letterbox.take_many(1 if self._is_through else None)):
                self._call(letters)
        finally:
            self._is_calling_back = False

    def _on_letters(self, letters: Sequence[Letter]) -> None:
        self._wakeup.set()
        self._call(letters)

    @property
    def _is_through(self) -> bool:
        return self.mailbox_class.receive is Receive.THROUGH

    def _call(self, letters: Sequence[Letter]) -> None:
        if self._then is not None:
            self._mailboxes._call(self._then, letters[0] if self._is_through else list(letters))

    def receive_nowait(self) -> Letter | None:
        """The next letter, or None if there is none right now."""
        self._check(Operation.POLL)
        return self._binding.letterbox.take()

    async def receive(self, timeout_s: float | None = None) -> Letter:
        """The next letter. Raises `TimeoutError`, or `UnboundError` once the mailbox is unbound or closed."""
        self._check_open()
        return await super().receive(timeout_s)

    def _take(self) -> Letter | None:
        return self._binding.letterbox.take()

    def _check_open(self) -> None:
        self._check(Operation.WAIT)

    def _awaited(self) -> str:
        return f"letter in mailbox {self.name!r}"

    async def send(
        self,
        to: "PeerId | HasPeerId | str",
        name: str,
        data: bytes,
        *,
        ack: Ack | str = Ack.ARRIVAL,
        then: "OnPosted | None" = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """As `Mailboxes.post`, from this mailbox: the receiver can answer to it (`letter.reply_to`)."""
        self._check(Operation.SEND)
        await self._mailboxes._post(to, name, data, ack, then, timeout_s, reply_to=self.name)

    # -- binding

    async def unbind(self) -> None:
        await self._mailboxes.unbind(self.name)

    def _check(self, operation: Operation) -> None:
        self._mailboxes.channel._check_loop()
        if not self.is_bound:
            raise UnboundError(f"mailbox {self.name!r} is no longer bound: bind it again")
        self.mailbox_class.check(operation, self.name)

    def _end(self) -> None:
        self._wakeup.set()
