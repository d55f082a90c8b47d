"""`ChannelMailboxRuntime`: mailboxes over a real channel."""

import logging
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from broadloom.channel.direct_request import DirectRequest
from broadloom.channel.layer_runtime import LayerRuntime
from broadloom.errors import BroadloomError, NotConnectedError
from broadloom.mailboxes.messages import KEEPER_LAYER, LAYER
from broadloom.mailboxes.runtime import Answer
from broadloom.protocol.events import Batch, Missed
from broadloom.protocol.identity import Role
from broadloom.protocol.roster.member import MemberJoined, MemberLeft, MemberLost, Merged
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.channel import Channel, ChannelEvent
    from broadloom.mailboxes.model import Change, MailboxEvent
    from broadloom.mailboxes.post_office import PostOffice
    from broadloom.mailboxes.record import RecordSigner

log = logging.getLogger("broadloom")

ROSTER_TIMEOUT_S = 2.0
"""Time to wait for a complete roster before mailboxes are used without one."""

OnAnswer = Callable[[Answer], None]


class ChannelMailboxRuntime(LayerRuntime):
    def __init__(
        self,
        channel: "Channel",
        *,
        is_keeper: bool,
        on_change: "Callable[[Change], None]",
        emit: "Callable[[MailboxEvent], None]",
        on_left: Callable[[], None],
    ) -> None:
        super().__init__(channel, LAYER, on_left)
        self._keeper_layer = channel.layer(KEEPER_LAYER, _ignore) if is_keeper else None
        self.on_change = on_change
        self.emit = emit
        self.random = Random()
        self._office: PostOffice | None = None
        identity = channel.identity(channel.peer_id)
        self.may_write = identity is None or identity.role is not Role.CONSUMER

    def attach(self, office: "PostOffice") -> None:
        self._office = office
        self._open()
        self._layer.on_request(self._on_request)
        self._start_task(self._start(office))

    async def _start(self, office: "PostOffice") -> None:
        try:
            await self._channel._wait_until_roster_is_complete(ROSTER_TIMEOUT_S)
        except (TimeoutError, NotConnectedError):
            log.debug("%s: mailboxes begin without a complete roster", self._channel.name)
        office.start()

    async def close(self) -> None:
        await super().close()
        if self._keeper_layer is not None:
            self._keeper_layer.close()

    # -- called by the core

    @property
    def signer(self) -> "RecordSigner | None":
        return self._channel._post_signer

    def peers(self) -> list[PeerId]:
        return self._members(LAYER)

    def keepers(self) -> list[PeerId]:
        return self._members(KEEPER_LAYER)

    def _members(self, layer: str) -> list[PeerId]:
        me = self.peer_id
        return [each.peer_id for each in self._channel.members() if layer in each.layers and each.peer_id != me]

    def members_of(self, owner: str) -> list[PeerId]:
        return [
            each.peer_id
            for each in self._channel.members()
            if each.is_proven
            and each.name == owner
            and each.role is Role.PRODUCER
            and LAYER in each.layers
            and each.peer_id != self.peer_id
        ]

    def is_member(self, peer_id: PeerId) -> bool:
        return peer_id == self.peer_id or self._channel.member(peer_id) is not None

    def broadcast(self, data: bytes) -> None:
        if self.may_write:  # a consumer only listens
            super().broadcast(data)

    def request(self, peer_id: PeerId, data: bytes, timeout_s: float, on_answer: OnAnswer) -> None:
        if not self._is_open:
            self._loop.call_soon(on_answer, _closed())
            return
        task = self._start_task(self._request(peer_id, data, timeout_s, on_answer))
        # Closed: the program may wait for the answer. The task may be cancelled before it has begun.
        task.add_done_callback(lambda task: on_answer(_closed()) if task.cancelled() else None)

    async def _request(self, peer_id: PeerId, data: bytes, timeout_s: float, on_answer: OnAnswer) -> None:
        try:
            reply = await self._layer.request(peer_id, data, timeout_s=timeout_s)
            answer = Answer(reply.data)
        except (BroadloomError, ValueError) as problem:
            answer = Answer(b"", problem)
        on_answer(answer)

    # -- called by the channel

    def _on_message(self, author: PeerId, data: bytes) -> None:
        assert self._office is not None
        self._office.on_broadcast(author, data)

    def _on_request(self, request: DirectRequest) -> bytes | None:
        return self._office.on_request(request.peer_id, request.data) if self._office is not None else None

    def _on_event(self, event: "ChannelEvent") -> None:
        assert self._office is not None
        if isinstance(event, MemberJoined):
            self._office.on_member_joined(event.member.peer_id)
        elif isinstance(event, MemberLeft | MemberLost):
            self._office.on_member_gone(event.member.peer_id)
        elif isinstance(event, Missed | Merged):
            self._office.on_missed()


def _closed() -> Answer:
    return Answer(b"", NotConnectedError("these mailboxes were closed"))


def _ignore(_batch: Batch) -> None:
    """Nothing is broadcast on the layer of keepers: it only marks them in the roster."""
