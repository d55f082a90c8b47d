"""The configuration of one benchmark process, and the interface of its adapter.

The configuration is passed as JSON on the command line, so that a process needs nothing else to start.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import cycle
from typing import Any

from bench.delivery_check import DeliveryCheck

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """One process among the others of its group."""

    adapter: str
    options: tuple[str, ...]
    index: int
    authors: tuple[int, ...]
    """Who broadcasts. Everybody else only listens."""
    receives: bool
    size_bytes: int
    paced: bool
    """Whether messages come one by one, so that holding them back to send several at once would be wrong."""
    timed: bool
    """Whether the time under way is kept for every message."""
    seed: int
    """The same for the whole group, and for no other: names that must not collide are made of it."""
    ports: tuple[int, ...]
    """A free port for each process, for systems in which everybody must know everybody beforehand."""
    topics: int = 0
    """Topics over which the messages are spread; 0: they have none."""
    broker: dict[str, Any] = field(default_factory=dict)
    """How to reach the broker, if there is one."""

    @property
    def sends(self) -> bool:
        return self.index in self.authors

    @property
    def port(self) -> int:
        return self.ports[self.index]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "ProcessConfig":
        fields = json.loads(text)
        for name in ("options", "authors", "ports"):
            fields[name] = tuple(fields[name])
        return cls(**fields)


class BaseNode(ABC):
    """One process's end of a system. Each adapter has a subclass `Node`.

    Methods of blocking libraries may block: nothing else runs in that event loop, and a thread of the adapter or the
    library passes arriving messages to the delivery check.
    """

    def __init__(self, config: ProcessConfig, delivery_check: DeliveryCheck) -> None:
        self.config = config
        self.delivery_check = delivery_check
        self.topics = [f"bench/{number}" for number in range(config.topics)]
        self._next_topic = cycle(self.topics).__next__

    async def prepare(self) -> None:  # noqa: B027 - most have nothing to do
        """Setup before joining, not part of the measured time."""

    @abstractmethod
    async def connect(self, earlier: Sequence[str]) -> str:
        """Join the earlier nodes, given their addresses; return our own address, without spaces."""

    def next_topic(self) -> str:
        """The topic of the next message: all of them in turn."""
        return self._next_topic()

    @abstractmethod
    async def publish(self, payload: bytes) -> None:
        """Send to all. The message may be buffered until `flush`."""

    async def serve(self, service: str) -> str:
        """Serve clients; return what they pass to `ask`, without spaces. `request` and `switch`: answer requests with
        their own payload, sent to us or to the operation. `mailbox`: offer a value of the size of the case."""
        raise NotImplementedError

    async def ask(self, server: str, payload: bytes) -> bytes:
        """Send a request, or get the value; return the reply."""
        raise NotImplementedError

    async def flush(self) -> None:  # noqa: B027 - most hold nothing back
        """Send what was held back. Called after every message when paced, else once at the end."""
