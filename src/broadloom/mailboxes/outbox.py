"""`Outbox`: letters on their way to mailboxes of other members, or to one of this program itself.

There is one FIFO queue per destination, so letters arrive in order, and a mailbox that is full holds up no other. One
block is under way at a time, and what is posted meanwhile forms the next. A full mailbox is tried again until the
letter's time is over: it is the sender that waits. A ring has no data and overtakes all letters that wait.
"""

import bisect
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from broadloom.errors import NotConnectedError, RefusedError
from broadloom.mailboxes.errors import MailboxError, MailboxFullError, UnboundError, WrongClassError
from broadloom.mailboxes.limits import BLOCK_BYTES, BLOCK_LETTERS_MAX, OUTBOX_BYTES_MAX, OUTBOX_LETTERS_MAX
from broadloom.mailboxes.messages import Deliver, Delivered, DeliverStatus, WireLetter, decode, encode
from broadloom.mailboxes.model import Ack, Posted
from broadloom.wire.xdr import WireError

if TYPE_CHECKING:
    from broadloom.mailboxes.messages import MailboxWireMessage
    from broadloom.mailboxes.runtime import Answer, MailboxRuntime
    from broadloom.wire import PeerId

FULL_RETRY_S = 0.05
FULL_RETRY_MAX_S = 1.0
"""Pause before a full mailbox is tried again: the first one, which doubles up to the longest."""
LAST_ANSWER_S = 1.0
"""Time for the answer to the last attempt at a full mailbox: without it nobody knows whether the letter arrived."""

Then = Callable[[list[Posted]], None]
"""Called with the letters that were transmitted, or could not be."""


class OutgoingLetter:
    """One letter in a queue."""

    __slots__ = ("ack", "deadline_at", "letter", "then")

    def __init__(self, letter: WireLetter, ack: Ack, deadline_at: float, then: Then) -> None:
        self.letter = letter
        self.ack = ack
        self.deadline_at = deadline_at
        self.then = then


class _Queue:
    """The letters to one mailbox."""

    def __init__(self) -> None:
        self.rings: list[OutgoingLetter] = []
        """By priority, the highest first; in order if it is the same."""
        self.letters: deque[OutgoingLetter] = deque()
        self.data_bytes = 0
        self.is_sending = False
        """A block is under way, or will be sent at the end of this turn, or the mailbox was full a moment ago."""
        self.retry_s = 0.0

    def __len__(self) -> int:
        return len(self.rings) + len(self.letters)


class Outbox:
    def __init__(self, runtime: "MailboxRuntime", deliver_here: "Callable[[PeerId, Deliver], Delivered]") -> None:
        self._runtime = runtime
        self._deliver_here = deliver_here
        self._queues: dict[tuple[PeerId, str], _Queue] = {}

    def post(self, peer_id: "PeerId", name: str, letter: WireLetter, ack: Ack, timeout_s: float, then: Then) -> None:
        """Queue a letter. Raises `MailboxFullError`. `then` is called when it was transmitted, with others if they have
        the same `then` and ask for it (`Ack.BATCH`)."""
        destination = peer_id, name
        queue = self._queues.get(destination)
        if queue is None:
            queue = self._queues[destination] = _Queue()
        if len(queue) >= OUTBOX_LETTERS_MAX or queue.data_bytes + len(letter.data) > OUTBOX_BYTES_MAX:
            raise MailboxFullError(
                f"{len(queue):,} letters with {queue.data_bytes:,} bytes wait for mailbox {name!r} of {peer_id:016x}: "
                "wait for them before you post more, as with ack='arrival'"
            )
        outgoing = OutgoingLetter(letter, ack, self._runtime.now() + timeout_s, then)
        if letter.is_ring:
            bisect.insort_right(queue.rings, outgoing, key=lambda each: -each.letter.priority)
        else:
            queue.letters.append(outgoing)
            queue.data_bytes += len(letter.data)
        if not queue.is_sending:
            queue.is_sending = True
            self._runtime.call_later(0.0, self._send, destination)

    def waiting(self, peer_id: "PeerId", name: str) -> int:
        """Letters that wait for this mailbox, without the block that is under way."""
        queue = self._queues.get((peer_id, name))
        return len(queue) if queue is not None else 0

    def _send(self, destination: "tuple[PeerId, str]") -> None:
        queue = self._queues[destination]
        now = self._runtime.now()
        self._drop_late(destination, queue, now)
        block: list[OutgoingLetter] = []
        size = 0
        while len(queue) and len(block) < BLOCK_LETTERS_MAX and size < BLOCK_BYTES:
            outgoing = queue.rings.pop(0) if queue.rings else queue.letters.popleft()
            queue.data_bytes -= len(outgoing.letter.data)
            size += len(outgoing.letter.data)
            block.append(outgoing)
        if not block:
            del self._queues[destination]
            return
        timeout_s = max(LAST_ANSWER_S if queue.retry_s else 0.001, max(each.deadline_at for each in block) - now)
        message = Deliver(destination[1], tuple(each.letter for each in block))
        if destination[0] == self._runtime.peer_id:
            self._on_delivered(destination, block, self._deliver_here(destination[0], message))
            return
        self._runtime.request(
            destination[0], encode(message), timeout_s, lambda answer: self._on_answer(destination, block, answer)
        )

    def _drop_late(self, destination: "tuple[PeerId, str]", queue: _Queue, now: float) -> None:
        if not queue.retry_s:  # only a full mailbox keeps letters waiting
            return
        late = [each for each in (*queue.rings, *queue.letters) if each.deadline_at <= now]
        if late:
            queue.rings = [each for each in queue.rings if each.deadline_at > now]
            queue.letters = deque(each for each in queue.letters if each.deadline_at > now)
            queue.data_bytes = sum(len(each.letter.data) for each in queue.letters)
            text = f"mailbox {destination[1]!r} of {destination[0]:016x} was full until the timeout: post later"
            self._finish(destination, late, MailboxFullError(text))

    def _on_answer(self, destination: "tuple[PeerId, str]", block: list[OutgoingLetter], answer: "Answer") -> None:
        error, reply = answer.error, None
        if error is None:
            try:
                reply = decode(answer.data)
            except WireError as problem:
                error = RefusedError(f"{destination[0]:016x} sent an invalid reply: {problem}", "failed")
        self._on_delivered(destination, block, reply, error)

    def _on_delivered(
        self,
        destination: "tuple[PeerId, str]",
        block: list[OutgoingLetter],
        reply: "MailboxWireMessage | None",
        error: Exception | None = None,
    ) -> None:
        queue = self._queues[destination]
        count, last_retry_s = 0, queue.retry_s
        queue.retry_s = 0.0
        if isinstance(reply, Delivered):
            count = min(reply.count, len(block))
            if reply.status is DeliverStatus.FULL:
                retry_s = FULL_RETRY_S if count else 2 * last_retry_s
                queue.retry_s = min(FULL_RETRY_MAX_S, retry_s or FULL_RETRY_S)
                self._retry_later(destination, queue, block[count:])
                self._finish(destination, block[:count], None)
                return
            error = _error(reply) if count < len(block) else None
        self._finish(destination, block[:count], None)
        self._finish(destination, block[count:], error)
        self._send(destination)

    def _retry_later(self, destination: "tuple[PeerId, str]", queue: _Queue, rest: list[OutgoingLetter]) -> None:
        for outgoing in reversed(rest):
            if outgoing.letter.is_ring:
                queue.rings.insert(0, outgoing)
            else:
                queue.letters.appendleft(outgoing)
                queue.data_bytes += len(outgoing.letter.data)
        self._runtime.call_later(queue.retry_s, self._send, destination)

    def _finish(self, destination: "tuple[PeerId, str]", block: list[OutgoingLetter], error: Exception | None) -> None:
        """Notify the senders: one call per letter, or one for all letters of a block with `Ack.BATCH`."""
        batches: dict[int, tuple[Then, list[Posted]]] = {}
        for outgoing in block:
            posted = Posted(*destination, outgoing.letter.data, error)
            if outgoing.ack is Ack.BATCH:
                batches.setdefault(id(outgoing.then), (outgoing.then, []))[1].append(posted)
            else:
                outgoing.then([posted])
        for then, batch in batches.values():
            then(batch)

    def close(self) -> None:
        for destination, queue in self._queues.items():
            error = NotConnectedError("the mailboxes were closed before the letter was transmitted")
            self._finish(destination, [*queue.rings, *queue.letters], error)
            queue.rings.clear()
            queue.letters.clear()


def _error(reply: Delivered) -> MailboxError:
    match reply.status:
        case DeliverStatus.UNBOUND:
            return UnboundError(reply.text)
        case DeliverStatus.WRONG_CLASS:
            return WrongClassError(reply.text)
        case _:
            return MailboxError(f"not delivered: {reply.text}")
