"""One peer of a lab, inside its process: its channel, its ledger, what it says and what it tells.

Its place is between the channel and the program on top (the groups): it sees every message just before that program
does, so the check is of what an application really gets.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import weft
from weft.fabric.events import Batch, LinkDown, LinkUp, Missed, StateChanged
from weft.lab import talk
from weft.lab.chatting import Chatting
from weft.lab.ledger import LabLedger
from weft.trial.histogram import Histogram

if TYPE_CHECKING:
    from weft.channel import ChannelEvent
    from weft.fabric.events import Message
    from weft.lab.border import BorderedNode
    from weft.lab.witness import LabWitness

CLOSE_S = 2.0


class Tally:
    """What was delivered since it was told last, over all peers of a process."""

    def __init__(self) -> None:
        self.delivered = 0
        self.missed = 0
        self.links_made = 0
        self.links_lost = 0
        self.latency = Histogram()
        self.hops: dict[int, int] = {}

    def as_dict(self) -> dict[str, Any]:
        return {
            "delivered": self.delivered,
            "missed": self.missed,
            "links_made": self.links_made,
            "links_lost": self.links_lost,
            "latency": self.latency.as_dict() if self.latency.total else {},
            "hops": [[hops, count] for hops, count in self.hops.items()],
        }


class Resident:
    """Made when `connect` has returned: from here on the channel owes it everything."""

    def __init__(
        self,
        number: int,
        channel: weft.Channel,
        witness: "LabWitness",
        *,
        tally: Callable[[], Tally],
        place: Callable[[int, int, bytes], None],
        broken: Callable[[int, str], None],
        missed: Callable[["Resident", Missed], None],
        changed: Callable[["Resident"], None],
    ) -> None:
        self.number = number
        self.name = talk.name_of(number)
        self.channel = channel
        self.witness = witness
        self.connected_ns = self.changed_ns = time.monotonic_ns()
        self.ledger = LabLedger(channel.peer, self.connected_ns, broken)
        self.chatting: Chatting | None = None
        self.suppressed = 0
        """So many of the next batches are withheld, from the ledger and from the program: a planted fault."""
        self._tally = tally
        self._place = place
        self._missed = missed
        self._changed = changed
        self._early: list[Message] = []
        self._inner: Callable[[Batch], None] | None = None
        self._read_early()
        channel.on_event(self._happened)
        channel.on_batch(self._take)

    def _read_early(self) -> None:
        """What came before `connect` returned, each in its place; see `trial.member`."""
        self.witness.attached = True
        count = 0
        while True:
            while self.witness.early and self.witness.early[0][0] <= count:
                self._told_missed(self.witness.early.popleft()[1])
            message = self.channel.acquire()
            if message is None:
                return
            self._check(message)
            self._tally().delivered += 1
            self._early.append(message)
            count += 1

    async def chat(self, chance: Random) -> None:
        """Take part in the groups from now on."""
        chatting = Chatting(self.channel, self.name, self.number, self._hear, chance)
        self._inner = self.channel._on_batch  # the groups read the channel now; this peer reads before them
        self.channel.on_batch(self._take)
        early, self._early = self._early, []
        for message in early:
            self._inner_take(Batch.of(message))
        await chatting.join()
        self.chatting = chatting

    def listen(self) -> None:
        """Take no part in the groups."""
        early, self._early = self._early, []
        for message in early:
            self._hear(message)

    # -- what comes

    def _take(self, batch: Batch) -> None:
        if self.suppressed:
            self.suppressed -= 1
            return
        now_s = time.time()
        tally = self._tally()
        for message in batch:
            self._check(message)
            self._place(message.author, message.sequence, message.data)
            said_s = talk.said_at(message.data)
            if said_s is not None:
                tally.latency.add(max(0, int((now_s - said_s) * 1e9)))
        tally.delivered += len(batch)
        tally.hops[batch.hops] = tally.hops.get(batch.hops, 0) + len(batch)
        self._inner_take(batch)

    def _inner_take(self, batch: Batch) -> None:
        if self._inner is not None:
            self._inner(batch)
        else:
            for message in batch:
                self._hear(message)

    def _check(self, message: "Message") -> None:
        self.ledger.delivered(message, time.monotonic_ns())

    def _hear(self, message: "Message") -> None:
        """What is no group's: for the tape, a subscriber that is here and an advert that was shown."""
        recorder = self.witness.recorder
        if recorder is None:
            return
        told = talk.read(message.data)
        if told is None:
            return
        if told["kind"] == talk.IDENT:
            recorder.identification(str(told["name"]), message.author)
        elif told["kind"] == talk.ADVERT:
            recorder.advert(str(told["name"]), topic=str(told["topic"]))

    def _happened(self, event: "ChannelEvent") -> None:
        if isinstance(event, Missed):
            self._told_missed(event)
        elif isinstance(event, LinkUp | LinkDown | StateChanged):
            if isinstance(event, LinkUp):
                self._tally().links_made += 1
            elif isinstance(event, LinkDown):
                self._tally().links_lost += 1
            self.changed_ns = time.monotonic_ns()
            self._changed(self)

    def _told_missed(self, missed: Missed) -> None:
        self.ledger.missed(missed)
        self._tally().missed += missed.last - missed.first + 1
        self._missed(self, missed)

    # -- what goes

    async def say(self, data: bytes) -> None:
        with suppress(weft.WeftError):  # it is not connected just now, or leaves
            await self.channel.broadcast(data)

    # -- what it tells

    @property
    def id(self) -> int:
        return self.channel.peer

    @property
    def node(self) -> "BorderedNode":
        from weft.lab.border import BorderedNode

        node = self.channel._node
        assert isinstance(node, BorderedNode)
        return node

    @property
    def sent(self) -> int:
        """The number of its last message."""
        return self.witness.sent_count

    @property
    def sent_ns(self) -> int:
        return self.witness.sent_ns

    def view(self) -> list[Any]:
        """Number, id, state, time of the last change, neighbours, holes, diameter, whether in the small regime."""
        peer = self.node.peer
        holes = peer.links.holes if not peer.joining.small else 0
        links = list(peer.links.neighbours)
        return [
            self.number,
            self.id,
            peer.state.value,
            self.changed_ns,
            links,
            holes,
            peer.diameter.estimate,
            peer.joining.small,
        ]

    def behind(self) -> list[int]:
        """Neighbours that do not read as fast as they are sent to."""
        return [link.neighbour for link in self.node.peer.links if link.is_full or link.arrears]

    # -- the end

    async def leave(self) -> None:
        """In good order."""
        if self.chatting is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self.chatting.here.close()
            self._inner = None
            self.channel.on_batch(self._take)  # up to the end
        await self.channel.leave()

    async def vanish(self) -> None:
        """Its sockets are dropped without a word, as the kernel does with those of a process that was killed."""
        self.channel.vanish()
        if self.chatting is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self.chatting.here.close()  # says nothing any more: there is nothing to say it over
