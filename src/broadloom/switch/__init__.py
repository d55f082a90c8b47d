"""The switch (after US 5,335,347): requests and notices that are addressed by operation and scope, not by receiver.

At most one program handles a message, near or far, running or startable; any number observe it. The core (core.py and
its parts) is sans-IO. It runs over a real channel (channel_runtime.py) or a simulated peer
(tests/switch/sim_runtime.py).
"""

from broadloom.switch.directory import FileJoin, Registration
from broadloom.switch.handled_request import HandledRequest
from broadloom.switch.model import (
    DeclinedError,
    Dispatch,
    Disposition,
    FailureReason,
    IfLost,
    MessageClass,
    MessageId,
    MessageState,
    Pattern,
    Recipient,
    RequestFailedError,
    Scope,
    SwitchMessage,
    SwitchReply,
)
from broadloom.switch.observer import Observer
from broadloom.switch.program_types import ProgramType, load_program_types
from broadloom.switch.queue_store import MemoryQueue, QueueStore
from broadloom.switch.settings import LAYER
from broadloom.switch.sqlite_queue import SqliteQueue
from broadloom.switch.status import ProgramQueue, QueuedMessage, SwitchStatus
from broadloom.switch.switch import Switch

__all__ = [
    "LAYER",
    "DeclinedError",
    "Dispatch",
    "Disposition",
    "FailureReason",
    "FileJoin",
    "HandledRequest",
    "IfLost",
    "MemoryQueue",
    "MessageClass",
    "MessageId",
    "MessageState",
    "Observer",
    "Pattern",
    "ProgramQueue",
    "ProgramType",
    "QueueStore",
    "QueuedMessage",
    "Recipient",
    "Registration",
    "RequestFailedError",
    "Scope",
    "SqliteQueue",
    "Switch",
    "SwitchMessage",
    "SwitchReply",
    "SwitchStatus",
    "load_program_types",
]
