"""Mailboxes over a channel (after US 5,517,662): named values and queues of the members, without a server.

The core (post_office.py and its parts) is sans-IO. It runs over a real channel (channel_runtime.py) or a simulated peer
(tests/mailboxes/sim_runtime.py).
"""

from broadloom.mailboxes.classes import CLASSES, OPERATIONS, MailboxClass, Operation, Receive, class_of
from broadloom.mailboxes.errors import (
    AmbiguousMailboxError,
    MailboxError,
    MailboxFullError,
    NotFetchableError,
    NotKeptError,
    NotValidError,
    RevisionMismatchError,
    UnboundError,
    WrongClassError,
)
from broadloom.mailboxes.limits import MailboxSettings
from broadloom.mailboxes.mailbox import Mailbox
from broadloom.mailboxes.mailboxes import Mailboxes
from broadloom.mailboxes.messages import KEEPER_LAYER, LAYER
from broadloom.mailboxes.model import (
    Ack,
    Change,
    ChangeKind,
    GoneReason,
    Letter,
    LimitReached,
    MailboxEvent,
    MailboxInfo,
    Overruled,
    Posted,
    Synced,
    Undelivered,
    Value,
)
from broadloom.mailboxes.runtime import MailboxStore
from broadloom.mailboxes.sqlite_store import SqliteMailboxStore
from broadloom.mailboxes.watch import Watch

__all__ = [
    "CLASSES",
    "KEEPER_LAYER",
    "LAYER",
    "OPERATIONS",
    "Ack",
    "AmbiguousMailboxError",
    "Change",
    "ChangeKind",
    "GoneReason",
    "Letter",
    "LimitReached",
    "Mailbox",
    "MailboxClass",
    "MailboxError",
    "MailboxEvent",
    "MailboxFullError",
    "MailboxInfo",
    "MailboxSettings",
    "MailboxStore",
    "Mailboxes",
    "NotFetchableError",
    "NotKeptError",
    "NotValidError",
    "Operation",
    "Overruled",
    "Posted",
    "Receive",
    "RevisionMismatchError",
    "SqliteMailboxStore",
    "Synced",
    "UnboundError",
    "Undelivered",
    "Value",
    "Watch",
    "WrongClassError",
    "class_of",
]
