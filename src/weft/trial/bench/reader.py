"""One peer that is measured, inside its process: it speaks, and looks at every message that it is given.

The rule: what is checked must cost next to nothing beside Weft itself, so a message carries its number among its
author's and two times, and the rest is filler that nobody reads. (`weft trial` checks every byte.)
"""

import os
import time
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any

import weft
from weft.fabric.events import Batch, Message, Missed
from weft.trial.histogram import Histogram
from weft.trial.member import Member, Witness

if TYPE_CHECKING:
    from weft.channel import ChannelEvent

_HEADER = Struct(">QQQ")
"""Number; when it was sent, and when the one before it (CLOCK_MONOTONIC, which all processes of a machine share)."""
SIZE_MIN_BYTES = _HEADER.size


class Reader(Member):
    def __init__(
        self,
        number: int,
        channel: weft.Channel,
        size_bytes: int,
        *,
        broken: Callable[[int, str], None],
        changed: Callable[[Member], None],
    ) -> None:
        self._size = size_bytes
        self._filler = os.urandom(size_bytes - SIZE_MIN_BYTES)
        self._heard: dict[int, int] = {}
        """Author -> number of its last message."""
        self._latency: Histogram | None = None
        self._before: dict[str, int] = {}
        """Counters of the peer when the measurement began."""
        self._gaps: dict[int, None] = {}
        """Authors of whom it was told that it missed something: their next message may be any later one."""
        self._missed = 0
        self.deliveries = 0
        self.last_ns = 0
        super().__init__(number, channel, Witness(None), broken=broken, changed=changed)
        channel.on_batch(self._came)

    # -- speaking

    async def speak(self, now_ns: int) -> None:
        """The next message."""
        await self.channel.broadcast(_HEADER.pack(self.sent + 1, now_ns, self.sent_ns) + self._filler)
        self.sent += 1
        self.sent_ns = now_ns

    # -- hearing

    def _delivered(self, message: Message) -> None:
        self._came(Batch.of(message))

    def _came(self, batch: Batch) -> None:
        now_ns, latency, size = time.monotonic_ns(), self._latency, self._size
        heard = self._heard.get(batch.author)
        for data in batch.data:
            if len(data) != size:
                self._broken(1, f"was given {len(data)} bytes where {size} were sent")
                continue
            number, sent_ns, previous_ns = _HEADER.unpack_from(data)
            if heard is None:
                if number > 1 and previous_ns >= self.connected_ns:
                    self._broken(3, f"started with message {number}, but was a member before {number - 1}")
            elif number != heard + 1 and not (number > heard and batch.author in self._gaps):
                how = "a second time, or late" if number <= heard else "too early"
                self._broken(1, f"was given message {number} {how}: {heard + 1} comes next")
            heard = number
            if latency is not None:
                latency.add(max(0, now_ns - sent_ns))
        if heard is not None:
            self._heard[batch.author] = heard
        self._gaps.pop(batch.author, None)
        self.deliveries += len(batch.data)
        self.last_ns = now_ns

    def _happened(self, event: "ChannelEvent") -> None:
        if isinstance(event, Missed):
            self._gaps[event.author] = None
            self._missed += event.last - event.first + 1
        else:
            super()._happened(event)

    # -- telling

    def begin(self, *, timed: bool) -> None:
        """From here on it counts."""
        self.deliveries = self.last_ns = self._missed = 0
        self._latency = Histogram() if timed else None
        self._before = self.channel.status().counters

    def heads(self) -> dict[str, Any]:
        """How far it is."""
        return {"peer": self.id, "deliveries": self.deliveries, "heard": list(self._heard.items())}

    def report(self) -> dict[str, Any]:
        counters = self.channel.status().counters
        counted = {name: counters[name] - self._before.get(name, 0) for name in ("delivered", "duplicates")}
        latency = self._latency.as_dict() if self._latency is not None else {}
        told = {"number": self.number, "deliveries": self.deliveries, "missed": self._missed, "last_ns": self.last_ns}
        return told | {"latency": latency, **counted}
