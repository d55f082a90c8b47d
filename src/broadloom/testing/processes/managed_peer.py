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

import broadloom
from broadloom.protocol.events import Batch, LinkDown, LinkUp, Missed, StateChanged
from broadloom.testing.bench.histogram import LatencyHistogram
from broadloom.testing.cluster.delivery_log import ClusterDeliveryLog
from broadloom.testing.workloads import feed
from broadloom.testing.workloads.chat import ChatWorkload

if TYPE_CHECKING:
    from broadloom.channel import ChannelEvent
    from broadloom.protocol.events import Message
    from broadloom.testing.partition import PartitionedNode
    from broadloom.testing.processes.peer_observer import ClusterPeerObserver

CLOSE_TIMEOUT_S = 2.0


class PeerTally:
    """What was delivered since it was told last, over all peers of a process."""

    def __init__(self) -> None:
        self.delivered = 0
        self.missed = 0
        self.links_made = 0
        self.links_lost = 0
        self.latency = LatencyHistogram()
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


class ManagedPeer:
    """Made when `connect` has returned: from here on the channel owes it everything."""

    def __init__(
        self,
        number: int,
        channel: broadloom.Channel,
        observer: "ClusterPeerObserver",
        *,
        tally: Callable[[], PeerTally],
        record_position: Callable[[int, int, bytes], None],
        on_violation: Callable[[int, str], None],
        on_missed: Callable[["ManagedPeer", Missed], None],
        on_change: Callable[["ManagedPeer"], None],
    ) -> None:
        self.number = number
        self.name = feed.member_name(number)
        self.channel = channel
        self.observer = observer
        self.connected_ns = self.changed_ns = time.monotonic_ns()
        self.delivery_log = ClusterDeliveryLog(channel.peer_id, self.connected_ns, on_violation)
        self.chat_workload: ChatWorkload | None = None
        self.suppressed_batches = 0
        """So many of the next batches are withheld, from the ledger and from the program: a planted fault."""
        self._tally = tally
        self._record_position = record_position
        self._report_missed = on_missed
        self._on_change = on_change
        self._early_messages: list[Message] = []
        self._group_handler: Callable[[Batch], None] | None = None
        self._drain_early()
        channel.on_event(self._on_event)
        channel.on_batch(self._on_batch)

    def _drain_early(self) -> None:
        """What came before `connect` returned, each in its place; see `trial.member`."""
        self.observer.is_attached = True
        count = 0
        while True:
            while self.observer.early_missed and self.observer.early_missed[0][0] <= count:
                self._on_missed(self.observer.early_missed.popleft()[1])
            message = self.channel.receive_nowait()
            if message is None:
                return
            self._log_delivery(message)
            self._tally().delivered += 1
            self._early_messages.append(message)
            count += 1

    async def start_chat(self, random: Random) -> None:
        """Take part in the groups from now on."""
        workload = ChatWorkload(self.channel, self.name, self.number, self._record_metadata, random)
        self._group_handler = (
            self.channel._batch_callback
        )  # the groups read the channel now; this peer reads before them
        self.channel.on_batch(self._on_batch)
        early, self._early_messages = self._early_messages, []
        for message in early:
            self._forward(Batch.from_message(message))
        await workload.join()
        self.chat_workload = workload

    def listen(self) -> None:
        """Take no part in the groups."""
        early, self._early_messages = self._early_messages, []
        for message in early:
            self._record_metadata(message)

    # -- what comes

    def _on_batch(self, batch: Batch) -> None:
        if self.suppressed_batches:
            self.suppressed_batches -= 1
            return
        now_s = time.time()
        tally = self._tally()
        for message in batch:
            self._log_delivery(message)
            self._record_position(message.author, message.sequence, message.data)
            sent_s = feed.sent_at(message.data)
            if sent_s is not None:
                tally.latency.add(max(0, int((now_s - sent_s) * 1e9)))
        tally.delivered += len(batch)
        tally.hops[batch.hops] = tally.hops.get(batch.hops, 0) + len(batch)
        self._forward(batch)

    def _forward(self, batch: Batch) -> None:
        if self._group_handler is not None:
            self._group_handler(batch)
        else:
            for message in batch:
                self._record_metadata(message)

    def _log_delivery(self, message: "Message") -> None:
        self.delivery_log.on_delivered(message, time.monotonic_ns())

    def _record_metadata(self, message: "Message") -> None:
        """What is no group's: for the tape, a subscriber that is here and an advert that was shown."""
        recorder = self.observer.recorder
        if recorder is None:
            return
        content = feed.decode(message.data)
        if content is None:
            return
        if content["kind"] == feed.IDENTIFICATION:
            recorder.identification(str(content["name"]), message.author)
        elif content["kind"] == feed.AD:
            recorder.ad_impression(str(content["name"]), topic=str(content["topic"]))

    def _on_event(self, event: "ChannelEvent") -> None:
        if isinstance(event, Missed):
            self._on_missed(event)
        elif isinstance(event, LinkUp | LinkDown | StateChanged):
            if isinstance(event, LinkUp):
                self._tally().links_made += 1
            elif isinstance(event, LinkDown):
                self._tally().links_lost += 1
            self.changed_ns = time.monotonic_ns()
            self._on_change(self)

    def _on_missed(self, missed: Missed) -> None:
        self.delivery_log.on_missed(missed)
        self._tally().missed += missed.last_sequence - missed.first_sequence + 1
        self._report_missed(self, missed)

    # -- what goes

    async def send(self, data: bytes) -> None:
        with suppress(broadloom.BroadloomError):  # it is not connected just now, or leaves
            await self.channel.broadcast(data)

    # -- what it tells

    @property
    def peer_id(self) -> int:
        return self.channel.peer_id

    @property
    def node(self) -> "PartitionedNode":
        from broadloom.testing.partition import PartitionedNode

        node = self.channel._node
        assert isinstance(node, PartitionedNode)
        return node

    @property
    def sent_count(self) -> int:
        """The number of its last message."""
        return self.observer.sent_count

    @property
    def last_sent_ns(self) -> int:
        return self.observer.last_sent_ns

    def view(self) -> list[Any]:
        """Number, id, state, time of the last change, neighbours, holes, diameter, whether in the small regime."""
        peer = self.node.peer
        free_slots = peer.links.free_slots if not peer.join_protocol.is_full_mesh else 0
        links = list(peer.links.neighbors)
        return [
            self.number,
            self.peer_id,
            peer.state.value,
            self.changed_ns,
            links,
            free_slots,
            peer.diameter.estimate,
            peer.join_protocol.is_full_mesh,
        ]

    def slow_neighbors(self) -> list[int]:
        """Neighbours that do not read as fast as they are sent to."""
        return [link.peer_id for link in self.node.peer.links if link.is_congested or link.backlog]

    # -- the end

    async def leave(self) -> None:
        """In good order."""
        if self.chat_workload is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self.chat_workload.groups.aclose()
            self._group_handler = None
            self.channel.on_batch(self._on_batch)  # up to the end
        await self.channel.leave()

    async def abort(self) -> None:
        """Its sockets are dropped without a word, as the kernel does with those of a process that was killed."""
        self.channel.abort()
        if self.chat_workload is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self.chat_workload.groups.aclose()  # says nothing any more: there is nothing to say it over
