"""The 13 classes of mailboxes, and which operations each of them allows.

Both are literal tables. The first is FIG. 8 of US 5,517,662; there are no other classes, and programs cannot define
any. The second follows from the first:

- *persistent*: one name, one storage. A value stays until it is replaced. Otherwise the mailbox is a FIFO queue.
- *receive*: other members post letters to it. The owner is notified once per letter (through), once per block of
  letters that arrived together (delayed), or asks itself (polled).
- *send*: the owner puts values into it (persistent), or posts from it (otherwise).
- *fetchable*: other members can read its value, only while it is valid.
- *held*: the value is stored by keepers, outside the owner's program ("adapter only" in the patent).
"""

from dataclasses import dataclass
from enum import StrEnum

from broadloom.mailboxes.errors import NotFetchableError, WrongClassError


class Receive(StrEnum):
    """How the owner of a mailbox is notified of letters."""

    DELAYED = "delayed"
    """Once per block of letters that arrived together."""
    THROUGH = "through"
    """Once per letter."""
    POLLED = "polled"
    """Never: it asks."""


class Operation(StrEnum):
    POST = "post"
    """By another member: send a letter to the mailbox."""
    POLL = "poll"
    """Take the next letter if there is one: `receive_nowait`."""
    WAIT = "wait"
    """Wait for a letter, or be called: `receive`, iterating, `then`."""
    SEND = "send"
    """Post a letter from this mailbox."""
    PUT = "put"
    """Replace or invalidate the value: `put`, `invalidate`."""
    GET = "get"
    """By the owner: read the current value."""
    FETCH = "fetch"
    """By another member: read the current value, or watch it."""
    KEEP = "keep"
    """Have copies stored by keepers: `copies`."""


@dataclass(frozen=True, slots=True)
class MailboxClass:
    """One row of the table. `allows` tells which operations it permits."""

    number: int
    persistent: bool
    receive: Receive | None
    send: bool
    fetchable: bool
    held: bool

    @property
    def is_value(self) -> bool:
        """Whether its owner puts values into it, which all members then know."""
        return self.persistent and self.send

    def allows(self, operation: Operation) -> bool:
        return operation in OPERATIONS[self.number]

    def check(self, operation: Operation, name: str) -> None:
        """Raises `WrongClassError`."""
        if not self.allows(operation):
            kind = NotFetchableError if operation is Operation.FETCH else WrongClassError
            allowed = ", ".join(OPERATIONS[self.number])
            raise kind(f"mailbox {name!r} is of class {self.number}, which allows {allowed}, but not {operation}")

    def __str__(self) -> str:
        parts = ["latest value" if self.persistent else "queue"]
        parts += [f"receive {self.receive}"] if self.receive is not None else []
        parts += [word for word, has in (("send", self.send), ("fetch", self.fetchable), ("held", self.held)) if has]
        return f"class {self.number} ({', '.join(parts)})"


_D, _T, _P = Receive.DELAYED, Receive.THROUGH, Receive.POLLED

CLASSES = {
    # number: persistent, receive, send, fetchable, held
    1: MailboxClass(1, False, _D, False, False, False),
    2: MailboxClass(2, False, _D, True, False, False),
    3: MailboxClass(3, False, _T, False, False, False),
    4: MailboxClass(4, False, _T, True, False, False),
    5: MailboxClass(5, False, _P, False, False, False),
    6: MailboxClass(6, False, _P, True, False, False),
    7: MailboxClass(7, False, None, True, False, False),
    8: MailboxClass(8, True, None, True, True, False),
    9: MailboxClass(9, True, None, True, False, True),
    10: MailboxClass(10, True, None, True, True, True),
    11: MailboxClass(11, True, _D, False, False, False),
    12: MailboxClass(12, True, _T, False, False, False),
    13: MailboxClass(13, True, _P, False, False, False),
}

_POST, _POLL, _WAIT, _SEND = Operation.POST, Operation.POLL, Operation.WAIT, Operation.SEND
_PUT, _GET, _FETCH, _KEEP = Operation.PUT, Operation.GET, Operation.FETCH, Operation.KEEP

OPERATIONS: dict[int, tuple[Operation, ...]] = {
    1: (_POST, _POLL, _WAIT),
    2: (_POST, _POLL, _WAIT, _SEND),
    3: (_POST, _POLL, _WAIT),
    4: (_POST, _POLL, _WAIT, _SEND),
    5: (_POST, _POLL),
    6: (_POST, _POLL, _SEND),
    7: (_SEND,),
    8: (_PUT, _GET, _FETCH),
    9: (_PUT, _GET, _KEEP),
    10: (_PUT, _GET, _FETCH, _KEEP),
    11: (_POST, _POLL, _WAIT, _GET),
    12: (_POST, _POLL, _WAIT, _GET),
    13: (_POST, _POLL, _GET),
}


def class_of(
    *, persistent: bool, receive: Receive | str | None, send: bool, fetchable: bool = False, held: bool = False
) -> MailboxClass:
    """The class with these attributes. Raises `WrongClassError` if there is none."""
    if receive is not None and receive not in list(Receive):
        raise ValueError(f"receive={receive!r}: must be one of {', '.join(Receive)}, or None")
    wanted = persistent, receive, send, fetchable, held
    for each in CLASSES.values():
        if (each.persistent, each.receive, each.send, each.fetchable, each.held) == wanted:
            return each
    raise WrongClassError(
        f"there is no class with persistent={persistent}, receive={receive}, send={send}, fetchable={fetchable}, "
        f"held={held}; the 13 classes are in docs/mailboxes.md"
    )


def class_number(number: int) -> MailboxClass:
    """Raises `WrongClassError`."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"the class of a mailbox is a number from 1 to 13 or a MailboxClass, not {number!r}")
    if number not in CLASSES:
        raise WrongClassError(f"class {number!r}: mailboxes have the classes 1 to 13")
    return CLASSES[number]
