"""Calls: short lines that carry one question and its answer, and may be turned into links.

A caller says Hello and its question in one breath; the other side says Hello and its answer. Every call has a
deadline, and whatever is wrong with a call ends only that call.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.fabric.link import Link
from weft.wire import Address, Contact, WireError, decode, encode
from weft.wire.calls import MAGIC, VERSION, Hello, Refusal, Refuse
from weft.wire.codec import Message

if TYPE_CHECKING:
    from weft.fabric.peer import Peer
    from weft.fabric.world import Line, Timer

NO_USE = (
    Refusal.NOT_WEFT,
    Refusal.WRONG_VERSION,
    Refusal.WRONG_CHANNEL,
    Refusal.BAD_MESSAGE,
    Refusal.WRONG_KEY,
    Refusal.EXPIRED,
    Refusal.REVOKED,
    Refusal.IMPOSTOR,
    Refusal.WRONG_MODE,
    Refusal.WRONG_SIGNING,
)
"""Refusals after which it is of no use to call again with what we have."""

NOT_ADMITTED = (Refusal.WRONG_KEY, Refusal.EXPIRED, Refusal.REVOKED)

OnAnswer = Callable[["Call", Message], None]
OnFailure = Callable[[Refusal | None], None]


class Call:
    """What both sides of a call have in common."""

    line: "Line"

    def __init__(self, peer: "Peer") -> None:
        self.peer = peer
        self.contact: Contact | None = None
        """Who is at the other end, once it has said Hello."""
        self.settled = False
        self._over = False
        self._timer: Timer = peer.world.after(peer.settings.call_s, self._too_late)

    @property
    def caller(self) -> Contact:
        assert self.contact is not None, "questions are only heard after Hello"
        return self.contact

    def on_open(self) -> None:
        """Only dialled lines are opened; an answered one is open from the start."""

    def on_frame(self, frame: bytes) -> None:
        if self._over:
            return
        try:
            message = decode(frame)
            if isinstance(message, Refuse):
                # That we called ourselves, only our own id in their Hello can tell.
                reason = message.reason if message.reason is not Refusal.MYSELF else None
                self._failed(reason, message.text)
            elif self.contact is not None:
                self._heard(message)
            elif isinstance(message, Hello):
                self._greeted(message)
            else:
                raise WireError(f"a call that starts with {type(message).__name__}")
        except WireError as problem:
            self.peer.counters.malformed += 1
            self._failed(Refusal.BAD_MESSAGE, str(problem))

    def on_lost(self, refusal: Refusal | None = None) -> None:
        self._failed(refusal, "hung up" if refusal is None else refusal.name.lower().replace("_", " "))

    def on_room(self) -> None:
        """Nothing: little is said here."""

    def on_choked(self) -> None:
        self._failed(None, "does not read")

    def become_link(self, *, after_parting: bool = False) -> None:
        """The answer was yes: from here on the line is a link."""
        self._end()
        complete = after_parting or not self.settled
        self.peer.links.add(Link(self.peer, self.line, self.caller), complete=complete)

    def hang_up(self) -> None:
        if not self._over:
            self._end()
            self.line.close()

    def _say_hello(self) -> None:
        me = self.peer.me
        stream = self.peer.stream
        signed = stream.signing is not None
        hello = Hello(MAGIC, VERSION, self.peer.channel_id, me.peer, me.address, stream.settled, signed)
        self.line.send(encode(hello))

    def _greeted(self, hello: Hello) -> None:
        self.contact = Contact(hello.peer, hello.address)
        self.settled = hello.settled

    def _objection(self, hello: Hello) -> tuple[Refusal, str] | None:
        """Why the other end cannot be of our channel, in words that a person can act on."""
        if hello.magic != MAGIC:
            return Refusal.NOT_WEFT, "this is a Weft peer; you speak something else"
        if hello.version != VERSION:
            return Refusal.WRONG_VERSION, f"this peer speaks version {VERSION}, you {hello.version}"
        if hello.channel != self.peer.channel_id:
            return Refusal.WRONG_CHANNEL, "this peer is on another channel; check type and instance"
        if hello.signed != (self.peer.stream.signing is not None):
            here, there = ("", "not ") if self.peer.stream.signing is not None else ("not ", "")
            return Refusal.WRONG_SIGNING, f"messages are {here}signed here, yours are {there}; connect like the others"
        if self.line.identity is not None and hello.peer != self.line.identity.peer:
            self.peer.counters.impostors += 1
            return Refusal.IMPOSTOR, "the certificate is that of another peer than the one you claim to be"
        return None

    def _heard(self, message: Message) -> None:
        raise AssertionError

    def _failed(self, reason: Refusal | None, text: str) -> None:
        raise AssertionError

    def _too_late(self) -> None:
        self._failed(None, "no answer in time")

    def _end(self) -> None:
        self._over = True
        self._timer.cancel()
        self.peer.calls_ended(self)


class Outgoing(Call):
    """We ask."""

    def __init__(
        self,
        peer: "Peer",
        to: Contact | Address,
        question: Message,
        on_answer: OnAnswer,
        on_failure: OnFailure | None = None,
    ) -> None:
        super().__init__(peer)
        self._expected = to.peer if isinstance(to, Contact) else None
        self._question = question
        self._on_answer = on_answer
        self._on_failure = on_failure
        self._address = to.address if isinstance(to, Contact) else to
        self.line = peer.world.dial(self._address, self)

    def on_open(self) -> None:
        if self._over:
            return
        self._say_hello()
        self.line.send(encode(self._question))

    def abandon(self) -> None:
        """We no longer want an answer."""
        self._failed(Refusal.BUSY, "given up for another call")

    def _greeted(self, hello: Hello) -> None:
        super()._greeted(hello)
        if (objection := self._objection(hello)) is not None:
            self._failed(*objection)
        elif self._expected is not None and hello.peer != self._expected:
            self.peer.contacts.drop(self._expected)
            self._failed(None, "another peer answers there now")
        elif hello.peer == self.peer.me.peer:
            self._failed(Refusal.MYSELF, "that is my own address")
        else:
            self.peer.contacts.answered(self.caller)

    def _heard(self, message: Message) -> None:
        self._timer.cancel()
        self._on_answer(self, message)
        if not self._over:
            self.hang_up()

    def _failed(self, reason: Refusal | None, text: str) -> None:
        if self._over:
            return
        self._end()
        self.line.close()
        if reason in NOT_ADMITTED:
            self.peer.not_admitted(reason, f"{self._address}: {text}")
        if reason in NO_USE:
            self.peer.note(f"no use in calling {self.contact or self._address}: {text}")
        if self._expected is not None and self.contact is None:
            self.peer.contacts.failed(self._expected)
        if self._on_failure is not None:
            self._on_failure(reason)


class Incoming(Call):
    """We are asked."""

    def __init__(self, peer: "Peer", line: "Line") -> None:
        super().__init__(peer)
        self.line = line
        line.owner = self

    def answer(self, message: Message) -> None:
        self._say_hello()
        self.line.send(encode(message))

    def refuse(self, reason: Refusal, text: str) -> None:
        if self._over:
            return
        self._say_hello()
        self.line.send(encode(Refuse(reason, text)))
        self.hang_up()

    def _greeted(self, hello: Hello) -> None:
        super()._greeted(hello)
        if (objection := self._objection(hello)) is not None:
            self.peer.counters.strangers += 1
            self.refuse(*objection)
        elif hello.peer == self.peer.me.peer:
            self.refuse(Refusal.MYSELF, "you called yourself")

    def _heard(self, message: Message) -> None:
        handler = self.peer.questions.get(type(message))
        if handler is None:
            raise WireError(f"{type(message).__name__} is no question")
        self.peer.contacts.answered(self.caller)
        handler(self, message)
        if not self._over:
            self.hang_up()

    def _failed(self, reason: Refusal | None, text: str) -> None:
        if self._over:
            return
        if reason is Refusal.BAD_MESSAGE:
            self.refuse(reason, text)
        else:
            self.hang_up()
